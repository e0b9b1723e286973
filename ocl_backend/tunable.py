"""`torch.ocl.tunable`: notice untuned problems while an application runs, and tune them.

Named and shaped like `torch.cuda.tunable`. Tuned records serve whether or not it is enabled: it
governs what happens to problems without one. Variants are measured in a process that knows nothing
of torch and stays for the next problem.

    torch.ocl.tunable.enable()
    torch.ocl.tunable.tuning_enable(False)
    torch.ocl.tunable.record_untuned_enable()
    model(images)
    torch.ocl.tunable.write_untuned()  # as at exit
    torch.ocl.tunable.tune_in_file("oclgen_untuned0.jsonl")

Or beside a running program, which gets faster by itself:

    torch.ocl.tunable.background_enable()
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from ocl_backend.dispatch import tuned
from ocl_backend.runtime import streams
from oclgen import recording
from oclgen.opencl.device import devices
from oclgen.problem import Problem

if TYPE_CHECKING:
    from search_spaces.session import Session

__all__ = [
    "background_enable",
    "background_is_enabled",
    "enable",
    "get_background_share",
    "get_filename",
    "get_max_tuning_duration",
    "get_max_tuning_iterations",
    "get_results",
    "get_validators",
    "is_enabled",
    "record_untuned_enable",
    "record_untuned_is_enabled",
    "set_background_share",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "tune_in_file",
    "tuning_enable",
    "tuning_is_enabled",
    "write_untuned",
]

PREFIX = "OCLGEN_TUNABLE_"
"""Environment variables: `ENABLED`, `TUNING`, `RECORD_UNTUNED` (0 or 1), `UNTUNED_FILENAME`,
`MAX_TUNING_DURATION_MS`, `MAX_TUNING_ITERATIONS`, `BACKGROUND` (0 or 1), `BACKGROUND_PERCENT`; read
once, when `ocl_backend` is imported."""


UNLIMITED = 10**6
"""Trials where none are set: more than any space holds."""


def _number(name: str, default: int) -> int:
    """Return an environment variable's value.

    Raises:
        ValueError: it is no integer of at least 0.
    """
    text = os.environ.get(PREFIX + name, str(default))
    if not text.isdecimal():
        raise ValueError(f"{PREFIX}{name}={text!r} must be an integer of at least 0")
    return int(text)


@dataclass
class _State:
    """The switches, and what was noticed per device."""

    enabled: bool
    tuning: bool
    recording: bool
    filename: str
    duration_ms: int
    iterations: int
    share: float
    untuned: dict[int, Counter[Problem]]

    @staticmethod
    def of_environment() -> _State:
        """Return the switches as the environment sets them; as torch has it, tuning is on."""
        return _State(
            bool(_number("ENABLED", 0)),
            bool(_number("TUNING", 1)),
            bool(_number("RECORD_UNTUNED", 0)),
            os.environ.get(PREFIX + "UNTUNED_FILENAME", "oclgen_untuned%d.jsonl"),
            _number("MAX_TUNING_DURATION_MS", 30_000),
            _number("MAX_TUNING_ITERATIONS", 24),
            _number("BACKGROUND_PERCENT", 5) / 100,
            {},
        )


_state = _State.of_environment()


def enable(val: bool = True) -> None:
    """Switch recording and tuning of untuned problems on or off, as the two others say."""
    _state.enabled = val
    _apply()


def is_enabled() -> bool:
    """Return whether untuned problems are recorded or tuned at all."""
    return _state.enabled


def tuning_enable(val: bool = True) -> None:
    """Tune a problem when it is first met, which takes up to the maximal duration."""
    _state.tuning = val
    _apply()


def tuning_is_enabled() -> bool:
    """Return whether problems are tuned when first met."""
    return _state.tuning


def record_untuned_enable(val: bool = True) -> None:
    """Count the calls of untuned problems, to be tuned later from the file they are written to."""
    _state.recording = val
    _apply()


def record_untuned_is_enabled() -> bool:
    """Return whether calls of untuned problems are counted."""
    return _state.recording


def background_enable(val: bool = True) -> None:
    """Tune untuned problems while the program runs, or no longer.

    Variants run where the program has waited for the device, for at most the share of time that is
    set; the program waits meanwhile. Winners are kept in the user's database and serve from the
    next such moment on, so that results may change in their last bits while the program runs:
    under `torch.use_deterministic_algorithms(True)` nothing is measured, and nothing changes.
    A problem is tried with at most `get_max_tuning_iterations()` variants.

    Raises:
        ValueError: the share of time is 0 or more than a half.
    """
    from ocl_backend import background

    if val:
        background.enable(_state.share, _state.iterations or UNLIMITED)
    else:
        background.disable()


def background_is_enabled() -> bool:
    """Return whether untuned problems are tuned while the program runs."""
    module = sys.modules.get("ocl_backend.background")
    return module is not None and bool(module.is_enabled())


def set_background_share(share: float) -> None:
    """Let variants run for at most this part of the time; 0.05 at first.

    Raises:
        ValueError: it is 0 or more than a half.
    """
    if not 0 < share <= 0.5:
        raise ValueError(f"share={share} must be above 0 and at most 0.5")
    _state.share = share
    if background_is_enabled():
        background_enable()


def get_background_share() -> float:
    """Return the part of the time in which variants may run beside the program."""
    return _state.share


def set_max_tuning_duration(duration: int) -> None:
    """Spend at most `duration` milliseconds on one problem; 0: no limit.

    All counts: waiting while another process measures, and the start of the measuring process.
    """
    _state.duration_ms = _at_least_zero("duration", duration)


def get_max_tuning_duration() -> int:
    """Return the milliseconds one problem may take."""
    return _state.duration_ms


def set_max_tuning_iterations(iterations: int) -> None:
    """Try at most `iterations` variants of one problem."""
    _state.iterations = _at_least_zero("iterations", iterations)


def get_max_tuning_iterations() -> int:
    """Return the variants one problem may try."""
    return _state.iterations


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """Write untuned problems to `filename`; `%d` in it, or the end of its stem, is the device."""
    path = Path(filename)
    marked = path.with_name(f"{path.stem}%d{path.suffix}")
    _state.filename = str(marked) if insert_device_ordinal else filename


def get_filename() -> str:
    """Return the file that untuned problems are written to, with its `%d`."""
    return _state.filename


def get_validators() -> tuple[tuple[str, str], ...]:
    """Return what a record must agree with to serve at rung `exact`: each device's driver.

    Versions are no part of it: a record must be of the kernels that are generated today, which its
    digest tells.
    """
    return tuple((f"DRIVER_{d.index}", f"{d.name}: {d.info.driver_version}") for d in devices())


def get_results() -> tuple[tuple[str, str, str, float], ...]:
    """Return (operator, problem, family, milliseconds) of every tuned problem met so far."""
    rows = {
        (call.operator, call.choice.problem.key(), call.choice.variant.family, call.choice.ms)
        for call in tuned.prepared_calls()
        if call.choice.rung == "exact"
    }
    return tuple(sorted((op, key, family, ms or 0.0) for op, key, family, ms in rows))


def write_untuned() -> list[Path]:
    """Write the calls counted so far, a file per device, and return the files."""
    written = []
    for device, calls in _state.untuned.items():
        path = Path(_state.filename.replace("%d", str(device)))
        recording.dump(calls, path)
        written.append(path)
    return written


def tune_in_file(filename: str, device: int = 0) -> None:
    """Tune the problems of a recording on `device`, as `oclgen tune --recorded` does.

    It takes up to the maximal duration for each.

    Raises:
        RuntimeError: nothing can be measured, or no variant of a problem works.
        RecordingError: a line of the file cannot be read.
    """
    calls = recording.load(Path(filename).read_text().splitlines())
    _tune(calls, device)
    tuned.reload_tuned()


def _at_least_zero(name: str, value: int) -> int:
    if value < 0:
        raise ValueError(f"{name}={value} must be at least 0")
    return value


def _apply() -> None:
    """Let the dispatch notice what the switches ask for; prepared calls are made anew."""
    tuned.observe(_count, _state.enabled and _state.recording)
    is_tuning = _state.enabled and _state.tuning
    tuned.tune_when_met(_tune_one if is_tuning else None)
    if not is_tuning:
        _end_sessions()


def _count(call: tuned.TunedCall) -> None:
    if call.choice.rung != "exact":
        _state.untuned.setdefault(call.device, Counter())[call.choice.problem] += 1


def _tune_one(device: int, problem: Problem) -> None:
    """Tune; what goes wrong is told, and the problem runs as it would without."""
    try:
        _tune(Counter([problem]), device)
    except RuntimeError as error:
        warnings.warn(f"{problem.key()} stays untuned: {error}", stacklevel=2)


def _tune(calls: Counter[Problem], device: int) -> None:
    """Tune within the limits that are set, which count waiting for the device, too.

    Raises:
        RuntimeError: nothing can be measured, or no variant of a problem works.
        KeyboardInterrupt: the tuning was interrupted; what was measured is kept.
    """
    from search_spaces.progress import Budget, shortage

    began = time.monotonic()
    streams.synchronize(device)  # what is enqueued would slow what is measured
    session = _session(device)
    session.ends = began + (_state.duration_ms * len(calls) / 1000 or inf)
    problems = calls if len(calls) > 1 else list(calls)
    with session:
        results = session.tune(problems, Budget(_state.iterations or UNLIMITED))
    statuses = {result.status for result in results}
    if "interrupted" in statuses:
        raise KeyboardInterrupt
    if "no variant" in statuses:
        raise RuntimeError("; ".join(str(one) for one in results if one.status == "no variant"))
    if missing := shortage(results, time.monotonic() - began):
        warnings.warn(f"{missing} See set_max_tuning_duration.", stacklevel=2)


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
def _end_sessions() -> None:
    while _sessions:
        _sessions.popitem()[1].close()


@atexit.register
def _write_at_exit() -> None:
    if _state.enabled and _state.recording:
        write_untuned()


_apply()
if _number("BACKGROUND", 0):
    background_enable()
