"""Times choices against their rivals, by turns on a device.

    python -m benchmarks worst benchmarks/data/choice/intel_xeon.jsonl.gz --device 0
    python -m benchmarks versus ../before --device 0 --seed 20261127

`worst` takes the worst choices of tables, for problems that the model has not seen, and the variant
that the table claims to be the best: it says which of these losses a device shows. `versus` takes
what this version and another checkout choose for drawn problems. Every variant is verified first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.choice.cases import Case, cases_of
from benchmarks.choice.draw import problems as drawn
from benchmarks.choice.evaluate import folds, geometric_mean, judged, left_out
from benchmarks.choice.turns import Ready
from oclgen.keys import parse_key
from oclgen.measuring.worker import Worker
from oclgen.opencl.device import Device, select
from oclgen.problem import Problem
from oclgen.variant import Variant

TURNS = 12
CHOOSE = """
import sys
from oclgen.keys import parse_key
from oclgen.opencl.device import select
from tuned_db.choosing.chooser import Chooser, NoVariantError
device = select(sys.argv[1])
chooser = Chooser(None, device.info, device.limits)
for line in sys.stdin:
    try:
        print(chooser.choose(parse_key(line.strip())).variant.to_text())
    except NoVariantError:
        print()
"""
"""What a checkout runs, whose modules come first in the path of its process. It prints an empty
line for a problem that dispatch copies to another layout first."""


@dataclass(frozen=True)
class Duel:
    """A choice and its rival: of equal ones no time is taken, and `gain` is 1.

    Attributes:
        problem: what both compute.
        choice: what was chosen.
        rival: what it is compared with.
        claimed: time of the choice over the rival's as it was known before.
        ms: least time of the choice.
        gain: the time of the choice over the rival's, the median of all turns. Neighbours in a turn
            meet the same load; of long kernels, whose turns are two launches, the least of all
            times is luck.
        turns: the same in each turn.
    """

    problem: Problem
    choice: Variant
    rival: Variant
    claimed: float = 1.0
    ms: float = float("nan")
    gain: float = 1.0
    turns: tuple[float, ...] = ()


def worst(paths: Sequence[Path], device: str, below: float) -> None:
    """Print for each bad choice of tables what this device says of it.

    Args:
        paths: the tables.
        device: index or part of a name.
        below: quality below which a choice is bad.
    """
    cases = [case for path in paths for case in cases_of(path) if len(case.ms) > 1]
    scores = left_out(cases, folds([case.problem for case in cases]))
    target = select(device)
    pairs = [
        Duel(case.problem, *_pair(case, each), 1 / judged(case, each))
        for case, each in zip(cases, scores, strict=True)
        if judged(case, each) < below
    ]
    found = list(_fought(target, pairs))
    _print(found, "the best", "claimed")
    real = [one for one in found if one.gain > 1 / below]
    print(
        f"{target.info.name}: {len(real)} of {len(found)} choices below {below:g} are so here, "
        f"too; claimed to be {_mean(one.claimed for one in found):.2f} times as slow as the best, "
        f"they are {_mean(one.gain for one in found):.2f} times"
    )


def versus(
    before: Path, device: str, seed: int, count: int, dtype: str = "", convolutions: bool = False
) -> None:
    """Print how long the choices of another checkout take, relative to those of this one.

    Args:
        before: the other checkout's folder.
        device: index or part of a name.
        seed: draws the problems.
        count: how many.
        dtype: of all problems; "": any.
        convolutions: draw no products.
    """
    target = select(device)
    problems = drawn(seed, count, target.limits, dtype, convolutions)
    asked = [problem.key() for problem in problems]
    here = Path(__file__).parents[2]
    ours, theirs = (_chosen(folder, device, asked) for folder in (here, before))
    pairs = [
        Duel(parse_key(key), rival, own)
        for key, own, rival in zip(asked, ours, theirs, strict=True)
        if own is not None and rival is not None
    ]
    found = list(_fought(target, pairs))
    differing = [one for one in found if one.choice != one.rival]
    _print(differing, "the choice now", "")
    gains = [one.gain for one in differing] or [1.0]
    print(
        f"{target.info.name}, seed {seed}: {len(differing)} of {len(found)} choices differ; there "
        f"they are {geometric_mean(gains):.3f} times as fast ({min(gains):.2f} to {max(gains):.2f},"
        f" {sum(gain < 0.98 for gain in gains)} slower by more than 2 %), over all "
        f"{_mean(one.gain for one in found):.3f}"
    )


def _pair(case: Case, scores: np.ndarray) -> tuple[Variant, Variant]:
    return case.variants[int(scores.argmin())], case.variants[int(case.ms.argmin())]


def _chosen(folder: Path, device: str, keys: Sequence[str]) -> list[Variant | None]:
    """Return what the version in a folder chooses, without records of the device."""
    path = os.pathsep.join([str(folder.resolve()), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", CHOOSE, device],
        input="\n".join(keys),
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Variant.from_text(line) if line else None for line in done.stdout.splitlines()]


def _fought(device: Device, duels: Sequence[Duel]) -> Iterator[Duel]:
    with Worker(device.index, device.info) as worker:
        for one in track(duels, "timing"):
            if one.choice == one.rival:
                yield one
            elif all(worker.measure(one.problem, each).ok for each in (one.choice, one.rival)):
                pair = (one.choice, one.rival)
                times = Ready(device, one.problem, pair, worker.seed).turns(TURNS)
                device.programs.forget()
                yield _judged(one, *map(np.array, times))


def _judged(one: Duel, choice: np.ndarray, rival: np.ndarray) -> Duel:
    ratios = tuple(float(each) for each in choice / rival)
    return replace(one, ms=float(choice.min()), gain=float(np.median(ratios)), turns=ratios)


def _print(found: Sequence[Duel], rival: str, claimed: str) -> None:
    table = Table("problem", "choice", rival, "ms", "turns", claimed, "gain")
    for one in sorted(found, key=lambda one: one.gain):
        table.add_row(
            one.problem.key(), one.choice.to_text(), one.rival.to_text(), f"{one.ms:.3f}",
            f"{np.quantile(one.turns, 0.25):.2f} to {np.quantile(one.turns, 0.75):.2f}",
            f"{one.claimed:.2f}" if claimed else "", f"{one.gain:.2f}",
        )  # fmt: skip
    Console(width=200).print(table)


def _mean(values: Iterable[float]) -> float:
    return geometric_mean(list(values) or [1.0])
