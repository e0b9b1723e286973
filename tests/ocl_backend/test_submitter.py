"""Commands that a thread or batches hand to the driver: tests/csrc has the thread without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.runtime import memory
from ocl_backend.runtime.memory import Submission
from oclgen import system
from tests.ocl_backend.cpu_twin import place

SYNC = "index 7 is out of bounds"


@pytest.fixture(params=[Submission.BATCHES, Submission.THREAD], ids=lambda who: who.name.lower())
def late(device: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return the device as torch knows it, whose commands reach the driver behind their calls."""
    there = place(device)
    memory.set_submission(there.index, request.param)
    yield there
    torch.ocl.synchronize(there)
    memory.set_submission(there.index, Submission.EACH_CALL)


@pytest.mark.parametrize(
    ("own_memory", "on_cpu", "cores", "wish", "wanted"),
    [
        (True, False, 4, "", Submission.THREAD),
        (True, False, 3, "", Submission.EACH_CALL),
        (False, False, 1, "", Submission.EACH_CALL),
        (False, True, 64, "", Submission.EACH_CALL),
        (False, True, 1, "", Submission.BATCHES),
        (False, True, 1, "1", Submission.THREAD),
        (True, False, 64, "0", Submission.EACH_CALL),
        (False, True, 2, "2", Submission.BATCHES),
    ],
)
def test_a_thread_needs_a_core_and_batches_serve_the_only_one(
    own_memory: bool, on_cpu: bool, cores: int, wish: str, wanted: Submission,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(system, "cores", lambda: cores)
    monkeypatch.setenv(memory.SUBMITTER_VARIABLE, wish)
    assert memory.submission(own_memory, on_cpu) == wanted


def test_a_wish_that_is_no_way_to_submit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.SUBMITTER_VARIABLE, "yes")
    with pytest.raises(ValueError, match="OCLGEN_SUBMITTER='yes'; it must be one of 0, 1, 2"):
        memory.submission(own_memory=True, on_cpu=False)


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


def test_training_gives_the_same_bits(late: Any) -> None:
    later = trained(late)
    memory.set_submission(late.index, Submission.EACH_CALL)
    for ours, theirs in zip(later, trained(late), strict=True):
        assert torch.equal(ours, theirs)


def test_memory_that_comes_and_goes_keeps_what_was_written(late: Any) -> None:
    kept = []
    for number in range(200):
        x = torch.full((64 + 16 * (number % 7),), float(number), device=late)
        y = x * 2
        del x
        if number % 20 == 0:
            torch.ocl.empty_cache()
            kept.append((number, y + 1))
    for number, result in kept:
        assert (result.cpu() == 2 * number + 1).all()


def test_copies_and_writes_keep_their_order(late: Any) -> None:
    x = torch.zeros(32, device=late)
    seen = []
    for number in range(50):
        x.copy_(torch.full((32,), float(number)))  # a staged write
        seen.append(x.clone())  # a copy within the device
        x += 1
    for number, copy in enumerate(seen):
        assert (copy.cpu() == number).all()


def test_a_wrong_index_is_told_by_the_next_call_that_waits(late: Any) -> None:
    x, wrong = torch.ones(7, device=late), torch.tensor([7], device=late)
    for _ in range(4):
        x[wrong - 6]
    torch.ocl.synchronize(late)
    x[wrong]
    with pytest.raises(torch.AcceleratorError, match=SYNC):
        torch.ocl.synchronize(late)
    assert x.sum().item() == 7


def test_profiles_see_every_command_of_their_time(late: Any) -> None:
    x = torch.ones(100, device=late)
    for _ in range(5):
        x.exp()
    with torch.ocl.profile(file=None) as seen:
        x.exp()
    assert [command.name for command in seen.commands] == ["pointwise_exp_kernel"]


@pytest.mark.parametrize("who", [Submission.BATCHES, Submission.THREAD])
def test_a_process_ends_behind_what_was_not_submitted(who: Submission) -> None:
    program = (
        "import torch, ocl_backend\n"
        "x = torch.ones(1000, device='ocl')\n"
        "for _ in range(300): x = x + 1\n"
        "print(x[0].item())\n"
        "for _ in range(300): x = x + 1\n"
    )
    environment = os.environ | {memory.SUBMITTER_VARIABLE: str(int(who))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "301.0\n"), done.stderr
