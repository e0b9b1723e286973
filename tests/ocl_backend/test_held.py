"""Calls that are held back: threads, devices, errors, memory, kept weights, profilers."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from queue import Queue
from threading import Thread
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn

from ocl_backend.dispatch import tuned
from ocl_backend.fusion import held, recall
from ocl_backend.ops.linear.matmul import Multiplying
from tests.ocl_backend.cpu_twin import place
from tests.ocl_backend.fusion_cases import names, normalisation, same, small


def test_two_threads_hold_and_settle_in_turns(device: Any) -> None:
    x, w, b = small(device, 64, 32), small(device, 32, 32) / 6, small(device, 32)
    expected = torch.relu(torch.addmm(b, x, w)).cpu()
    handed: Queue[Tensor | None] = Queue()
    wrong: list[Tensor] = []

    def consume() -> None:
        while (y := handed.get()) is not None:
            if not torch.allclose(torch.relu_(y).cpu(), expected, atol=1e-5):
                wrong.append(y)

    readers = [Thread(target=consume) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(200):
        handed.put(torch.addmm(b, x, w))
        torch.relu(torch.addmm(b, x, w))
    for _ in readers:
        handed.put(None)
    for reader in readers:
        reader.join()
    assert not wrong


def test_two_devices_do_not_mix() -> None:
    if torch.ocl.device_count() < 2:
        pytest.skip("one device only")
    x, w, b = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
    here, there = (torch.addmm(*(t.to(f"ocl:{i}") for t in (b, x, w))) for i in (0, 1))
    moved = here.to("ocl:1")
    assert torch.allclose(torch.relu_(there + moved).cpu(), torch.relu(2 * torch.addmm(b, x, w)))
    with pytest.raises(RuntimeError, match="same device"):
        torch.conv2d(torch.randn(1, 1, 4, 4).to("ocl:0"), torch.randn(1, 1, 3, 3).to("ocl:1"))


@pytest.fixture
def asked() -> Iterator[None]:
    """Let rules run every step, as they do while an observer is registered."""

    def ignore(call: tuned.TunedCall) -> None:
        del call

    tuned.observe(ignore)
    yield
    tuned.observe(ignore, on=False)


@pytest.fixture
def failing(asked: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every linear layer run out of memory when it is enqueued."""

    def fail(*given: object) -> None:
        raise torch.OutOfMemoryError("no room for a workspace")

    monkeypatch.setattr(Multiplying, "alone", fail)
    yield
    assert not held.is_holding()


@pytest.mark.usefixtures("failing")
def test_errors_of_what_was_held_are_raised_by_the_next_command(device: Any) -> None:
    x, b = small(device, 4, 4), small(device, 4)
    for command in (lambda: x.exp(), lambda: x.cpu(), torch.ocl.synchronize, lambda: x + x):
        torch.addmm(b, x, x)
        with pytest.raises(torch.OutOfMemoryError, match="no room") as caught:
            command()
        told = [str(caught.value), *getattr(caught.value, "__notes__", ())]
        assert "addmm was held back" in "\n".join(told)
        x.clone()


@pytest.mark.usefixtures("asked", "interruptible")
def test_an_interrupt_waits_for_what_was_held(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Multiplying.alone

    def interrupted(*given: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        plain(*given)

    monkeypatch.setattr(Multiplying, "alone", interrupted)
    x, b = small(device, 4, 4), small(device, 4)
    y = torch.addmm(b, x, x)
    with pytest.raises(KeyboardInterrupt):
        y.cpu()
    monkeypatch.setattr(Multiplying, "alone", plain)
    torch.testing.assert_close(y.cpu(), torch.addmm(b.cpu(), x.cpu(), x.cpu()))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("asked", "interruptible")
def test_an_interrupt_of_what_was_held_is_not_lost(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Multiplying, "alone", interrupt)
    x, b = small(device, 4, 4), small(device, 4)
    y = torch.addmm(b, x, x)
    with pytest.raises(KeyboardInterrupt, match="addmm was held back"):
        y.cpu()
    torch.addmm(b, x, x)
    with pytest.raises(KeyboardInterrupt):
        x.exp()
    assert not held.is_holding()


def test_memory_that_only_a_held_launch_has_counts_as_free(device: Any) -> None:
    gc.collect()  # or it frees what earlier tests left, between the two readings
    x, b = small(device, 64, 64), small(device, 64)
    torch.ocl.synchronize(device.index)
    before = torch.ocl.memory_allocated(device.index)
    torch.addmm(b, x, x)
    assert held.is_holding()
    assert torch.ocl.memory_allocated(device.index) == before
    torch.ocl.synchronize(device.index)
    assert not held.is_holding()


def test_folded_weights_are_kept_until_anything_of_them_changes(device: Any) -> None:
    layers = nn.Sequential(nn.Conv2d(3, 5, 3).to(place(device)), normalisation(5, device))
    x = small(device, 2, 3, 9, 9)
    with torch.no_grad():
        for _ in range(4):
            layers(x)
            torch.ocl.synchronize(device.index)
        assert "fold_batch_norm" not in names(lambda: layers(x))
        for tensor in layers.state_dict().values():
            if tensor.is_floating_point():
                tensor.mul_(1.5)
                same(lambda: layers(x))


def test_profilers_show_a_fused_kernel_under_the_last_operator(device: Any) -> None:
    x, b = small(device, 64, 64), small(device, 64)
    torch.relu(torch.addmm(b, x, x)).cpu()
    with torch.profiler.profile() as seen:
        y = torch.relu(torch.addmm(b, x, x))
        y.cpu()
    rows = {row.key: row for row in seen.key_averages()}
    assert rows["aten::relu"].device_time_total > 0
    assert rows["aten::addmm"].device_time_total == 0


def test_rules_go_with_what_is_recalled_of_them(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.forget()
    monkeypatch.setattr(held, "MOST_CALLS", 4)
    for size in range(1, 20):
        torch.relu(small(device, size) + 1)
    held.settle()
    held._drop_rules()
    assert len(held._rules) > 4, "recipes have theirs"
    recall.forget()
    held._drop_rules()
    assert len(held._rules) < 10
