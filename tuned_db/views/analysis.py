"""What measurements mean: rates, parts of the peak, progress over trials, effects of parameters.

It reads no database and draws nothing; `tuned_db.views.browse` and `tuned_db.views.charts` do.
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
from tuned_db.records.record import Record, RecordError, json_object

Timed = tuple[str, str, float]
"""Family, config as canonical JSON, milliseconds."""
ENOUGH = 16
"""Trials of a family that went well: from fewer nothing is said of its parameters."""
_LEAST_MS = 1e-6
"""A nanosecond, the least that devices tell apart; a time of zero has no rate and no logarithm."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a winner is: GFLOP/s of the direct algorithm, and its part of its dtype's peak.

    `intensity` is operations per byte, if every input is read once. `of_bound` is the part of what
    the device allows for the problem: the lesser of its peak and of what its memory can feed then
    (`oclgen.roofline`). Both parts are None where the peak of the dtype is unknown. Winograd and
    caches may pass 1.
    """

    dtype: str
    flops: int
    intensity: float
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
    ms, dtype = max(record.ms, _LEAST_MS), problem.dtype
    gflops, intensity = 1e-6 * problem.flops / ms, problem.flops / problem.bytes
    roofs, peak = roofs_of(record), peak_of(record, dtype)
    if roofs is None or peak is None:
        return Rate(dtype, problem.flops, intensity, gflops, None, None)
    of_bound = roofs.over(problem.flops, problem.bytes, dtype).ms / ms
    return Rate(dtype, problem.flops, intensity, gflops, gflops / peak, of_bound)


def roofs_of(record: Record) -> Roofs | None:
    """Return what is known of a record's device, None where its fp32 peak is not."""
    known = record.peak is not None and all(record.peak)
    return Roofs(*record.peak, record.peaks or {}) if known and record.peak else None


def peak_of(record: Record, dtype: str) -> float | None:
    """Return the peak of a dtype on a record's device in GFLOP/s, None where it is unknown.

    Args:
        record: of the device.
        dtype: a name of `PRODUCT_DTYPES`.
    """
    roofs = roofs_of(record)
    if roofs is None:
        return None
    return roofs.gflops if dtype == "fp32" else roofs.matrix.get(dtype)


def best_over_trials(times: Iterable[float | None]) -> list[tuple[int, float]]:
    """Return (number of the trial, best ms so far) for each trial that improved, from 1 on."""
    best, found = inf, []
    for number, ms in enumerate(times, start=1):
        if ms is not None and ms < best:
            best = ms
            found.append((number, ms))
    return found


def effects(tunings: Iterable[Sequence[Timed]]) -> list[Effect]:
    """Return what each parameter does over tunings, each a list of variants of one problem.

    The importance is the part of the variance of log time, within a problem and a family, that
    the parameter explains alone (first order, as in functional ANOVA; Hutter et al., ICML 2014),
    less what as many values would explain by chance (epsilon squared; Kelley 1935,
    doi:10.1073/pnas.21.9.554). Families with fewer trials than `ENOUGH` and parameters that never
    vary are left out; the most important ones come first.
    """
    samples = _samples(tunings)
    found = [
        _effect(family, name, by_problem)
        for family, by_problem in samples.items()
        for name in sorted({name for group in by_problem for config, _ in group for name in config})
    ]
    return sorted((e for e in found if e), key=lambda e: (-e.importance, e.family, e.parameter))


Sample = tuple[dict[str, Any], float]


def _samples(tunings: Iterable[Sequence[Timed]]) -> dict[str, list[list[Sample]]]:
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
    return {family: groups for family, groups in found.items() if sum(map(len, groups)) >= ENOUGH}


def _in_order(values: Iterable[str]) -> list[str]:
    """Return values as JSON, sorted: 2 before 16."""
    return sorted(values, key=lambda value: (len(value), value))


@dataclass(frozen=True, slots=True)
class Grid:
    """What two parameters of a family do to one problem, whatever its others are.

    `cells` has, by row (a value of `y`) and column (of `x`), how many times longer the best variant
    there takes than the best of all, and of how many trials it is the best; None: nothing worked.
    """

    family: str
    x: str
    y: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[tuple[float, int] | None, ...], ...]


def grid(variants: Sequence[Timed], family: str, x: str, y: str) -> Grid | None:
    """Return what two parameters of a family do, None from too few trials or values.

    Args:
        variants: of one problem.
        family: whose parameters they are.
        x: the parameter whose values are columns.
        y: the one whose values are rows.
    """
    groups = _samples([variants]).get(family, [])
    by_place: dict[tuple[str, str], list[float]] = defaultdict(list)
    for config, time in (one for group in groups for one in group):
        if x in config and y in config:
            by_place[json.dumps(config[y]), json.dumps(config[x])].append(time)
    rows, columns = (tuple(_in_order({place[n] for place in by_place})) for n in (0, 1))
    if x == y or len(rows) < 2 or len(columns) < 2:
        return None
    best = min(map(min, by_place.values()))
    cells = tuple(
        tuple(
            (exp(min(times) - best), len(times)) if (times := by_place.get((row, column))) else None
            for column in columns
        )
        for row in rows
    )
    return Grid(family, x, y, columns, rows, cells)


def _effect(family: str, name: str, groups: list[list[Sample]]) -> Effect | None:
    within = total = 0.0
    free = most = 0  # degrees of freedom
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
        free, most = free + len(times) - len(by_value), most + len(times) - 1
        for value, values in by_value.items():
            costs[value].append(min(values) - min(times))
    if not total or not free:
        return None
    importance = max(0.0, 1.0 - (within / free) / (total / most))
    slowdowns = [(value, exp(fmean(costs[value]))) for value in _in_order(costs)]
    return Effect(family, name, importance, tuple(slowdowns))


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)
