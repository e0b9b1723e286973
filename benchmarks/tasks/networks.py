"""Whole networks, chosen of torchvision and drawn of timm, too, through torch on either side.

    python -m benchmarks networks --networks resnet18,alexnet --batch 8 --check

Times are of whole steps as an application makes them, the host's copies of inputs and results
included; fp32 is strict on both sides, bf16 is autocast over channels_last, as networks are
trained on matrix units. With `--check`, errors are against the CPU in fp32 with dropout off: of
scores the largest difference over the largest score, of gradients the relative L2 distance of all
of them (single tensors may be nothing but rounding).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.tasks.classifiers import CLASSES, SIZE, Classifier, classifiers, made
from benchmarks.tasks.draw import Draw, distinct, log_uniform
from benchmarks.tasks.task import Task
from benchmarks.timing import Call
from oclgen.limits import Limits

if TYPE_CHECKING:
    from torch import Tensor, nn

NETWORKS = ("resnet50", "resnet18", "vgg16", "mobilenet_v2", "alexnet")
HALF = ("resnet50",)
"""Those that are measured in bf16 too, where there are matrix units."""
MODES = ("eval", "train")
BATCH = {"cpu": 8, "gpu": 64, "other": 8}
CHECKED = 2
"""Images of the comparison with the CPU."""
USUAL = Classifier(SIZE, 0.0)
"""Images of a network that is not in the table."""
DRAWN = 3
"""Networks that a seed draws; each is measured in all modes."""
MOST_GMACS = {"cpu": 5.0, "gpu": 20.0, "other": 5.0}
"""1e9 multiply-adds per image of a drawn network, at most."""


class Drawn(NamedTuple):
    """A network, its images, and the dtype it is measured in where there are matrix units."""

    name: str
    batch: int
    dtype: str


def drawn(seed: int, count: int, kind: str) -> list[Drawn]:
    """Return different networks of torchvision and timm for a kind of device.

    Args:
        seed: equal seeds give equal networks.
        count: networks.
        kind: "cpu" or "gpu": how large they are.
    """
    names = [name for name, one in classifiers().items() if one.gmacs <= MOST_GMACS[kind]]
    return distinct("networks", seed, count, partial(_any_network, names, BATCH[kind]))


def _any_network(names: list[str], most_images: int, random: Random) -> Drawn:
    name, batch = random.choice(names), log_uniform(random, 1, most_images)
    return Drawn(name, batch, random.choice(("fp32", "bf16")))


def tasks(
    limits: Limits, draw: Draw, batch: int = 0, names: tuple[str, ...] = NETWORKS
) -> Iterator[Task]:
    """Yield every network in evaluation and in training.

    Args:
        limits: of the device.
        draw: how many networks are drawn at random, and their seed.
        batch: images; 0: as many as usual for the kind of device.
        names: torchvision's, or `timm.NAME`.
    """
    images = batch or BATCH[limits.kind]
    has_units = "mma" in limits.instructions
    half = [name for name in names if name in HALF and has_units]
    for name, dtype in [*((name, "fp32") for name in names), *((name, "bf16") for name in half)]:
        for mode in MODES:
            yield _task(name, mode, images, dtype, "networks")
    for one in drawn(draw.seed, draw.of(DRAWN), limits.kind):
        dtype = one.dtype if has_units else "fp32"
        for mode in MODES:
            yield _task(one.name, mode, batch or one.batch, dtype, "drawn networks", draw.seed)


def _task(
    name: str, mode: str, batch: int, dtype: str, group: str, seed: int | None = None
) -> Task:
    also = "" if dtype == "fp32" else f" {dtype}"
    key = f"{name} {mode}, batch {batch}{also}"
    what = {"name": name, "mode": mode, "batch": batch, "dtype": dtype}
    return Task("networks", key, (f"{group} {mode}{also}",), 0, dtype, 0.0, 0.0, what, seed)


def step(name: str, mode: str, batch: int, device: str, dtype: str = "fp32") -> Call:
    """Return a step of the network on `device`, with random weights and images.

    Args:
        name: torchvision's, or `timm.NAME`.
        mode: "eval" or "train".
        batch: images.
        device: torch's name of it.
        dtype: "fp32", or what autocast computes in; then images are channels_last.
    """
    import torch

    with torch.device(device):
        model = made(name, device)
    images = _images(name, batch)
    if dtype != "fp32":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = images.to(memory_format=torch.channels_last)
    if mode == "eval":
        return _evaluation(model, images, device, dtype)
    return _training(model, images, torch.randint(0, CLASSES, (batch,)), device, dtype)


def _images(name: str, batch: int) -> Tensor:
    import torch

    side = classifiers().get(name, USUAL).side
    return torch.randn(batch, 3, side, side)


def precision(device: str, dtype: str) -> AbstractContextManager[None]:
    """Return the context in which products are in `dtype`: autocast for "bf16"."""
    import torch

    if dtype == "fp32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, torch.bfloat16)


def _evaluation(model: nn.Module, images: Tensor, device: str, dtype: str) -> Call:
    """Return the step that infers and brings the result home."""
    import torch

    model.eval()

    @torch.no_grad()
    def run() -> object:
        with precision(device, dtype):
            return model(images.to(device)).cpu()

    return run


def _training(model: nn.Module, images: Tensor, labels: Tensor, device: str, dtype: str) -> Call:
    """Return the step that trains with Adam and brings the loss home."""
    import torch

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    model.train()

    def run() -> object:
        optimizer.zero_grad()
        with precision(device, dtype):
            scores = model(images.to(device))
            loss = torch.nn.functional.cross_entropy(scores, labels.to(device))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    return run


def operations(name: str, mode: str, batch: int) -> float:
    """Return the operations of products and convolutions in a step, by torch's own count.

    Training counts three times what evaluation does: a gradient is two products of that size.

    Args:
        name: torchvision's, or `timm.NAME`.
        mode: "eval" or "train".
        batch: images.
    """
    from torch.utils.flop_counter import FlopCounterMode

    # made on the CPU: some networks read numbers of tensors while they are made, as regnets do
    network = made(name, "meta").to("meta")
    with FlopCounterMode(display=False) as counted:
        network(_images(name, batch).to("meta"))
    return float(counted.get_total_flops()) * (3 if mode == "train" else 1)


def error(name: str, mode: str, device: str, dtype: str = "fp32") -> float:
    """Return how far scores (eval) or gradients (train) are from the CPU's in fp32.

    Args:
        name: torchvision's, or `timm.NAME`.
        mode: "eval" or "train".
        device: torch's name of it.
        dtype: "fp32", or what autocast computes in.

    Returns:
        Largest error by the largest score, or the relative L2 error of gradients.
    """
    import torch

    torch.manual_seed(0)
    network = made(name, device)
    images, labels = _images(name, CHECKED), torch.randint(0, CLASSES, (CHECKED,))
    sides = (("cpu", "fp32"), (device, dtype))
    both = [_judged(network, mode, images, labels, *side) for side in sides]
    if mode == "eval":
        return float((both[1] - both[0]).abs().max() / both[0].abs().max())
    return float((both[1] - both[0]).norm() / both[0].norm())


def _judged(
    network: nn.Module, mode: str, images: Tensor, labels: Tensor, device: str, dtype: str
) -> Tensor:
    """Return scores in evaluation or all gradients in training, one vector, on the CPU."""
    import torch

    model = deepcopy(network).to(device).train(mode == "train")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    if mode == "eval":
        with torch.no_grad(), precision(device, dtype):
            scores: Tensor = model(images.to(device))
            return scores.float().cpu().flatten()
    with precision(device, dtype):
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.cpu().flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat(gradients)
