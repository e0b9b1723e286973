"""Processes that make each case's call once, and so leave kernels in the driver's cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from queue import SimpleQueue
from typing import Any

from benchmarks.comparison.sides import Side, SideError
from benchmarks.comparison.suite import LONGEST_S
from benchmarks.timing import Prepare, Prepared

Once = Callable[[Any, str], None]
"""Make a case's call on a device; a function of a module."""


def build(
    once: Once, cases: Sequence[Any], device: str, processes: int, seconds: float = inf
) -> None:
    """Make every call once.

    A call that fails here fails in the measured run, which reports it; so does one that ends its
    process, which begins again.

    Args:
        once: makes a call.
        cases: whose calls are made.
        device: index or part of the name.
        processes: each makes the next call when it has made one.
        seconds: after them processes are ended.
    """
    sides = [Side("builder", _start, once, device) for _ in range(processes)]
    free: SimpleQueue[Side] = SimpleQueue()
    for side in sides:
        free.put(side)
    make = partial(_make, free, time.monotonic() + seconds)
    with ThreadPoolExecutor(processes) as threads:
        list(threads.map(make, cases))
    for side in sides:
        side.close()


def _make(free: SimpleQueue[Side], end: float, case: Any) -> None:
    """Let a free process make a call, if it can begin before `end`."""
    side, left = free.get(), end - time.monotonic()
    with suppress(SideError):
        if left > 0:
            side.prepare("build", {"case": case}, min(left, LONGEST_S))
    free.put(side)


def _start(once: Once, device: str) -> Prepare:
    import torch

    import ocl_backend  # noqa: F401  (registers the device)
    from oclgen.opencl.device import select

    where = f"ocl:{select(device).index}"

    def prepare(kind: str, what: dict[str, Any]) -> Prepared:
        once(what["case"], where)
        torch.get_device_module("ocl").synchronize()
        return Prepared({}, {})

    return prepare
