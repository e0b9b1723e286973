"""How well variants are chosen for problems that the model has not seen, on measured tables.

    python -m benchmarks choice benchmarks/data/choice/*.jsonl.gz

Each problem is left out in turn, in `FOLDS` parts, and each device; the quality of a choice is the
best time over the time of what is chosen among the table's variants. Where the table keeps the
times of several turns, a second measure leaves out what noise adds to it. Where all guesses were
measured that dispatch offers today, a choice among these alone is judged, too. Problems that are
hardly apart are left out together, on whatever device they were measured: one would tell the
other's answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.choice.cases import Case, cases_of
from benchmarks.choice.draw import offered
from benchmarks.choice.fit import fit
from oclgen.predictor.model import Model
from oclgen.problem import Problem
from tuned_db.choosing.nearest import kind_of, place_of

FOLDER = Path(__file__).parents[1] / "data/choice"
TABLES = sorted(FOLDER.glob("*.jsonl.gz"))
"""The tables that the shipped models are made of."""
FOLDS = 5
APART = 1.0
"""Distance up to which problems are left out together: a factor of two in one of their sizes."""
INSTRUCTIONS = ("async", "mma", "tma")
"""In the names of families that ask for more than OpenCL C."""
LEAST, HALVES = "least time", "halves"
"""Measures of a choice: `quality` by the least of all times, `split_quality` by halves of turns."""
OFFERED = "halves, of guesses"
"""The second where a choice is among dispatch's own guesses alone, and all of these were measured;
the best is that of all variants."""
FLOOR = 0.6
"""Quality below which a choice is bad."""
Scores = NDArray[np.float32]
"""A number for each variant of a case; the least is chosen."""


def left_out(cases: Sequence[Case], groups: Sequence[object]) -> list[Scores]:
    """Return predictions for each case by a model of the cases of all other groups."""
    known = list(zip(cases, groups, strict=True))
    models = {
        each: fit([case for case, other in known if other != each])
        for each in dict.fromkeys(groups)
    }
    return [_scores(models[each], case) for each, case in zip(groups, cases, strict=True)]


def _scores(model: Model, case: Case) -> Scores:
    """Return log2 of the predicted times."""
    rows = [model.row(v, f) for v, f in zip(case.variants, case.features, strict=True)]
    return model.excess(rows) + np.log2(case.least_ms)


def quality(case: Case, scores: Scores, raced: int = 1) -> float:
    """Return the best time over that of the fastest of the `raced` variants of least score.

    Args:
        case: a problem with measured variants.
        scores: one per variant.
        raced: how many of least score run in turns.
    """
    order = np.argsort(scores, kind="stable")[:raced]
    return float(case.ms.min() / case.ms[order].min())


def split_quality(case: Case, scores: Scores, raced: int = 1) -> float:
    """Return the quality of a choice in which the noise of times does not count against it.

    The least of many noisy times is less than the time of any variant, and so no choice reaches it
    (the optimizer's curse: Smith and Winkler 2006). Here one half of the turns picks the best
    variant, and the fastest of those that are raced; the other half times both, as in the double
    estimator (van Hasselt 2010). The halves then change places, and the mean counts. Among equal
    variants it is 1 in the mean, and above 1 at times; a choice that is wrong loses as before.

    Args:
        case: a problem whose variants were timed in turns.
        scores: one per variant.
        raced: how many of least score run in turns.
    """
    assert case.halves is not None
    order = np.argsort(scores, kind="stable")[:raced]
    ratios = [
        times[picks.argmin()] / times[order[picks[order].argmin()]]
        for picks, times in (case.halves, case.halves[::-1])
    ]
    return geometric_mean(ratios)


def plain(case: Case) -> Case:
    """Return a case without variants that need instructions beyond OpenCL C."""
    return case.only(
        [
            index
            for index, variant in enumerate(case.variants)
            if not any(word in variant.to_text() for word in INSTRUCTIONS)
        ]
    )


def of_dispatch(case: Case, scores: Scores) -> Scores | None:
    """Return the scores with all variants set to infinity that dispatch does not offer by now.

    None is returned where not all that it offers were measured, or failed: what it would choose is
    not known there.

    Args:
        case: a problem with measured variants.
        scores: one per variant.
    """
    asked = offered(case.problem, case.head.limits)
    if not asked or not case.tried.issuperset(asked):
        return None
    is_offered = np.array([variant in asked for variant in case.variants])
    return np.where(is_offered, scores, np.float32(np.inf)) if is_offered.any() else None


def mean_quality(model: Model, cases: Sequence[Case]) -> float:
    """Return the geometric mean over cases that the model may have seen, each `judged`."""
    return geometric_mean([judged(case, _scores(model, case)) for case in cases])


def judged(case: Case, scores: Scores) -> float:
    """Return the quality of a choice by halves where the table keeps turns, else by least times."""
    return (quality if case.halves is None else split_quality)(case, scores)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return float(np.exp(np.mean(np.log(values))))


def main(paths: Sequence[Path]) -> None:
    """Print the table of qualities, and by which measure each table can be judged."""
    read = {path: [case for case in cases_of(path) if len(case.ms) > 1] for path in paths}
    for path, found in read.items():
        turned = sum(case.halves is not None for case in found)
        how = f"{LEAST}, and {HALVES} for {turned}" if turned else f"{LEAST} alone"
        print(f"{path.name}: {len(found)} problems, judged by {how}")
    cases = [case for found in read.values() for case in found]
    table = Table(
        "device", "left out", "measure", "problems", "raced", "mean", "worst tenth", "worst",
        f"below {FLOOR:g}",
    )  # fmt: skip
    for kind in dict.fromkeys(case.kind for case in cases):
        alike = [case for case in cases if case.kind == kind]
        alone = [case for case in map(plain, alike) if len(case.ms) > 1]
        for label, chosen in {
            "": alike,
            " in OpenCL C alone": alone if kind == "gpu" else [],
        }.items():
            _add(table, label, "shapes", chosen, folds([case.problem for case in chosen]))
            if len(set(devices := [_left_out_with(case) for case in chosen])) > 1:
                _add(table, label, "the device", chosen, devices)
    Console(width=130).print(table)


def folds(problems: Sequence[Problem]) -> list[int]:
    """Return the fold of each problem; what is hardly apart, by however many steps, shares one."""
    kinds, places = [kind_of(one) for one in problems], [place_of(one) for one in problems]
    cluster = list(range(len(problems)))
    for one, other in combinations(range(len(problems)), 2):
        first, second = cluster[one], cluster[other]
        is_alike = first != second and kinds[one] == kinds[other]
        if is_alike and places[one].distance(places[other]) <= APART:
            cluster = [first if each == second else each for each in cluster]
    numbers = {each: number for number, each in enumerate(dict.fromkeys(cluster))}
    return [numbers[each] % FOLDS for each in cluster]


def _device(case: Case) -> str:
    return f"{case.head.device.name}, {case.head.device.runtime}"


def _left_out_with(case: Case) -> str:
    """Return what devices share that are left out together: a profile, whatever it is laid over."""
    info = case.head.device
    return f"{info.architecture}, {info.runtime}" if info.is_profiled else _device(case)


def _add(
    table: Table, label: str, what: str, cases: Sequence[Case], groups: Sequence[object]
) -> None:
    """Add three rows for each device and measure: what is chosen, the best of two and of three."""
    scores = left_out(cases, groups)
    for device in dict.fromkeys(map(_device, cases)):
        own = [pair for pair in zip(cases, scores, strict=True) if _device(pair[0]) == device]
        turned = [pair for pair in own if pair[0].halves is not None]
        guessed = [
            (case, of) for case, each in turned if (of := of_dispatch(case, each)) is not None
        ]
        measures = (
            (LEAST, quality, own),
            (HALVES, split_quality, turned),
            (OFFERED, split_quality, guessed),
        )
        for name, measure, judged in measures:
            for raced in (1, 2, 3) if judged else ():
                found = [measure(case, each, raced) for case, each in judged]
                table.add_row(
                    f"{device}{label}", what, name, str(len(found)), str(raced),
                    f"{geometric_mean(found):.3f}", f"{np.quantile(found, 0.1):.2f}",
                    f"{min(found):.2f}", str(sum(each < FLOOR for each in found)),
                )  # fmt: skip
