"""Times what a race beside a program gains, on problems without a record that a seed draws.

    python -m benchmarks race --problems 30 --seed 20261123

The device has no records of its own; with `--unknown` it also has none of the package and no
instructions beyond OpenCL C. Each problem is raced as in a program. Then all participants run in
turns again, so that the times that decided the race do not judge it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from math import exp, log
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track
from rich.table import Table

from oclgen import profiles

if TYPE_CHECKING:
    from ocl_backend.dispatch.tuned import TunedCall

TURNS = 15
"""Times of either variant, one after the other; the median of their ratios is the gain."""


@dataclass(frozen=True)
class Raced:
    """The result of a race.

    Attributes:
        problem: its key.
        raced: variants that took part.
        ms: median time of what served before.
        gain: time of that over the winner's, as medians of turns.
        most: the same for the fastest of those that took part.
        build_s: seconds until the rivals were built.
        race_s: seconds of the race itself, in which a program waits.
    """

    problem: str
    raced: int
    ms: float
    gain: float
    most: float
    build_s: float
    race_s: float


def main(device: int, seed: int, count: int, is_unknown: bool) -> None:
    """Print a line for each problem, and the geometric means.

    Args:
        device: index.
        seed: draws the problems.
        count: how many.
        is_unknown: without records of the package and instructions beyond OpenCL C.
    """
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if is_unknown:
        os.environ[profiles.VARIABLE] = "unknown"
    os.environ["OCLGEN_DB"] = f"{folder}/empty.sqlite"
    import ocl_backend  # noqa: F401 (registers the device)
    from benchmarks.choice.draw import problems
    from ocl_backend.dispatch.tuned import tuned_call
    from oclgen.opencl.device import devices

    target = devices()[device]
    drawn = problems(seed, count, target.limits)
    found = [_raced(tuned_call("race", device, one)) for one in track(drawn, "racing")]
    table = Table("problem", "raced", "before, ms", "gain", "most", "build s", "race s")
    for one in sorted(found, key=lambda one: one.gain):
        table.add_row(
            one.problem, str(one.raced), f"{one.ms:.3f}", f"{one.gain:.2f}", f"{one.most:.2f}",
            f"{one.build_s:.2f}", f"{one.race_s:.2f}",
        )  # fmt: skip
    Console(width=140).print(table)
    gains = [one.gain for one in found]
    print(
        f"{target.info.name}, {target.info.runtime}: {len(found)} problems, "
        f"{sum(gain != 1.0 for gain in gains)} of them served by a rival afterwards; gain "
        f"{_mean(gains):.3f}, least {min(gains):.2f}, most {max(gains):.2f}; the fastest raced "
        f"would reach {_mean([one.most for one in found]):.3f}; a race took "
        f"{sum(one.race_s for one in found) / len(found):.2f} s, its builds "
        f"{sum(one.build_s for one in found) / len(found):.2f} s beside the program"
    )


def _raced(call: TunedCall) -> Raced:
    from ocl_backend.dispatch.racing import Race, Scratch, seconds

    call.alone(call.choice)  # what serves is built by the first call
    begin = time.monotonic()
    race = Race(call)
    while not race.is_ready():
        time.sleep(0.01)
    built = time.monotonic()
    try:
        winner, _ = race.run(seconds)
    except TimeoutError:
        winner = call.choice
    ended = time.monotonic()
    scratch = Scratch(call.device, call.problem)
    runs = {one: partial(call.alone(one), *scratch.pointers) for one in race.choices}
    turns = [
        {one: seconds(call.device, one, run) for one, run in runs.items()} for _ in range(TURNS)
    ]
    gains = {one: median(turn[call.choice] / turn[one] for turn in turns) for one in runs}
    ms = 1e3 * median(turn[call.choice] for turn in turns)
    key, raced = call.problem.key(), len(runs)
    return Raced(key, raced, ms, gains[winner], max(gains.values()), built - begin, ended - built)


def _mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return exp(sum(map(log, values)) / len(values))
