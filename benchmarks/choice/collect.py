"""Measures tables for the model of the choice: many variants of drawn or of listed problems.

A time is the least of its samples, which other work on the machine touches least. Where other
programs run for long, `--turns 3` measures what comes near the best again, in turns with the rest.

python -m benchmarks collect TABLE.jsonl.gz --device 0 --problems 100 --time-budget 600
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from rich.progress import track

from benchmarks.choice.draw import problems as drawn
from benchmarks.choice.draw import variants
from oclgen.keys import parse_key
from oclgen.measurement import Measurement
from oclgen.measuring import peak
from oclgen.measuring.worker import Worker
from oclgen.opencl.device import Device, select
from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.files.table import Head, Row, append
from tuned_db.records.shipped import shipped_records

AHEAD = 2
"""Variants that are built ahead, per process that builds."""
AGAIN = 1.6
"""Variants up to this many times the best time of their problem are measured in later turns."""


def main(
    path: Path,
    device: str,
    seed: int,
    problems: int,
    time_budget: float,
    listed: Sequence[str] = (),
    turns: int = 1,
) -> None:
    """Measure variants of many problems, and append them to the table, a problem at a time.

    Args:
        path: table to append to.
        device: index or part of a name.
        seed: draws the problems.
        problems: how many.
        time_budget: no problem is begun after them.
        listed: keys of problems to measure instead of drawn ones.
        turns: how often what comes near a problem's best is measured; the least time counts.
    """
    target, ends = select(device), time.monotonic() + time_budget
    level = peak.measure(target)
    head = Head(target.info, target.limits, level.gflops, level.gbytes)
    known = [
        (parse_key(one.problem), one.variant)
        for one in shipped_records()
        if one.device.kind == target.info.kind
    ]
    wanted = [parse_key(key) for key in listed] or drawn(seed, problems, target.limits)
    with Worker(target.index, target.info) as worker:
        for problem in track(wanted, "measuring"):
            if time.monotonic() >= ends:
                break
            rows = _rows(worker, target, problem, known, ends)
            for turn in range(1, turns):
                rows = _again(worker, problem, rows, backwards=bool(turn % 2))
            append(path, head, rows)


def _rows(
    worker: Worker,
    device: Device,
    problem: Problem,
    known: list[tuple[Problem, Variant]],
    ends: float,
) -> list[Row]:
    order = variants(problem, device.limits, known, seed=0)
    begun, best = 0, inf
    rows: list[Row] = []
    for done, variant in enumerate(order):
        while begun < min(len(order), done + AHEAD * worker.builders):
            worker.build_ahead(problem, order[begun])
            begun += 1
        measured = worker.measure(problem, variant, best)
        best = min(best, ms := _least_ms(measured))
        rows.append(Row(problem.key(), variant.family, variant.values(), ms, measured.invalidity))
        if time.monotonic() >= ends:
            break
    return rows


def _again(worker: Worker, problem: Problem, rows: list[Row], backwards: bool) -> list[Row]:
    """Return rows whose times are the least of those and of another measurement, where near.

    Args:
        worker: measures.
        problem: of the rows.
        rows: what was measured before.
        backwards: whether the last one is measured first.
    """
    best = min((row.ms for row in rows), default=inf)
    found = list(rows)
    for at in reversed(range(len(rows))) if backwards else range(len(rows)):
        row = found[at]
        if row.ms <= AGAIN * best < inf:
            variant = Variant.from_values(row.family, row.config)
            found[at] = replace(row, ms=min(row.ms, _least_ms(worker.measure(problem, variant))))
    return found


def _least_ms(measured: Measurement) -> float:
    return min(measured.samples, default=inf) if measured.ok else inf
