"""Tunes problems that a running program has met, within limits; `ocl_backend.tunable` says when.

Variants are measured in processes that know nothing of torch. One process per device stays for the
problems that follow.
"""

from __future__ import annotations

import atexit
import os
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from ocl_backend.runtime import streams
from oclgen.opencl.device import devices
from oclgen.problem import Problem

if TYPE_CHECKING:
    from search_spaces.progress import Budget
    from search_spaces.session import Session

UNLIMITED = 10**6
"""Trials where none are set: more than any space holds."""


PREFIX = "OCLGEN_TUNABLE_"
"""Environment variables: `ENABLED`, `TUNING`, `RECORD_UNTUNED` (0 or 1), `UNTUNED_FILENAME`,
`MAX_TUNING_DURATION_MS`, `MAX_TUNING_ITERATIONS`, `BACKGROUND` (0 or 1), `BACKGROUND_PERCENT`; read
once, when `ocl_backend` is imported."""


def number(name: str, default: int) -> int:
    """Return an environment variable's value.

    Raises:
        ValueError: it is no integer of at least 0.
    """
    text = os.environ.get(PREFIX + name, str(default))
    if not text.isdecimal():
        raise ValueError(f"{PREFIX}{name}={text!r} must be an integer of at least 0")
    return int(text)


@dataclass
class TuningLimits:
    """Limits of tuning one problem.

    `duration_ms` and `iterations` are unlimited where they are 0. `rotating_mb` other than 0 asks
    for times with cold caches. `tolerance` is the largest relative L2 error against float64, where
    it is below the usual one. `share` is the part of the time in which variants may run beside a
    program.
    """

    duration_ms: int
    iterations: int
    share: float = 0.05
    rotating_mb: int = 0
    tolerance: float = inf

    @property
    def budget(self) -> Budget:
        """The same as a tuning takes it; seconds are left out."""
        from search_spaces.progress import Budget

        return Budget(self.iterations or UNLIMITED, cache="cold" if self.rotating_mb else "warm")

    def seconds(self, problems: int) -> float:
        """Return what this number of problems may take together."""
        return self.duration_ms * problems / 1000 or inf


@dataclass
class State:
    """The switches, and what was noticed per device."""

    enabled: bool
    tuning: bool
    recording: bool
    background: bool
    filename: str
    limits: TuningLimits
    untuned: dict[int, Counter[Problem]]
    is_counting: bool = False

    @staticmethod
    def of_environment() -> State:
        """Return the switches as the environment sets them; as torch has it, tuning is on."""
        return State(
            bool(number("ENABLED", 0)),
            bool(number("TUNING", 1)),
            bool(number("RECORD_UNTUNED", 0)),
            bool(number("BACKGROUND", 0)),
            os.environ.get(PREFIX + "UNTUNED_FILENAME", "oclgen_untuned%d.jsonl"),
            TuningLimits(
                number("MAX_TUNING_DURATION_MS", 30_000),
                number("MAX_TUNING_ITERATIONS", 24),
                number("BACKGROUND_PERCENT", 5) / 100,
            ),
            {},
        )


def tune(calls: Counter[Problem], device: int, limits: TuningLimits) -> None:
    """Tune on a device; waiting for it counts, too.

    Args:
        calls: how often each problem is called.
        device: its index.
        limits: for each problem.

    Raises:
        RuntimeError: nothing can be measured, or no variant of a problem works.
        KeyboardInterrupt: the tuning was interrupted; what was measured is kept.
    """
    from search_spaces.progress import shortage

    began = time.monotonic()
    streams.synchronize(device)  # enqueued work would slow the measurements
    session = _session(device)
    session.tolerance = limits.tolerance
    session.ends = began + limits.seconds(len(calls))
    problems = calls if len(calls) > 1 else list(calls)
    with session:
        results = session.tune(problems, limits.budget)
    statuses = {result.status for result in results}
    if "interrupted" in statuses:
        raise KeyboardInterrupt
    if "no variant" in statuses:
        raise RuntimeError("; ".join(str(one) for one in results if one.status == "no variant"))
    if missing := shortage(results, time.monotonic() - began):
        warnings.warn(f"{missing} See set_max_tuning_duration.", stacklevel=2)


def tune_on_first(count: int, calls: Counter[Problem], limits: TuningLimits) -> None:
    """Tune on the first devices at once, by a process for each.

    Args:
        count: of devices.
        calls: how often each problem is called.
        limits: for each problem; its tolerance is not read.

    Raises:
        RuntimeError: the package `pebble` is missing.
    """
    from search_spaces.crews import LocalCrew, kinds_of, spread
    from tuned_db.database.opening import locate

    where = locate(None).render_as_string(hide_password=False)
    ends = time.monotonic() + limits.seconds(len(calls)) / count
    kinds = kinds_of(devices()[:count])
    with LocalCrew(count, frozenset(), where, kinds=kinds) as crew:
        spread(crew, calls, limits.budget, ends, lambda _kind, _result: None)


_sessions: dict[int, Session] = {}
"""By device; each keeps its process to measure in until tuning is switched off."""


def _session(device: int) -> Session:
    """Return the device's session, made with its first problem.

    Its peak is not measured: the program itself is the other work on the device.
    """
    from search_spaces.session import Session

    if device not in _sessions:
        _sessions[device] = Session(devices()[device], with_peak=False, is_resident=True)
    return _sessions[device]


@atexit.register
def end_sessions() -> None:
    """End the processes to measure in; they start again when they are needed."""
    while _sessions:
        _sessions.popitem()[1].close()
