"""The thread that hands a device's commands to its driver: tests/csrc has it without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.runtime import memory
from oclgen import system
from tests.ocl_backend.cpu_twin import place

SYNC = "index 7 is out of bounds"


@pytest.fixture
def by_thread(device: Any) -> Iterator[Any]:
    """Return the device as torch knows it, with its thread on."""
    there = place(device)
    memory.set_submitter(there.index, True)
    yield there
    torch.ocl.synchronize(there)
    memory.set_submitter(there.index, False)


@pytest.mark.parametrize(
    ("own_memory", "cores", "wish", "wanted"),
    [
        (True, 4, "", True),
        (True, 3, "", False),
        (False, 64, "", False),
        (False, 1, "1", True),
        (True, 64, "0", False),
    ],
)
def test_the_thread_is_for_devices_that_leave_the_host_a_core(
    own_memory: bool, cores: int, wish: str, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "cores", lambda: cores)
    monkeypatch.setenv(memory.SUBMITTER_VARIABLE, wish)
    assert memory.wants_submitter(own_memory) == wanted


def trained(device: Any, steps: int = 6) -> list[Any]:
    """Return the weights of a small network behind some steps."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.SiLU(),
        torch.nn.Flatten(), torch.nn.Linear(8 * 36, 5),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    images, labels = torch.randn(4, 3, 6, 6), torch.tensor([0, 1, 2, 4])
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in network.parameters()]


def test_training_gives_the_same_bits(by_thread: Any) -> None:
    with_thread = trained(by_thread)
    memory.set_submitter(by_thread.index, False)
    for ours, theirs in zip(with_thread, trained(by_thread), strict=True):
        assert torch.equal(ours, theirs)


def test_memory_that_comes_and_goes_keeps_what_was_written(by_thread: Any) -> None:
    kept = []
    for number in range(200):
        x = torch.full((64 + 16 * (number % 7),), float(number), device=by_thread)
        y = x * 2
        del x
        if number % 20 == 0:
            torch.ocl.empty_cache()
            kept.append((number, y + 1))
    for number, result in kept:
        assert (result.cpu() == 2 * number + 1).all()


def test_copies_and_writes_keep_their_order(by_thread: Any) -> None:
    x = torch.zeros(32, device=by_thread)
    seen = []
    for number in range(50):
        x.copy_(torch.full((32,), float(number)))  # a staged write
        seen.append(x.clone())  # a copy within the device
        x += 1
    for number, copy in enumerate(seen):
        assert (copy.cpu() == number).all()


def test_a_wrong_index_is_told_by_the_next_call_that_waits(by_thread: Any) -> None:
    x, wrong = torch.ones(7, device=by_thread), torch.tensor([7], device=by_thread)
    for _ in range(4):
        x[wrong - 6]
    torch.ocl.synchronize(by_thread)
    x[wrong]
    with pytest.raises(torch.AcceleratorError, match=SYNC):
        torch.ocl.synchronize(by_thread)
    assert x.sum().item() == 7


def test_profiles_see_every_command_of_their_time(by_thread: Any) -> None:
    x = torch.ones(100, device=by_thread)
    for _ in range(5):
        x.exp()
    with torch.ocl.profile(file=None) as seen:
        x.exp()
    assert [command.name for command in seen.commands] == ["pointwise_exp_kernel"]


def test_a_process_ends_behind_what_its_thread_has() -> None:
    program = (
        "import torch, ocl_backend\n"
        "x = torch.ones(1000, device='ocl')\n"
        "for _ in range(300): x = x + 1\n"
        "print(x[0].item())\n"
        "for _ in range(300): x = x + 1\n"
    )
    environment = os.environ | {memory.SUBMITTER_VARIABLE: "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "301.0\n"), done.stderr
