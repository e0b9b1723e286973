"""What measurements mean: rates, how near the peak, progress over trials, what a parameter does.

It reads no database and draws nothing; `tuned_db.browse` and `tuned_db.charts` do.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from statistics import fmean
from typing import Any

from oclgen.keys import parse_key
from oclgen.problem import Problem, ProblemError
from oclgen.roofline import Roofs
from tuned_db.record import Record, RecordError, json_object

Variant = tuple[str, str, float]
"""Family, config as canonical JSON, milliseconds."""
_LEAST_MS = 1e-6
"""A nanosecond, the least that devices tell apart; a time of zero has no rate and no logarithm."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a winner is: GFLOP/s of the direct algorithm, and its part of the fp32 peak.

    `of_bound` is the part of what the device allows for the problem: the lesser of its peak and of
    what its memory can feed if every input is read once (`oclgen.roofline`). Both are None where
    the peak is unknown, as it is of all dtypes but fp32. Winograd and caches may pass 1.
    """

    flops: int
    gflops: float
    of_peak: float | None
    of_bound: float | None


@dataclass(frozen=True, slots=True)
class Effect:
    """What one parameter of a family does: its part of all variation, and each value's cost.

    `slowdowns` has per value the time of the best variant with it over the best of all,
    as geometric mean over problems: 1.0 for a value that never costs anything.
    """

    family: str
    parameter: str
    importance: float
    slowdowns: tuple[tuple[str, float], ...]


def problem_of(key: str) -> Problem | None:
    """Return the problem that a key names, None if another generator wrote it."""
    try:
        return parse_key(key)
    except ProblemError:
        return None


def rate_of(record: Record) -> Rate | None:
    """Return how fast a winner is, None where this generator cannot read its problem."""
    problem = problem_of(record.problem)
    if problem is None:
        return None
    gflops = problem.flops / max(record.ms, _LEAST_MS) * 1e-6
    # of other dtypes the peak is not kept: matrix units pass the one of fp32 many times over
    if record.peak is None or not all(record.peak) or problem.dtype != "fp32":
        return Rate(problem.flops, gflops, None, None)
    roof = Roofs(*record.peak).over(problem.flops, problem.bytes, problem.dtype)
    of_bound = roof.ms / max(record.ms, _LEAST_MS)
    return Rate(problem.flops, gflops, gflops / record.peak[0], of_bound)


def best_over_trials(times: Iterable[float | None]) -> list[tuple[int, float]]:
    """Return (number of the trial, best ms so far) for each trial that improved, from 1 on."""
    best, found = inf, []
    for number, ms in enumerate(times, start=1):
        if ms is not None and ms < best:
            best = ms
            found.append((number, ms))
    return found


def effects(tunings: Iterable[Sequence[Variant]]) -> list[Effect]:
    """Return what each parameter does over tunings, each a list of variants of one problem.

    The importance is the part of the variance of log time, within a problem and a family, that
    the parameter explains alone (first order, as in functional ANOVA; Hutter et al., ICML 2014).
    Parameters that never vary are left out; the most important ones come first.
    """
    samples = _samples(tunings)
    found = [
        _effect(family, name, by_problem)
        for family, by_problem in samples.items()
        for name in sorted({name for group in by_problem for config, _ in group for name in config})
    ]
    return sorted((e for e in found if e), key=lambda e: (-e.importance, e.family, e.parameter))


Sample = tuple[dict[str, Any], float]


def _samples(tunings: Iterable[Sequence[Variant]]) -> dict[str, list[list[Sample]]]:
    """Return per family and problem the configs with log times; too few variants say nothing."""
    found: dict[str, list[list[Sample]]] = defaultdict(list)
    for variants in tunings:
        groups: dict[str, list[Sample]] = defaultdict(list)
        for family, config, ms in variants:
            try:
                groups[family].append((json_object(config), log(max(ms, _LEAST_MS))))
            except RecordError:
                continue
        for family, group in groups.items():
            if len(group) > 2:
                found[family].append(group)
    return found


def _effect(family: str, name: str, groups: list[list[Sample]]) -> Effect | None:
    within = total = 0.0
    costs: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        by_value: dict[str, list[float]] = defaultdict(list)
        for config, time in group:
            if name in config:
                by_value[json.dumps(config[name])].append(time)
        times = [time for values in by_value.values() for time in values]
        if len(by_value) < 2:
            continue
        within += sum(_squares(values) for values in by_value.values())
        total += _squares(times)
        for value, values in by_value.items():
            costs[value].append(min(values) - min(times))
    if not total:
        return None
    slowdowns = sorted((value, exp(fmean(logs))) for value, logs in costs.items())
    slowdowns.sort(key=lambda pair: (len(pair[0]), pair[0]))  # 2 before 16
    return Effect(family, name, 1.0 - within / total, tuple(slowdowns))


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)
