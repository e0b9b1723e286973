"""Measures tables for the model of the choice: many variants of drawn or of listed problems.

A time is the least of its samples, which other work on the machine touches least. With `--turns N`
all variants that are not far from the best are timed N times more, in turns with each other, and
the table keeps each turn's time: `python -m benchmarks choice` then picks the best by one half of
the turns and times it by the other.

python -m benchmarks collect TABLE.jsonl.gz --device 0 --problems 100 --time-budget 600
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from math import inf
from pathlib import Path

from rich.progress import track

from benchmarks.choice.draw import offered, variants
from benchmarks.choice.draw import problems as drawn
from benchmarks.choice.turns import Ready
from oclgen.keys import parse_key
from oclgen.measurement import Measurement
from oclgen.measuring import peak
from oclgen.measuring.worker import Worker
from oclgen.opencl.device import Device, select
from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.files.table import Head, Row, append, read
from tuned_db.records.shipped import shipped_records

AHEAD = 2
"""Variants that are built ahead, per process that builds."""
AGAIN = 16.0
"""Variants up to this many times the best time of their problem are timed in later turns. Short
ones that another program disturbs take five times as long in the first turn."""
NEAR, MOST_AGAIN = 2.0, 6
"""Variants of an older table that are measured again: how far from the best, and how many."""


def main(
    path: Path,
    device: str,
    seed: int,
    problems: int,
    time_budget: float,
    listed: Sequence[str] = (),
    turns: int = 0,
    again: Sequence[Path] = (),
) -> None:
    """Measure variants of many problems, and append them to the table, a problem at a time.

    Args:
        path: table to append to.
        device: index or part of a name.
        seed: draws the problems.
        problems: how many.
        time_budget: no problem is begun after them.
        listed: keys of problems to measure instead of drawn ones.
        turns: in how many further turns what is not far from a problem's best is timed; they are
            kept apart.
        again: tables whose problems are measured instead: their variants that were not far from the
            best, and what dispatch offers by now.
    """
    target, ends = select(device), time.monotonic() + time_budget
    level = peak.measure(target)
    head = Head(target.info, target.limits, level.gflops, level.gbytes)
    known = [
        (parse_key(one.problem), one.variant)
        for one in shipped_records()
        if one.device.kind == target.info.kind
    ]
    tables = _near_best(again)
    wanted = [parse_key(key) for key in listed or tables] or drawn(seed, problems, target.limits)

    @cache
    def order(problem: Problem) -> list[Variant]:
        if problem.key() not in tables:
            return variants(problem, target.limits, known, seed=0)
        return list(dict.fromkeys((*offered(problem, target.limits), *tables[problem.key()])))

    with Worker(target.index, target.info) as worker:
        # across problems on a GPU: processes do not wait for a problem's last variants; on a
        # processor the builds of the next problem would disturb the turns of this one
        all_ahead = _ahead(worker, wanted, order) if worker.overlaps else None
        for problem in track(wanted, "measuring"):
            if time.monotonic() >= ends:
                break
            ahead = all_ahead or _ahead(worker, [problem], order)
            rows = _rows(worker, problem, order(problem), ahead, ends)
            if turns:
                rows = by_turns(target, problem, rows, turns, worker.seed)
            append(path, head, rows)


def _near_best(tables: Sequence[Path]) -> dict[str, list[Variant]]:
    """Return the variants of each problem of tables that were not far from the best."""
    found: dict[str, list[Row]] = {}
    for table in tables:
        for _, row in read(table):
            found.setdefault(row.problem, []).append(row)
    near = {}
    for problem, rows in found.items():
        ranked = sorted(rows, key=lambda row: row.ms)
        kept = [row for row in ranked if row.ms <= NEAR * ranked[0].ms < inf][:MOST_AGAIN]
        near[problem] = [Variant.from_values(row.family, row.config) for row in kept]
    return near


def _ahead(
    worker: Worker, problems: Sequence[Problem], order: Callable[[Problem], list[Variant]]
) -> Iterator[tuple[Problem, Variant]]:
    """Begin to build the first variants of problems, and return the others with their problems."""
    pairs = ((problem, variant) for problem in problems for variant in order(problem))
    for pair in islice(pairs, AHEAD * worker.builders):
        worker.build_ahead(*pair)
    return pairs


def _rows(
    worker: Worker,
    problem: Problem,
    order: list[Variant],
    ahead: Iterator[tuple[Problem, Variant]],
    ends: float,
) -> list[Row]:
    best = inf
    rows: list[Row] = []
    for variant in order:
        measured = worker.measure(problem, variant, best)
        for pair in islice(ahead, 1):
            worker.build_ahead(*pair)
        best = min(best, ms := _least_ms(measured))
        rows.append(Row(problem.key(), variant.family, variant.values(), ms, measured.invalidity))
        if time.monotonic() >= ends:
            break
    return rows


def by_turns(device: Device, problem: Problem, rows: list[Row], turns: int, seed: int) -> list[Row]:
    """Return rows that hold the times of further turns, where the first one is not far off.

    The first turn's time is dropped there: it had a load of its own, and decided what is timed.

    Args:
        device: where they run.
        problem: of the rows.
        rows: what was measured before.
        turns: how many.
        seed: draws the inputs.
    """
    best = min((row.ms for row in rows), default=inf)
    near = [at for at, row in enumerate(rows) if row.ms <= AGAIN * best < inf]
    variants = [Variant.from_values(rows[at].family, rows[at].config) for at in near]
    times = Ready(device, problem, variants, seed).turns(turns)
    device.programs.forget()
    found = list(rows)
    for at, each in zip(near, times, strict=True):
        if each:
            found[at] = replace(rows[at], ms=min(each), turns=each)
    return found


def _least_ms(measured: Measurement) -> float:
    return min(measured.samples, default=inf) if measured.ok else inf
