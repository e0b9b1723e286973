"""How both sides of a benchmark time a call, and how a side passes its calls to be timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

STEP_S = 0.5
"""Seconds of a turn of a network's steps."""
LONG_MS = 2000.0
"""A step that takes longer than this gets one warm-up call, a shorter one gets two."""
BURST_MS = 4.0
"""Milliseconds of the calls of a burst."""
MOST = 50
"""Samples of a turn and calls of a burst, at most."""

Call = Callable[[], object]
"""A call to be timed."""
Samples = Callable[[], list[float]]
"""One turn: some times in milliseconds."""
Clock = Callable[[Call], float]
"""The milliseconds of a call."""


class Prepared(NamedTuple):
    """What a side has ready for a task: notes on it, and the turns that can be timed, by name."""

    notes: dict[str, Any]
    contestants: dict[str, Samples]


Prepare = Callable[[str, dict[str, Any]], Prepared]
"""Make ready for a task of a kind, which its values describe."""


def calls(run: Call, clock: Clock, seconds: float) -> Samples:
    """Return a turn that calls `run`, warm now, for `seconds`, at least five times.

    Args:
        run: is called twice now.
        clock: times one call, in ms.
        seconds: that a turn takes, or five calls.
    """
    for _ in range(2):
        clock(run)
    return partial(_timed, run, clock, seconds, 5)


def steps(run: Call, clock: Clock) -> Samples:
    """Return the turn of a network's step, which is warm now: one, and more of short ones."""
    if clock(run) < LONG_MS:
        clock(run)
    return partial(_timed, run, clock, STEP_S, 1)


def bursts(run: Call, wait: Callable[[], None] | None, seconds: float) -> Samples:
    """Return a turn of samples that are means of calls without a wait in between.

    A sample of calls that are short on the device has no wait of the host for each of them.

    Args:
        run: is called three times now.
        wait: for the accelerator.
        seconds: that a turn takes, or five samples.
    """
    for _ in range(2):
        wall_ms(run, wait)
    count = max(1, min(MOST, round(BURST_MS / max(wall_ms(run, wait), 1e-3))))

    def burst() -> None:
        for _ in range(count):
            run()

    return lambda: [ms / count for ms in _timed(burst, partial(wall_ms, wait=wait), seconds, 5)]


def wall_ms(run: Call, wait: Callable[[], None] | None) -> float:
    """Return the milliseconds of one call by the host's clock, the accelerator waited for."""
    begin = time.perf_counter()
    run()
    if wait:
        wait()
    return (time.perf_counter() - begin) * 1e3


def _timed(run: Call, clock: Clock, seconds: float, least: int) -> list[float]:
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < least or (len(samples) < MOST and time.perf_counter() < end):
        samples.append(clock(run))
    return samples
