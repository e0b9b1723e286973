"""Compares the peak memory of training with the memory that must be kept, to find wasted memory.

    python -m benchmarks training-memory resnet18,64 vgg16,32,bf16 --device ocl:0

Parameters, buffers, images, and what autograd saves for the backward pass must be kept, each
storage once. With `--device cuda`, it measures torch's own device.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.tasks.classifiers import CLASSES, SIZE, models_beside
from benchmarks.tasks.networks import precision

MIB = 2**20


def main(steps: Sequence[str], device: str) -> None:
    """Print the peak, what is kept, and their ratio for each network.

    Args:
        steps: texts as `resnet18,64` or `vgg16,8,bf16`: network, images and dtype.
        device: torch's name of it; it counts its memory as torch.cuda does.
    """
    if not device.startswith("cuda"):
        import ocl_backend  # noqa: F401 (registers the device)
    table = Table("network", "peak MiB", "kept MiB", "peak over kept")
    for text in steps:
        name, batch, *dtype = text.split(",")
        peak, kept = measure(name, int(batch), device, *(dtype or ["fp32"]))
        ratio = f"{peak / kept:.3f}"
        table.add_row(text, f"{peak / MIB:.0f}", f"{kept / MIB:.0f}", ratio)
    Console(width=80).print(table)


def measure(name: str, batch: int, device: str, dtype: str) -> tuple[int, int]:
    """Return the bytes of a training step at its peak, and those that it has to keep.

    Args:
        name: torchvision's.
        batch: images.
        device: torch's name of it.
        dtype: "fp32", or what autocast computes in; then images are channels_last.
    """
    import torch

    place, memory = torch.device(device), torch.get_device_module(device)
    with place:
        model = getattr(models_beside(place.type), name)(weights=None).train()
        images, labels = torch.randn(batch, 3, SIZE, SIZE), torch.randint(0, CLASSES, (batch,))
    if dtype != "fp32":
        model, images = (each.to(memory_format=torch.channels_last) for each in (model, images))
    held = [*model.parameters(), *model.buffers(), images, labels]
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == place.type:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    for _ in range(2):  # what is built and prepared at first is no part of a step
        model.zero_grad()
        kept.clear()
        memory.synchronize()
        memory.empty_cache()
        memory.reset_peak_memory_stats()
        others = memory.memory_allocated() - sum(_storages(held).values())
        saved = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
        with saved, precision(device, dtype):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        kept.update(_storages(held))
        loss.backward()  # type: ignore[no-untyped-call]
        memory.synchronize()
        peak = memory.max_memory_allocated() - others
    return peak, sum(kept.values())


def _storages(tensors: Sequence[object]) -> dict[int, int]:
    storages = (tensor.untyped_storage() for tensor in tensors)  # type: ignore[attr-defined]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}
