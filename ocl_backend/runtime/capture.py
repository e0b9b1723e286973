"""Whether this thread captures a graph, and how what must not be part of one keeps out of it.

What is made once and kept for later calls (tables of windows, counters) keeps out: a graph's
commands run at its replays alone, and its memory is its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import local

from ocl_backend.runtime import shim

_numbers = count(1)
_thread = local()


def is_capturing() -> bool:
    """Return whether what this thread enqueues goes to a graph."""
    return bool(shim.library().ocl_is_capturing())


def begin() -> None:
    """Note that this thread begins a capture."""
    _thread.number = next(_numbers)


def number() -> int:
    """Return the number of the last capture that this thread began: no other has it."""
    return int(getattr(_thread, "number", 0))


@contextmanager
def aside() -> Iterator[None]:
    """Context, or decorator, in which this thread enqueues although it captures a graph."""
    shim.library().ocl_capture_aside(ctypes.c_int(1))
    try:
        yield
    finally:
        shim.library().ocl_capture_aside(ctypes.c_int(-1))
