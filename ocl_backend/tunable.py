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
import sys
import warnings
from collections import Counter
from math import inf
from pathlib import Path
from weakref import WeakKeyDictionary

import torch

import tuned_db
from ocl_backend import tuning
from ocl_backend.dispatch import tuned
from ocl_backend.tuning import State
from oclgen import recording
from oclgen.opencl.device import devices
from oclgen.problem import Problem

__all__ = [
    "background_enable",
    "background_is_enabled",
    "enable",
    "get_background_share",
    "get_filename",
    "get_max_tuning_duration",
    "get_max_tuning_iterations",
    "get_results",
    "get_rotating_buffer_size",
    "get_validators",
    "is_enabled",
    "mgpu_tune_gemm_in_file",
    "read_file",
    "record_untuned_enable",
    "record_untuned_is_enabled",
    "set_background_share",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "set_numerical_check_tolerances",
    "set_rotating_buffer_size",
    "tune_gemm_in_file",
    "tune_in_file",
    "tuning_enable",
    "tuning_is_enabled",
    "write_untuned",
]

_state = State.of_environment()


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
        background.enable(_state.limits.share, _state.limits.budget.trials)
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
    _state.limits.share = share
    if background_is_enabled():
        background_enable()


def get_background_share() -> float:
    """Return the part of the time in which variants may run beside the program."""
    return _state.limits.share


def set_max_tuning_duration(duration: int) -> None:
    """Spend at most `duration` milliseconds on one problem; 0: no limit.

    All counts: waiting while another process measures, and the start of the measuring process.
    """
    _state.limits.duration_ms = _at_least_zero("duration", duration)


def get_max_tuning_duration() -> int:
    """Return the milliseconds one problem may take."""
    return _state.limits.duration_ms


def set_max_tuning_iterations(iterations: int) -> None:
    """Try at most `iterations` variants of one problem."""
    _state.limits.iterations = _at_least_zero("iterations", iterations)


def get_max_tuning_iterations() -> int:
    """Return the variants one problem may try."""
    return _state.limits.iterations


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """Write untuned problems to `filename`; `%d` in it, or the end of its stem, is the device."""
    path = Path(filename)
    marked = path.with_name(f"{path.stem}%d{path.suffix}")
    _state.filename = str(marked) if insert_device_ordinal else filename


def get_filename() -> str:
    """Return the file that untuned problems are written to, with its `%d`."""
    return _state.filename


def set_rotating_buffer_size(buffer_size: int) -> None:
    """Tune with caches that hold none of the data, as torch does with a rotating buffer.

    Before each launch at least 64 MiB, or four times the largest cache, are written elsewhere,
    whatever the size that is given. Times with cold caches are kept apart from warm ones.

    Args:
        buffer_size: MiB; 0: caches are warm.
    """
    _state.limits.rotating_mb = buffer_size


def get_rotating_buffer_size() -> int:
    """Return what was set, in KiB: torch's unit."""
    return 1024 * _state.limits.rotating_mb


def set_numerical_check_tolerances(enable: bool, atol: float = 1e-5, rtol: float = 1e-5) -> None:
    """Tune with variants alone whose error is within `atol + rtol`, and not only the usual bound.

    The error is the relative L2 error against float64. Every variant is checked in any case:
    1e-5 in fp32, 2e-3 in tf32, 4e-3 in fp16, 3e-2 in bf16. One that is beyond the bound given here
    is kept as one that failed.

    Args:
        enable: False: the usual bound alone.
        atol: part of the bound.
        rtol: part of the bound.
    """
    _state.limits.tolerance = atol + rtol if enable else inf


def read_file(filename: str | None = None) -> bool:
    """Take in records that `oclgen db export` wrote, and serve by them; say whether that worked.

    They are claims of others until they are measured here. Results are no file of torch's, since
    they lie in the database: without a name it is read again, as by `torch.ocl.reload_tuned`.

    Args:
        filename: of the records; None: the database.
    """
    if filename is not None:
        try:
            with Path(filename).open("rb") as file:
                records = tuned_db.read_records(filename, file)
        except (OSError, tuned_db.ImportFileError) as error:
            warnings.warn(f"{filename} is not read: {error}", stacklevel=2)
            return False
        tuned_db.open_store().merge(records)
    tuned.reload_tuned()
    return True


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
    _harvest()
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
    calls = recording.load(Path(filename).read_text(encoding="utf-8").splitlines())
    tuning.tune(calls, device, _state.limits)
    tuned.reload_tuned()


def tune_gemm_in_file(filename: str) -> None:
    """Tune the problems of a recording on the current device; convolutions, too.

    Raises:
        RuntimeError: tunable or its tuning is switched off; or as `tune_in_file`.
        RecordingError: a line of the file cannot be read.
    """
    _require_tuning()
    tune_in_file(filename, torch.get_device_module("ocl").current_device())


def mgpu_tune_gemm_in_file(filename_pattern: str, num_gpus: int) -> None:
    """Tune the problems of several recordings on the first devices at once, each problem once.

    Processes of their own take the problems in turns, which needs `pip install 'oclgen[workers]'`
    and a script whose work is below `if __name__ == "__main__":`. Devices of another kind than the
    first tune all problems for themselves. It takes up to the maximal duration for each problem.

    Args:
        filename_pattern: of the recordings, such as "oclgen_untuned*.jsonl".
        num_gpus: devices that are used, from `ocl:0` on.

    Raises:
        RuntimeError: tunable or its tuning is switched off, or the package is missing.
        ValueError: there are fewer devices.
        FileNotFoundError: no file fits the pattern.
        RecordingError: a line of a file cannot be read.
    """
    _require_tuning()
    if not 1 <= num_gpus <= len(devices()):
        raise ValueError(f"num_gpus={num_gpus} must be at least 1 and at most {len(devices())}")
    pattern = Path(filename_pattern)
    paths = sorted(pattern.parent.glob(pattern.name))
    if not paths:
        raise FileNotFoundError(f"no file fits {filename_pattern!r}")
    calls = recording.load(
        line for path in paths for line in path.read_text(encoding="utf-8").splitlines()
    )
    tuning.tune_on_first(num_gpus, calls, _state.limits)
    tuned.reload_tuned()


def _require_tuning() -> None:
    if not (_state.enabled and _state.tuning):
        raise RuntimeError("nothing is tuned: call torch.ocl.tunable.enable() and tuning_enable()")


def _at_least_zero(name: str, value: int) -> int:
    if value < 0:
        raise ValueError(f"{name}={value} must be at least 0")
    return value


def _apply() -> None:
    """Let the dispatch notice what the switches ask for; prepared calls are made anew."""
    _harvest()
    _state.is_counting = _state.enabled and _state.recording
    is_tuning = _state.enabled and _state.tuning
    tuned.tune_when_met(_tune_one if is_tuning else None)
    if not is_tuning:
        tuning.end_sessions()


_seen: WeakKeyDictionary[tuned.TunedCall, int] = WeakKeyDictionary()
"""How often each prepared call had run when they were counted last."""


@tuned.when_forgotten
def _harvest() -> None:
    """Count what ran since the last time: the shim counts all runs, also those that it recalls."""
    for call in tuned.prepared_calls():
        runs = call.runs
        new = runs - _seen.get(call, 0)
        _seen[call] = runs
        if new and _state.is_counting and call.choice.rung != "exact":
            _state.untuned.setdefault(call.device, Counter())[call.choice.problem] += new


def _tune_one(device: int, problem: Problem) -> None:
    """Tune; errors are reported, and the problem runs as it would without tuning."""
    try:
        tuning.tune(Counter([problem]), device, _state.limits)
    except RuntimeError as error:
        warnings.warn(f"{problem.key()} stays untuned: {error}", stacklevel=2)


@atexit.register
def _write_at_exit() -> None:
    if _state.enabled and _state.recording:
        write_untuned()


_apply()
if _state.background:
    background_enable()
