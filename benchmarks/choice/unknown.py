"""Times networks on a device as if it were unknown: without records and instructions of its own.

    python -m benchmarks unknown resnet18,train,64 --device 0

Only OpenCL C, the families' guesses and the model are left, as for a user of another vendor's GPU.
With `--known`, the same steps run with all that is known. With `--background S`, each runs for S
more seconds with tuning beside it, and is timed again, which shows what it gains by itself.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from oclgen import profiles

STEPS, WARM_UP = 12, 5


def main(steps: Sequence[str], device: int, is_known: bool, background_s: float) -> None:
    """Print the seconds of each first step, and the median of later ones in ms.

    Args:
        steps: texts as `resnet18,train,64` or `vgg16,eval,8,bf16`.
        device: index.
        is_known: keep records and instructions.
        background_s: seconds of tuning beside each; 0: none.
    """
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if not is_known:
        os.environ[profiles.VARIABLE] = "unknown"
    if background_s or not is_known:
        os.environ["OCLGEN_DB"] = f"{folder}/empty.sqlite"
    import ocl_backend  # noqa: F401 (registers the device)
    from benchmarks.tasks import networks

    for text in steps:
        name, mode, batch, *dtype = text.split(",")
        # a step ends when its result is at home
        step = networks.step(name, mode, int(batch), f"ocl:{device}", *(dtype or ["fp32"]))
        first = _seconds(step)
        before = _median_ms(step)
        print(f"{text}: first {first:.1f} s, then {before:.2f} ms", flush=True)
        if background_s:
            _with_tuning(step, background_s, before)


def _with_tuning(step: Callable[[], object], seconds: float, before: float) -> None:
    """Run with tuning beside the program, and print how long steps took then and afterwards."""
    from ocl_backend import tunable

    tunable.background_enable()
    begin, ends, times = time.monotonic(), [], []
    while time.monotonic() < begin + seconds:
        times.append(1e3 * _seconds(step))
        ends.append(time.monotonic() - begin)
    tunable.background_enable(False)
    for part in np.array_split(np.arange(len(times)), 6):
        mean = np.mean([times[index] for index in part])
        print(
            f"  until {ends[part[-1]]:.0f} s: mean {mean:.2f} ms, {mean / before:.2f} of before, "
            f"median {median(times[index] for index in part):.2f}",
            flush=True,
        )
    print(f"  afterwards {_median_ms(step):.2f} ms", flush=True)


def _median_ms(step: Callable[[], object]) -> float:
    times = [_seconds(step) for _ in range(WARM_UP + STEPS)]
    return 1e3 * median(times[WARM_UP:])


def _seconds(step: Callable[[], object]) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin
