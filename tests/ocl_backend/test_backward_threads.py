"""Which thread runs a backward pass: the caller's where torch computes on processors alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from ocl_backend.runtime import memory
from oclgen.opencl.device import devices
from tests.ocl_backend.cpu_twin import place


def thread_of_backward(where: Any) -> int:
    """Return the thread in which a gradient is computed."""
    seen: list[int] = []
    x = torch.ones(4, device=where, requires_grad=True)
    doubled = x * 2
    doubled.register_hook(lambda grad: seen.append(threading.get_ident()))
    doubled.sum().backward()
    assert x.grad.tolist() == [2.0] * 4
    return seen[0]


def in_new_thread(call: Callable[[], int]) -> tuple[int, int]:
    """Return what a call returns in a thread of its own, and that thread."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend((call(), threading.get_ident())))
    thread.start()
    thread.join()
    return found[0], found[1]


def test_processors_take_no_thread_of_autograds(device: Any) -> None:
    ran, caller = in_new_thread(lambda: thread_of_backward(place(device)))
    assert (ran == caller) == memory.are_processors(devices())


def test_a_program_may_ask_for_autograds_threads(device: Any) -> None:
    def asking() -> int:
        torch.ones(1, device=place(device))
        with torch.autograd.set_multithreading_enabled(True):
            return thread_of_backward(place(device))

    ran, caller = in_new_thread(asking)
    assert ran != caller


@pytest.mark.parametrize(
    ("kinds", "has_cuda", "expected"),
    [("cpu cpu", False, True), ("cpu gpu", False, False), ("cpu", True, False)],
)
def test_devices_that_run_beside_the_host_keep_threads(
    kinds: str, has_cuda: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Found:
        def __init__(self, kind: str) -> None:
            self.limits = type("Limits", (), {"kind": kind})

    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    found: Any = [Found(kind) for kind in kinds.split()]
    assert memory.are_processors(found) is expected
