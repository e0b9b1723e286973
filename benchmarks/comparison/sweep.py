"""Runs the sweep on both sides and says which classes, and which cases, are the slowest."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from benchmarks.comparison import ours
from benchmarks.comparison.builders import build
from benchmarks.comparison.run import begun, peer_device
from benchmarks.comparison.sides import Side
from benchmarks.comparison.suite import LONGEST_S, Clock, Suite
from benchmarks.peers import torch_peer
from benchmarks.report import text
from benchmarks.report.rows import Result, Row
from benchmarks.tasks.operators.tasks import tasks as operators
from benchmarks.tasks.sweep import KIND
from benchmarks.tasks.sweep import tasks as layers
from benchmarks.tasks.sweep_calls import Case, call
from benchmarks.tasks.task import Task
from benchmarks.timing import Prepare

WORST = 20
"""Rows that are printed by themselves."""


@dataclass(frozen=True)
class Options:
    """What `python -m benchmarks sweep --help` explains."""

    device: str = "0"
    operators: bool = False
    seed: int = 0
    cases: int = 300
    again: float | None = None
    case_seconds: float = 20.0
    time_budget: float = inf
    most_mib: int = 256
    builders: int = 0
    peer: str = "auto"
    json: Path | None = None
    note: str = ""


def main(options: Options) -> None:
    """Measure, and print means of classes and the worst rows.

    Raises:
        SideError: a side does not start.
        ResultError: the file's rows are another device's.
        ValueError: there are fewer cases than were asked for, or slow ones of the file are not
            among them.
    """
    result = run(options)
    print(f"\n{tables(result)}")


def tables(result: Result) -> str:
    """Return means of what classes have in common, means of classes, and the worst rows."""
    rows = [row for row in result.rows if row.kind == KIND]
    wider = [replace(row, groups=row.groups[1:]) for row in rows]
    classes = sorted((replace(row, groups=row.groups[:1]) for row in rows), key=_class)
    means = [text.means(replace(result, rows=tuple(each))) for each in (wider, classes)]
    return "\n\n".join([*means, worst(result)])


def _class(row: Row) -> tuple[str, ...]:
    return row.groups


def start(wishes: ours.Wishes) -> Prepare:
    """Return our side with the torch device open, which is compiled at its very first use."""
    ours.torch_device()
    return ours.start(wishes)


def run(options: Options) -> Result:
    """Return what both sides made of the cases, with the file's other rows; raises as `main`."""
    clock = Clock(options.time_budget, options.case_seconds)
    with closing(Side("ours", start, ours.Wishes(options.device))) as our_side:
        hello = our_side.prepare("hello", {}, LONGEST_S)
        limits = hello["limits"]
        tasks = operators if options.operators else layers
        made = list(tasks(options.seed, options.cases, limits, options.most_mib * 2.0**20))
        peer = peer_device(options.peer, limits)
        with closing(Side("torch", torch_peer.start, peer)) as their_side:
            result = begun(hello, their_side, options.json, options.note, options.seed)
            slow = {} if options.again is None else below(options.again, result)
            if options.again is not None:
                made = drawn_again(made, slow)
            if options.builders:
                build(once, [task.what["case"] for task in made], options.device, options.builders)
            suite = Suite(our_side, their_side, clock)
            if not slow:
                return suite.run(made, result, options.json)
            found = suite.run(made, result, None)
    rows = (least(slow[row.name], row) if row.name in slow else row for row in found.rows)
    result = replace(found, rows=tuple(rows))
    if options.json:
        result.save(options.json)
    return result


def below(ratio: float, result: Result, peer: str = "torch") -> dict[tuple[str, str], Row]:
    """Return the rows that are slow, by their names.

    Args:
        ratio: the peer's time / ours, below which a row is slow.
        result: whose rows of the sweep are looked at.
        peer: as `Row.peers` names it.
    """
    rows = [row for row in result.rows if row.kind == KIND]
    return {row.name: row for row in rows if (row.ratio(peer) or inf) < ratio}


def drawn_again(made: Sequence[Task], slow: Collection[tuple[str, str]]) -> list[Task]:
    """Return the tasks of slow rows.

    Args:
        made: the tasks that the options draw.
        slow: names of the rows.

    Raises:
        ValueError: some rows are of another draw.
    """
    found = [task for task in made if (task.kind, task.key) in slow]
    if missing := len(slow) - len(found):
        raise ValueError(
            f"{missing} of {len(slow)} slow cases are not among the {len(made)} that are drawn: "
            "give the --seed, --cases, --most-mib and --operators of the file"
        )
    return found


def least(first: Row, second: Row) -> Row:
    """Return the second of two rows of a case with the least time that each side had in either.

    Other programs only make times longer: a case that one disturbed is fast when it runs again.
    """
    if first.ours_ms is None or second.ours_ms is None:
        return second
    peers = {name: min(ms, first.peers.get(name, ms)) for name, ms in second.peers.items()}
    return replace(second, ours_ms=min(first.ours_ms, second.ours_ms), peers=peers)


def worst(result: Result, peer: str = "torch") -> str:
    """Return the rows of least ratio as a Markdown table: key, what served, and its problems."""
    rows = [row for row in result.rows if row.kind == KIND and row.ratio(peer)]
    rows.sort(key=lambda row: row.ratio(peer) or inf)
    lines = [f"| {peer} / ours | ours, ms | case | what served | tuned |", "|---" * 5 + "|"]
    lines += [
        f"| {row.ratio(peer):.3f} | {row.ours_ms:.4f} | {row.key} | {_served(row)} | "
        f"{'yes' if row.is_tuned else 'no'} |"
        for row in rows[:WORST]
    ]
    return "\n".join(lines)


def _served(row: Row) -> str:
    problems = " ".join(problem for problem, _ in json.loads(row.config)) if row.config else ""
    served = f"{row.variant} `{problems}`" if problems else ""
    return f"{served} {row.reason}".strip()


def once(case: Case, device: str) -> None:
    """Make a case's call."""
    call(case, device)()
