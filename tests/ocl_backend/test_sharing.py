"""Tensors in other processes, in files of torch and of safetensors."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.multiprocessing as mp

from tests.ocl_backend.cpu_twin import place


def double(inbox: Any, outbox: Any) -> None:
    """A process that answers with twice the values, on the device they came from."""
    weight, views = inbox.get()
    told = (type(weight).__name__, weight.requires_grad, str(weight.device), views[0].stride())
    outbox.put((told, weight.detach() * 2, [view * 2 for view in views]))
    inbox.get()  # what it sent is there to be read until then


def test_tensors_go_to_another_process_and_back(device: Any) -> None:
    context = mp.get_context("spawn")
    inbox, outbox = context.SimpleQueue(), context.SimpleQueue()
    child = context.Process(target=double, args=(inbox, outbox))
    child.start()
    base = torch.arange(12.0, device=place(device)).reshape(3, 4)
    weight = torch.nn.Parameter(base.bfloat16())
    inbox.put((weight, [base.T, base[1:]]))
    told, doubled, views = outbox.get()
    inbox.put(None)
    child.join()
    assert told == ("Parameter", True, str(base.device), (1, 4))
    assert torch.equal(doubled.cpu(), base.bfloat16().cpu() * 2)
    assert [view.device for view in views] == [base.device] * 2
    assert torch.equal(views[0].cpu(), base.cpu().T * 2)
    assert torch.equal(views[1].cpu(), base.cpu()[1:] * 2)


def test_memory_is_not_called_shared(device: Any) -> None:
    model = torch.nn.Linear(2, 2).to(place(device))
    assert not model.weight.is_shared()
    with pytest.raises(RuntimeError, match=r"memory of ocl:\d+ cannot be shared"):
        model.share_memory()
    assert torch.nn.Linear(2, 2).share_memory().weight.is_shared()
    from ocl_backend.sharing import reduce

    with pytest.raises(RuntimeError, match="autograd recorded"):
        reduce(model.weight * 2)


@pytest.mark.parametrize("target", ["same", "cpu"])
def test_files_of_torch_keep_views_and_flags(device: Any, target: str) -> None:
    at = torch.device(place(device))
    base = torch.arange(10.0, device=at)
    kept = {"low": base[2:5], "high": base[3:], "half": base.half().requires_grad_()}
    kept["image"] = torch.ones(1, 2, 3, 3, device=at).to(memory_format=torch.channels_last)
    file = io.BytesIO()
    torch.save(kept, file)
    file.seek(0)
    read = torch.load(file, map_location=None if target == "same" else target)
    read["low"][1] = 77
    assert read["high"][0].item() == 77
    assert read["half"].requires_grad
    assert read["image"].stride() == kept["image"].stride()
    assert {tensor.device for tensor in read.values()} == {
        at if target == "same" else torch.device("cpu")
    }


def test_safetensors_are_read_to_a_device_by_its_index(device: Any, tmp_path: Path) -> None:
    """No more is allocated than the tensors take: they come one by one from the mapped file."""
    safetensors = pytest.importorskip("safetensors")
    from safetensors.torch import load_file, save_file

    at = torch.device(place(device))
    written = {
        "a": torch.randn(512, 512, device=at),
        "b": torch.randn(1024, 256, device=at).bfloat16(),
        "c": torch.arange(6, device=at).reshape(2, 3),
    }
    save_file(written, tmp_path / "x.safetensors")
    before = torch.ocl.memory_allocated(at)
    torch.ocl.reset_peak_memory_stats(at)
    read = load_file(tmp_path / "x.safetensors", device=at.index)
    needed = sum(tensor.nbytes for tensor in written.values())
    assert needed <= torch.ocl.max_memory_allocated(at) - before < needed + 4096
    for name, tensor in written.items():
        assert read[name].device == at
        assert torch.equal(read[name].cpu(), tensor.cpu())
    with safetensors.safe_open(tmp_path / "x.safetensors", "pt", device=at.index) as file:
        rows = file.get_slice("a")[3:7]
    assert rows.device == at
    assert torch.equal(rows.cpu(), written["a"][3:7].cpu())
