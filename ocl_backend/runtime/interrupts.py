"""Ctrl-C while the shim calls Python: it is met behind that call, whose work ends whole."""

from __future__ import annotations

import signal
from threading import current_thread, main_thread
from typing import Any

from ocl_backend.runtime import shim


class Later:
    """Has the shim note a Ctrl-C, for behind what it asked for; a second one ends that."""

    def __enter__(self) -> None:
        self.before: Any = None
        if current_thread() is main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self.before = signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self.before)
        shim.library().ocl_note_interrupt()

    def __exit__(self, *_: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
