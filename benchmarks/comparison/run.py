"""Measures what was asked for, from the options to the written report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from benchmarks.comparison import ours
from benchmarks.comparison.sides import Side
from benchmarks.comparison.suite import LONGEST_S, Clock, Suite
from benchmarks.peers import torch_peer
from benchmarks.report import text
from benchmarks.report.rows import Result
from benchmarks.tasks import attention, conv, gemm, images, language, networks, pointwise
from benchmarks.tasks.draw import Draw
from benchmarks.tasks.task import Task, TaskError, merged
from oclgen.limits import Limits
from oclgen.problem import DIRECTIONS, Direction
from oclgen.roofline import Roofs

KINDS = ("gemm", "conv", "attention", "networks", "language", "images", "pointwise")


@dataclass(frozen=True)
class Options:
    """What `python -m benchmarks gemm --help` explains; `kinds` are those of the command.

    Empty tuples and a batch of zero leave the choice to each kind and device.
    """

    kinds: tuple[str, ...] = KINDS
    device: str = "0"
    only: tuple[str, ...] = ()
    seed: int = 0
    drawn: int | None = None
    trials: int = 0
    family: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    direction: tuple[Direction, ...] = ()
    batch: int = 0
    networks: tuple[str, ...] = networks.NETWORKS
    small: bool = False
    check: bool = False
    time_budget: float = inf
    peer: str = "auto"
    clblast: str = ""
    clblast_trials: int = 0
    json: Path | None = None
    missing: bool = False
    markdown: Path | None = None
    plot: Path | None = None
    note: str = ""


def seed_of_today() -> int:
    """Return the date as a number such as 20261122: a seed that is new on every day."""
    return int(datetime.now(UTC).strftime("%Y%m%d"))


def main(options: Options) -> None:
    """Measure what was asked for, and write what was asked for.

    Raises:
        SideError, ResultError, TaskError: as `run`.
    """
    result = run(options)
    print("\n" + text.means(result))
    if options.markdown:
        options.markdown.write_text(text.markdown(result, options.plot))
    if options.plot:
        from benchmarks.report.plot import draw  # matplotlib is an extra

        draw(result, options.plot)


def run(options: Options) -> Result:
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
        with closing(Side("torch", torch_peer.start, peer)) as their_side:
            result = begun(hello, their_side, options.json, options.note, options.seed)
            tasks = all_tasks(options, hello["limits"])
            if options.missing:
                tasks = [task for task in tasks if not result.has(task.kind, task.key)]
            problems = [task.what["problem"] for task in tasks if "problem" in task.what]
            our_side.prepare("ahead", {"problems": problems}, LONGEST_S)
            return Suite(our_side, their_side, clock).run(tasks, result, options.json)


def begun(
    hello: Mapping[str, Any], theirs: Side, path: Path | None, note: str, seed: int
) -> Result:
    """Return what rows are added to, with those of a file, and print its head.

    Args:
        hello: our side's answer.
        theirs: torch's.
        path: of the file; None: there is none.
        note: what the report says besides.
        seed: that draws what is measured.

    Raises:
        SideError: torch's side does not start.
        ResultError: the file's rows are another device's.
    """
    peers = {"torch": theirs.prepare("hello", {}, LONGEST_S)["name"], **hello["peers"]}
    roofs = Roofs(**hello["roofs"])
    result = Result(hello["device"], hello["versions"], peers, roofs, note)
    result = result.resumed(path) if path else result
    print(f"{text.head(result)}\nDrawn by --seed {seed}.\n", flush=True)
    return result


def all_tasks(options: Options, limits: Limits) -> list[Task]:
    """Return the tasks that were asked for, the most important first.

    Raises:
        TaskError: nothing has a name that was asked for.
    """
    draw = Draw(options.seed, options.drawn)
    size = "small" if options.small else "gpu" if limits.kind == "gpu" else "cpu"
    found = [
        *gemm.tasks(limits, draw, options.dtype),
        *conv.tasks(limits, draw, options.batch, options.direction or DIRECTIONS, options.dtype),
        *attention.tasks(limits, draw, options.dtype),
        *networks.tasks(limits, draw, options.batch, options.networks),
        *language.tasks(size, draw),
        *images.tasks(size, draw, limits),
        *pointwise.tasks(limits, draw),
    ]
    tasks = merged(task for task in found if task.is_in(options.kinds))
    only = options.only or options.kinds
    if unknown := [name for name in only if not any(task.is_in([name]) for task in tasks)]:
        raise TaskError(
            f"nothing is called {', '.join(unknown)}; there are {', '.join(_names(tasks))}"
        )
    return [task for task in tasks if task.is_in(only)]


def _names(tasks: Sequence[Task]) -> list[str]:
    return list(dict.fromkeys(name for task in tasks for name in task.names))


def peer_device(asked: str, limits: Limits) -> str:
    """Return the device torch runs on; beside a GPU it is CUDA, where torch has it."""
    import torch

    if asked == "auto":
        return "cuda" if limits.kind == "gpu" and torch.cuda.is_available() else "cpu"
    return asked


def wishes(options: Options) -> ours.Wishes:
    """Return what our side needs to know of the options."""
    return ours.Wishes(
        options.device,
        options.trials,
        options.family,
        options.check,
        options.clblast,
        options.clblast_trials,
    )
