"""Times networks on a device as if it were unknown: without records and instructions of its own.

    python -m benchmarks unknown resnet18,train,64 --device 0

What is left is OpenCL C, the families' guesses and the model: what a user of another vendor's GPU
meets. With `--known` the same steps run with all that is known.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

STEPS, WARM_UP = 12, 5


def main(steps: Sequence[str], device: int, is_known: bool) -> None:
    """Print the seconds of each first step, and the median of later ones in ms.

    Args:
        steps: texts as `resnet18,train,64` or `vgg16,eval,8,bf16`.
        device: index.
        is_known: keep records and instructions.
    """
    if not is_known:
        _hide(device)
    import ocl_backend  # noqa: F401 (registers the device)
    from benchmarks.tasks import networks

    for text in steps:
        name, mode, batch, *dtype = text.split(",")
        begin = time.perf_counter()
        # a step ends when its result is at home
        step = networks.step(name, mode, int(batch), f"ocl:{device}", *(dtype or ["fp32"]))
        step()
        first = time.perf_counter() - begin
        times = []
        for _ in range(WARM_UP + STEPS):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        print(
            f"{text}: first {first:.1f} s, then {1e3 * median(times[WARM_UP:]):.2f} ms", flush=True
        )


def _hide(device: int) -> None:
    """Forget what is known of the device in this process."""
    from oclgen.opencl.device import devices
    from tuned_db import choose

    target = devices()[device]
    target.limits = replace(target.limits, instructions=frozenset())
    setattr(choose, "shipped_records", tuple)  # noqa: B010 (a function without arguments)
    folder = tempfile.mkdtemp()
    os.environ["OCLGEN_DB"] = f"{folder}/empty.sqlite"
    atexit.register(shutil.rmtree, folder)
