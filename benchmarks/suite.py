"""Runs benchmark tasks on both sides in turns and keeps every row at once; prints as it goes.

What is measured stands in `gemm.py`, `conv.py`, `networks.py` and `pointwise.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import conv
import gemm
import networks
import ours
import pointwise
import report
import theirs
from plot import draw
from results import LEFT_OUT, Result, ResultError, Row
from roofline import Roofs
from sides import Side, SideError
from task import Task, TaskError, merged

from oclgen.limits import Limits
from oclgen.problem import DIRECTIONS, DTYPES

KINDS = ("gemm", "conv", "networks", "pointwise")
TURNS = 3
"""Turns of each side; the median is over all their samples."""
ENOUGH_MS = 4000.0
"""No further turn is taken when the samples of one contestant add up to this."""
LONGEST_S = 300.0
"""Seconds that one answer may take."""
GRACE_S = 10.0
"""Seconds that an answer under way may overrun the budget."""


@dataclass
class Clock:
    """The time there is."""

    budget: float = inf

    def __post_init__(self) -> None:
        """Start."""
        self._end = time.monotonic() + self.budget

    @property
    def is_over(self) -> bool:
        """Whether nothing more may begin."""
        return time.monotonic() >= self._end

    @property
    def seconds(self) -> float:
        """How long an answer may take that is asked for now."""
        return min(LONGEST_S, max(self._end - time.monotonic(), 0.0) + GRACE_S)


@dataclass
class Suite:
    """Both sides, and the time there is."""

    ours: Side
    theirs: Side
    clock: Clock

    def run(self, tasks: Sequence[Task], result: Result, path: Path | None) -> Result:
        """Measure the tasks in their order; each row is printed and saved before the next."""
        for done, task in enumerate(tasks):
            if self.clock.is_over:
                return self._leave_out(tasks[done:], result, path)
            row = self.measured(task)
            print(f"[{done + 1}/{len(tasks)}] {report.line(row, result.roofs)}", flush=True)
            result = result.with_row(row)
            if path:
                result.save(path)
        return result

    def measured(self, task: Task) -> Row:
        """Return the row of a task; what fails is its reason."""
        row = _row(task)
        try:
            notes = self.ours.prepare(task.kind, task.what, self.clock.seconds)
        except SideError as error:
            return replace(row, reason=str(error))
        contestants: list[tuple[Side, str]] = [(self.ours, n) for n in notes.pop("contestants")]
        row = replace(row, **notes)
        try:
            self.theirs.prepare(task.kind, task.what, self.clock.seconds)
            contestants.append((self.theirs, "torch"))
        except SideError as error:
            row = replace(row, reason=str(error))
        return self._timed(row, contestants)

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


def _row(task: Task) -> Row:
    return Row(task.kind, task.key, task.groups, task.dtype, task.flops, task.bytes)


def all_tasks(options: argparse.Namespace, limits: Limits) -> list[Task]:
    """Return the tasks that were asked for, the most important first.

    Raises:
        TaskError: nothing has a name that was asked for.
    """
    dtypes = tuple(options.dtype)
    found = [
        *gemm.tasks(limits, dtypes),
        *conv.tasks(limits, options.batch, tuple(options.direction or DIRECTIONS), dtypes),
        *networks.tasks(limits, options.batch, tuple(options.networks)),
        *pointwise.tasks(limits),
    ]
    tasks = merged(task for task in found if task.is_in(options.kinds))
    if unknown := [name for name in options.only if not any(t.is_in([name]) for t in tasks)]:
        known = dict.fromkeys(name for task in tasks for name in task.names)
        raise TaskError(f"nothing is called {', '.join(unknown)}; there are {', '.join(known)}")
    return [task for task in tasks if task.is_in(options.only)]


def main(*kinds: str) -> None:
    """Measure what was asked for, of these kinds, and write what was asked for."""
    options = parse(kinds or KINDS)
    try:
        result = run(options)
    except (SideError, ResultError, TaskError) as error:
        sys.exit(str(error))
    print("\n" + report.means(result))
    if options.markdown:
        options.markdown.write_text(report.markdown(result, options.plot))
    if options.plot:
        draw(result, options.plot)


def run(options: argparse.Namespace) -> Result:
    """Return what both sides made of the tasks asked for, with the file's other rows.

    Raises:
        SideError: a side does not start.
        ResultError: the file's rows are another device's.
        TaskError: as `all_tasks`.
    """
    clock = Clock(options.time_budget)
    with closing(Side("ours", ours.start, wishes(options))) as our_side:
        hello = our_side.prepare("hello", {}, LONGEST_S)
        peer = peer_device(options.peer, hello["limits"])
        with closing(Side("torch", theirs.start, peer)) as their_side:
            peers = {"torch": their_side.prepare("hello", {}, LONGEST_S)["name"], **hello["peers"]}
            roofs = Roofs(**hello["roofs"])
            result = Result(hello["device"], hello["versions"], peers, roofs, options.note)
            result = result.resumed(options.json) if options.json else result
            print(report.head(result) + "\n")
            tasks = all_tasks(options, hello["limits"])
            if options.missing:
                tasks = [task for task in tasks if not result.has(task.kind, task.key)]
            problems = [task.what["problem"] for task in tasks if "problem" in task.what]
            our_side.prepare("ahead", {"problems": problems}, LONGEST_S)
            return Suite(our_side, their_side, clock).run(tasks, result, options.json)


def peer_device(asked: str, limits: Limits) -> str:
    """Return the device torch runs on; beside a GPU it is CUDA, where torch has it."""
    import torch

    if asked == "auto":
        return "cuda" if limits.kind == "gpu" and torch.cuda.is_available() else "cpu"
    return asked


def wishes(options: argparse.Namespace) -> ours.Wishes:
    """Return what our side needs to know of the options."""
    return ours.Wishes(
        options.device,
        options.trials,
        tuple(options.family),
        options.check,
        options.clblast,
        options.clblast_trials,
    )


def parse(kinds: Sequence[str]) -> argparse.Namespace:
    """Return the options; `only` is what is measured, kinds or groups."""
    parser = argparse.ArgumentParser(description=__doc__)
    add: Any = parser.add_argument
    names = {"default": [], "type": lambda text: text.split(",")}
    add("--device", default="0", help="index or part of the name")
    add("--only", **names, help=f"kinds ({','.join(KINDS)}) or groups such as squares,resnet50")
    add("--trials", type=int, default=0, help="search so many variants; 0: what dispatch knows")
    add("--family", action="append", default=[], help="search only this one; repeatable")
    add("--dtype", **names, help=f"of products and convolutions, of {','.join(DTYPES)}")
    add("--direction", choices=DIRECTIONS, action="append", help="of convolutions; repeatable")
    add("--batch", type=int, default=0, help="images; 8 on CPUs, 64 on GPUs")
    add("--networks", default=networks.NETWORKS, type=lambda text: text.split(","))
    add("--check", action="store_true", help="verify large problems and networks, too")
    add("--time-budget", type=float, default=inf, metavar="S", help="begin nothing after S seconds")
    add("--peer", choices=("auto", "cpu", "cuda"), default="auto", help="what torch runs on")
    add("--clblast", default="", metavar="PATH", help="the library; else the system's, if any")
    add("--clblast-trials", type=int, default=0, help="search its parameters first, at random")
    add("--json", type=Path, help="keep the rows here; a later run replaces what it measures")
    add("--missing", action="store_true", help="measure only what the file has no times of")
    add("--markdown", type=Path, help="write the report")
    add("--plot", type=Path, help="draw the square products as SVG")
    add("--note", default="", help="said in the report: what else ran, for instance")
    options = parser.parse_args()
    options.kinds, options.only = kinds, options.only or list(kinds)
    return options
