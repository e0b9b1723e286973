"""Times networks on a device that pulls what a relative's owner has measured.

    python -m benchmarks pulled resnet18,train,64 mobilenet_v2,eval,64 --device 0

A service holds the package's records of this device's architecture under another device's name. The
device has no records of its own, in the package or a database. It pulls, and its steps are compared
with those by its own records, and with those by the model alone. The modes take turns, each turn in
a process of its own, so that a busy moment meets one turn alone. Own records are the package's, or
those that `--tune S` makes first, in S seconds for each step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import geometric_mean, median

from rich.console import Console
from rich.table import Table

from benchmarks.costs.service_load import Service

MODES = ("model alone", "pulled", "own records")
STEPS, WARM_UP, TURNS = 12, 5, 3

Turn = list[tuple[float, float]]
"""Of each step: seconds of the first one, and the median of later ones in ms."""


def main(steps: Sequence[str], device: int, tune_s: float) -> None:
    """Print how long the pull and the first steps took, and the medians of later steps.

    Args:
        steps: texts as `resnet18,train,64` or `vgg16,eval,8,bf16`.
        device: index.
        tune_s: seconds of tuning of each step; 0: none.
    """
    from oclgen.opencl.device import devices

    found: dict[str, list[Turn]] = {}
    with tempfile.TemporaryDirectory() as folder:
        _fill(f"{folder}/service.sqlite", devices()[device].info.architecture)
        service = Service(f"{folder}/service.sqlite", workers=1)
        try:
            begin = time.perf_counter()
            _command("-m", "oclgen_cli", "db", "pull", service.url, "--db", f"{folder}/{MODES[1]}")
            pull_s = time.perf_counter() - begin
        finally:
            service.stop()
        for step in steps if tune_s else ():
            _tune(step, device, tune_s, f"{folder}/{MODES[2]}")
        for mode in MODES * TURNS:
            os.environ["OCLGEN_DB"] = f"{folder}/{mode}"
            turn = json.loads(_command("-m", __name__, mode, str(device), *steps))
            found.setdefault(mode, []).append(turn)
    _print(steps, pull_s, found)


def _fill(place: str, architecture: str) -> None:
    """Make a database of the package's records of an architecture, under another device's name."""
    from tuned_db import open_store
    from tuned_db.records.shipped import shipped_records

    records = [
        replace(one, device=replace(one.device, name=f"A relative of {one.device.name}"))
        for one in shipped_records()
        if one.device.architecture == architecture
    ]
    open_store(place).merge(records)


def _tune(step: str, device: int, seconds: float, place: str) -> None:
    name, kind, batch, *dtype = step.split(",")
    _command(
        "-m", "oclgen_cli", "tune", "--model", f"torchvision:{name}", "--batch", batch,
        "--dtype", *(dtype or ["fp32"]), *(["--train"] if kind == "train" else []),
        "--time-budget", str(seconds), "--device", str(device), "--db", place,
    )  # fmt: skip


def _command(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def _print(steps: Sequence[str], pull_s: float, found: dict[str, list[Turn]]) -> None:
    table = Table("step", *(f"{mode}, ms" for mode in MODES), "own / pulled", "first step, s")
    ratios = []
    for index, step in enumerate(steps):
        times = [median(turn[index][1] for turn in found[mode]) for mode in MODES]
        ratios.append(times[2] / times[1])
        first_s = found["pulled"][0][index][0]
        table.add_row(step, *(f"{ms:.2f}" for ms in times), f"{ratios[-1]:.3f}", f"{first_s:.1f}")
    Console(width=110).print(table)
    print(f"the pull took {pull_s:.1f} s; pulled records reach {geometric_mean(ratios):.3f} of own")


def _timed(mode: str, device: int, steps: Sequence[str]) -> Turn:
    """Time the steps in this process."""
    if mode != MODES[2]:
        from tuned_db.records import shipped

        shipped.has_shipped = bool  # as if none came with the package
    import ocl_backend  # noqa: F401 (registers the device)
    from benchmarks.tasks import networks

    found = []
    for text in steps:
        name, kind, batch, *dtype = text.split(",")
        # a step ends when its result is at home
        step = networks.step(name, kind, int(batch), f"ocl:{device}", *(dtype or ["fp32"]))
        seconds = []
        for _ in range(WARM_UP + STEPS):
            begin = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - begin)
        found.append((seconds[0], 1e3 * median(seconds[WARM_UP:])))
    return found


if __name__ == "__main__":
    print(json.dumps(_timed(sys.argv[1], int(sys.argv[2]), sys.argv[3:])))
