"""The time that is left of a tuning, and how much of it the next steps will take.

On a loaded machine everything takes several times as long. So the estimate comes from the last
steps.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

RECENT = 5
"""Trials whose mean tells how long the next one takes."""
ENDING_S = 0.5
"""Processor seconds of a command after its last trial: it prints a table, and processes end."""
STAT = Path("/proc/self/stat")
"""Where Linux tells when a process began."""


@dataclass
class Durations:
    """How long the last trials took, except for the first of all, which also starts processes."""

    _last: deque[float] | None = field(default=None, init=False)

    def note(self, seconds: float) -> None:
        """Take in how long a trial took."""
        if self._last is None:
            self._last = deque(maxlen=RECENT)
        else:
            self._last.append(seconds)

    @property
    def expected(self) -> float:
        """The seconds of the next trial, 0 where nothing tells."""
        return fmean(self._last) if self._last else 0.0


def process_began() -> float:
    """Return the value of `time.monotonic` when this process began; now, where it is not told."""
    now = time.monotonic()
    if sys.platform != "linux":
        return now
    with suppress(OSError, ValueError, IndexError):
        ticks = int(STAT.read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return now - max(age, 0.0)
    return now


def last_moment(
    began: float,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    spent: Callable[[], float] = lambda: sum(os.times()[:4]),
) -> float:
    """Return the value of `clock` at which a tuning stops, so that its command ends in time.

    The end takes as many times its processor time as the beginning took: another's programs take
    the cores away from both.

    Args:
        began: when the command began.
        seconds: that it may take.
        clock: tells the time.
        spent: tells the processor seconds of this process and of its children so far.
    """
    now = clock()
    slowness = max(1.0, (now - began) / max(spent(), 1e-3))
    left = began + seconds - now
    return now + left - min(ENDING_S * slowness, max(left, 0.0) / 2)
