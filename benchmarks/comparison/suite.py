"""Runs benchmark tasks on both sides in turns and keeps every row at once; prints as it goes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.comparison.sides import Side, SideError
from benchmarks.report import text
from benchmarks.report.rows import LEFT_OUT, WRONG, Result, Row
from benchmarks.tasks.task import Task

TURNS = 3
"""Turns of each side; the median is over all their samples."""
ENOUGH_MS = 4000.0
"""No further turn is taken when the samples of one contestant add up to this."""
LONGEST_S = 300.0
"""Seconds that one answer may take."""
GRACE_S = 10.0
"""Seconds that an answer under way may overrun the budget."""
BOUNDS = {"fp32": 1e-3, "fp16": 3e-2, "bf16": 1e-1}
"""How far the sides' results may be apart: their largest difference over the largest result. Sums
in another order and roundings to a dtype of p bits are some 10 to 30 times 2^-p apart behind tens
of layers; what is computed wrongly is apart by the order of 1."""


@dataclass
class Clock:
    """The time there is; `longest` are the seconds that one answer may take, at most."""

    budget: float = inf
    longest: float = inf

    def __post_init__(self) -> None:
        """Start."""
        self._end = time.monotonic() + self.budget

    @property
    def is_over(self) -> bool:
        """Whether nothing more may begin."""
        return time.monotonic() >= self._end

    @property
    def left(self) -> float:
        """Seconds until it is over; infinite without a budget."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def seconds(self) -> float:
        """How long an answer may take that is asked for now."""
        return min(LONGEST_S, self.longest, self.left + GRACE_S)


@dataclass
class Suite:
    """Both sides, and the time there is; `alone`: ours is measured where the peer fails, too."""

    ours: Side
    theirs: Side
    clock: Clock
    alone: bool = True

    def run(self, tasks: Sequence[Task], result: Result, path: Path | None) -> Result:
        """Measure tasks in their order; each row is printed and saved before the next.

        Args:
            tasks: what is left when the clock is over is noted as left out.
            result: where rows are added.
            path: file to save to; None: nothing is saved.
        """
        for done, task in enumerate(tasks):
            if self.clock.is_over:
                return self._leave_out(tasks[done:], result, path)
            row = self.measured(task)
            print(f"[{done + 1}/{len(tasks)}] {text.line(row, result.roofs)}", flush=True)
            result = result.with_row(row)
            if path:
                result.save(path)
        return result

    def measured(self, task: Task) -> Row:
        """Return the row of a task; what fails is its reason, the peer's before ours."""
        row, peer = _row(task), None
        try:
            peer = self.theirs.prepare(task.kind, task.what, self.clock.seconds)
        except SideError as error:
            row = replace(row, reason=str(error))
            if not self.alone:
                return row
        try:
            notes = self.ours.prepare(task.kind, task.what, self.clock.seconds)
        except SideError as error:
            return replace(row, reason=row.reason or str(error))
        contestants: list[tuple[Side, str]] = [(self.ours, n) for n in notes.pop("contestants")]
        outcome = notes.pop("outcome", None)
        row = replace(row, **{**notes, "reason": row.reason or notes.get("reason", "")})
        if peer is not None:
            contestants.append((self.theirs, "torch"))
            row = compared(row, outcome, peer.get("outcome"))
        return row if row.is_wrong else self._timed(row, contestants)

    def _timed(self, row: Row, contestants: list[tuple[Side, str]]) -> Row:
        samples: dict[str, list[float]] = {name: [] for _, name in contestants}
        for _ in range(TURNS):
            for side, name in tuple(contestants):
                try:
                    samples[name] += side.samples(name, self.clock.seconds)
                except SideError as error:
                    contestants.remove((side, name))
                    row = replace(row, reason=row.reason or str(error))
            if max(map(sum, samples.values())) > ENOUGH_MS or self.clock.is_over:
                break
        medians = {name: median(times) for name, times in samples.items() if times}
        ours_ms = medians.pop("ours", None)
        return replace(row, ours_ms=ours_ms, peers=medians)

    def _leave_out(self, tasks: Sequence[Task], result: Result, path: Path | None) -> Result:
        """Say what there was no time for, and keep that, too."""
        budget = f"the time budget of {self.clock.budget:.0f} s was over"
        for task in tasks:
            result = result.with_row(replace(_row(task), reason=f"{LEFT_OUT}: {budget}"))
        if path:
            result.save(path)
        groups = Counter(task.groups[0] for task in tasks)
        left = ", ".join(f"{rows} of {group}" for group, rows in groups.items())
        print(f"{budget[0].upper()}{budget[1:]}; left out: {left}")
        return result


def compared(
    row: Row, ours: Sequence[NDArray[Any]] | None, theirs: Sequence[NDArray[Any]] | None
) -> Row:
    """Return the row with the difference of what both sides computed; beyond its bound it is wrong.

    Args:
        row: of a dtype that `BOUNDS` has, if there is something to compare.
        ours: arrays in fp32; None: nothing is compared.
        theirs: as many, of the same shapes.
    """
    if ours is None or theirs is None:
        return row
    found = [
        float(np.abs(our - their).max() / np.abs(their).max())
        for our, their in zip(ours, theirs, strict=True)
    ]
    apart, bound = float(np.max(found)), BOUNDS[row.dtype]
    row = replace(row, difference=apart)
    if apart <= bound:
        return row
    return replace(row, reason=f"{WRONG}: {apart:.1e} from torch's results, bound {bound:.0e}")


def _row(task: Task) -> Row:
    return Row(task.kind, task.key, task.groups, task.dtype, task.flops, task.bytes, seed=task.seed)
