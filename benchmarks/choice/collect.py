"""Measures tables for the model of the choice: many variants of drawn or of listed problems.

A time is the least of its samples, which other work on the machine touches least.

python -m benchmarks collect TABLE.jsonl.gz --device 0 --problems 100 --time-budget 600
"""

from __future__ import annotations

import time
from collections.abc import Sequence
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


def main(
    path: Path,
    device: str,
    seed: int,
    problems: int,
    time_budget: float,
    listed: Sequence[str] = (),
) -> None:
    """Measure variants of many problems, and append them to the table, a problem at a time.

    Args:
        path: table to append to.
        device: index or part of a name.
        seed: draws the problems.
        problems: how many.
        time_budget: no problem is begun after them.
        listed: keys of problems to measure instead of drawn ones.
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
            append(path, head, _rows(worker, target, problem, known, ends))


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


def _least_ms(measured: Measurement) -> float:
    return min(measured.samples, default=inf) if measured.ok else inf
