"""Launches whose programs are being built: what makes them ready, and the wait for it.

The shim keeps such launches in order, and what is enqueued behind them (csrc/runtime/deferred.h).
When a value is needed it asks here, by number, for what the first of them waits for. The building
itself is `oclgen.opencl.ahead`'s.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from math import inf
from threading import current_thread, main_thread
from typing import Any

from ocl_backend.runtime import shim
from oclgen.opencl.device import Device

SHOWN_AFTER_S = 1.0
"""Waits that take longer show their progress, in a terminal or a notebook."""
NOTEBOOK = "ipykernel.iostream"
"""Module of the streams of a notebook, which are no terminals and do return to a line's begin."""
APART_S = 0.5
"""Seconds between two waits from which they are not of one step."""

_numbers = count(1)
_completers: dict[int, Callable[[], None]] = {}


def new_number() -> int:
    """Return a number for something that `when_needed` will complete."""
    return next(_numbers)


def when_needed(number: int, complete: Callable[[], None]) -> None:
    """Let `complete` be called when what has this number is needed, until it has succeeded.

    It makes a launch ready, or raises; it may be called by several threads at once.
    """
    _completers[number] = complete


def complete(number: int) -> None:
    """Wait for what has this number, unless it is complete.

    Raises:
        BuildError, LaunchError: its program cannot be built, or has no such kernel.
    """
    completer = _completers.get(number)
    if completer is not None:
        completer()
        is_complete(number)


def is_complete(number: int) -> None:
    """Say that what has this number is complete."""
    _completers.pop(number, None)


def is_pending(number: int) -> bool:
    """Say whether what has this number is not complete."""
    return number in _completers


def program_of(device: Device, future: Future[Any]) -> Any:
    """Return the program of a future, once it is built.

    Raises:
        BuildError: the compiler refused it.
    """
    if future.done():
        return future.result()
    with _progress as progress:
        return device.ahead.wait(future, progress.tell)


class _Progress:
    """Shows in one line how many programs are built, where a person may be waiting.

    A step waits for one program after the other, so that what counts is since when it does.
    """

    def __init__(self) -> None:
        self._begin = self._end = -inf
        self._shown = ""

    def __enter__(self) -> _Progress:
        if (begin := time.monotonic()) - self._end > APART_S:
            self._begin = begin
        return self

    def tell(self, done: int, asked: int) -> None:
        """Hear of progress."""
        if time.monotonic() - self._begin < SHOWN_AFTER_S or not _is_watched():
            return
        if (line := f"building kernels: {done} of {asked}") != self._shown:
            self._clear()
            self._shown = line
            print(line, end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        self._clear()
        self._end = time.monotonic()

    def _clear(self) -> None:
        if self._shown:
            print("\r" + " " * len(self._shown) + "\r", end="", file=sys.stderr, flush=True)
            self._shown = ""


_progress = _Progress()


def _is_watched() -> bool:
    seen = sys.stderr.isatty() or type(sys.stderr).__module__ == NOTEBOOK
    return seen and current_thread() is main_thread()


def _complete(number: int, status: Any) -> None:
    """Complete what the shim needs; tell a status."""
    from ocl_backend.runtime import launch

    try:
        complete(number)
        status[0] = 0
    except BaseException as error:  # an interrupt too: Python drops what leaves a callback
        status[0] = launch.keep(error)


_COMPLETE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.POINTER(ctypes.c_int))(_complete)


def register() -> None:
    """Let the shim ask for what its launches wait for."""
    shim.library().ocl_complete_with(_COMPLETE)


def drop() -> None:
    """Forget what waits, as the process ends: no caller will read what it writes."""
    shim.library().ocl_drop_deferred()
