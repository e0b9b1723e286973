"""What the choice of a variant costs the host, for problems that no record is of.

    python -m benchmarks choosing benchmarks/data/choice/nvidia_h200_drawn_6.jsonl.gz

The problems of a table are chosen for as dispatch does, by the package's records, guesses and
model, for the device that the table is of: none has to be there. The process is warm, each problem
is new to it, since what families keep of problems is forgotten before each choice, and the least of
the rounds counts, in time of the thread. The shim walks the model's trees, as it does at dispatch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

from ocl_backend.dispatch import walked
from oclgen.family import outlined
from oclgen.keys import parse_key
from oclgen.limits import DeviceInfo, Limits
from oclgen.predictor.model import predict
from oclgen.predictor.products import amounts_of, product_of
from oclgen.problem import Problem
from tuned_db.choosing.chooser import Chooser
from tuned_db.choosing.option import guesses
from tuned_db.files.table import read

PARTS = ("decision", "guesses", "predictions of guesses")


def main(tables: Sequence[Path], rounds: int) -> None:
    """Print for each table the milliseconds of a whole decision and of its two largest parts."""
    for table in tables:
        rows = list(read(table))
        head = rows[0][0]
        problems = [parse_key(key) for key in dict.fromkeys(row.problem for _, row in rows)]
        print(f"{table.name}: {len(problems)} problems, ms of the host")
        for part, ms in zip(PARTS, costs(head.device, head.limits, problems, rounds), strict=True):
            print(f"  {part:24}median {median(ms):.2f}, most {max(ms):.2f}")


def costs(
    info: DeviceInfo, limits: Limits, problems: Sequence[Problem], rounds: int
) -> tuple[list[float], ...]:
    """Return milliseconds for each problem: of a decision, of its guesses, of their predictions.

    Args:
        info: of the device that is chosen for; the package's records count for it.
        limits: of the device.
        problems: each is chosen for in every round.
        rounds: of which the least time counts.
    """
    walked.register()
    chooser = Chooser(None, info, limits)
    offered = {problem: list(guesses(problem, limits)) for problem in problems}
    asked: tuple[Callable[[Problem], object], ...] = (
        lambda problem: next(chooser.candidates(problem), None),
        lambda problem: list(guesses(problem, limits)),
        lambda problem: predict(problem, offered[problem], limits),
    )
    return tuple(_least(ask, problems, rounds) for ask in asked)


def _least(
    ask: Callable[[Problem], object], problems: Sequence[Problem], rounds: int
) -> list[float]:
    least = [float("inf")] * len(problems)
    kept = _kept()
    for turn in range(rounds + 1):  # the first one fills what lasts: the model, texts of variants
        for place, problem in enumerate(problems):
            for each in kept:
                each.cache_clear()
            fresh = replace(problem)
            begin = thread_time()
            ask(fresh)
            if turn:
                least[place] = min(least[place], 1e3 * (thread_time() - begin))
    return least


def _kept() -> list[Any]:
    """Return the bounded caches that know problems: those of families, and what features share."""
    modules = [module for name, module in sys.modules.items() if name.startswith("oclgen.families")]
    found = {
        id(one): one
        for module in modules
        for one in vars(module).values()
        if hasattr(one, "cache_parameters") and one.cache_parameters()["maxsize"]
    }
    return [*found.values(), outlined, amounts_of, product_of]
