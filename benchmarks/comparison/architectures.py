"""Runs drawn model types of `transformers` on both sides, and says which are slow or fail on ours.

A type that the peer cannot make or evaluate at the drawn sizes is skipped, with its reason, and the
next of the draw takes its place. What the peer can do and ours cannot is a row without times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from pathlib import Path

from benchmarks.comparison import ours
from benchmarks.comparison.builders import build
from benchmarks.comparison.run import begun, peer_device
from benchmarks.comparison.sides import Side, SideError
from benchmarks.comparison.suite import LONGEST_S, Clock, Suite
from benchmarks.comparison.sweep import start
from benchmarks.peers import torch_peer
from benchmarks.report import text
from benchmarks.report.rows import Result, Row
from benchmarks.tasks import architectures
from benchmarks.tasks.architectures import DTYPES, KIND, Case, Drawn

WORST = 20
"""Rows that are printed by themselves."""
BUILDING = 0.5
"""Part of the time that is left which building ahead may take."""


@dataclass(frozen=True)
class Options:
    """What `python -m benchmarks architectures --help` explains."""

    device: str = "0"
    seed: int = 0
    networks: int = 8
    only: tuple[str, ...] = ()
    dtype: tuple[str, ...] = DTYPES
    size: str | None = None
    case_seconds: float = 60.0
    time_budget: float = inf
    builders: int = 0
    peer: str = "auto"
    json: Path | None = None
    note: str = ""


@dataclass
class Screen:
    """The draw as the peer can compute it; `skipped` are reasons by type."""

    theirs: Side
    clock: Clock
    skipped: dict[str, str] = field(default_factory=dict)

    def runs(self, draw: Iterator[Drawn]) -> Iterator[Drawn]:
        """Yield the architectures of a draw that the peer evaluates in fp32, while there is time.

        Args:
            draw: in its order.
        """
        for one in draw:
            if self.clock.is_over:
                return
            try:
                self.theirs.prepare(KIND, {"case": Case(one, "eval", "fp32")}, self.clock.seconds)
            except SideError as error:
                self.skipped[one.name] = str(error)
                print(f"skipped {one.name}: {error}", flush=True)
            else:
                yield one

    def summary(self) -> str:
        """Return how many types were skipped for which kind of reason."""
        kinds = Counter(reason.split(": ")[1] for reason in self.skipped.values())
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        return f"Skipped, since the peer cannot run them: {len(self.skipped)} ({counted or 'none'})"


def main(options: Options) -> None:
    """Measure, and print means and the worst rows.

    Raises:
        SideError: a side does not start.
        ResultError: the file's rows are another device's.
    """
    clock = Clock(options.time_budget, options.case_seconds)
    with closing(Side("ours", start, ours.Wishes(options.device))) as our_side:
        hello = our_side.prepare("hello", {}, LONGEST_S)
        peer = peer_device(options.peer, hello["limits"])
        size = options.size or ("gpu" if hello["limits"].kind == "gpu" else "cpu")
        with closing(Side("torch", torch_peer.start, peer)) as their_side:
            result = begun(hello, their_side, options.json, options.note, options.seed)
            screen = Screen(their_side, clock)
            drawn = _chosen(options, size, screen)
            suite = Suite(our_side, their_side, clock, alone=False)
            for one in drawn:
                tasks = architectures.tasks(one, options.dtype, options.seed)
                result = suite.run(tasks, result, options.json)
    print(f"\n{tables(result)}\n\n{screen.summary()}")


def _chosen(options: Options, size: str, screen: Screen) -> Iterator[Drawn]:
    """Return the architectures to measure, with their kernels built ahead if that is wanted."""
    draw = architectures.drawn(options.seed, size)
    if options.only:
        draw = (one for one in draw if one.name in options.only)
    found = islice(screen.runs(draw), options.networks)
    if not options.builders:
        return found
    chosen = list(found)
    tasks = [task for one in chosen for task in architectures.tasks(one, options.dtype, 0)]
    cases = [task.what["case"] for task in tasks]
    build(once, cases, options.device, options.builders, BUILDING * screen.clock.left)
    return iter(chosen)


def once(case: Case, device: str) -> None:
    """Make a step of a case, as the measured run does."""
    step = architectures.step(case, device)
    step.outcome()
    step.run()


def tables(result: Result) -> str:
    """Return means by mode and dtype, the worst rows, and rows that failed on ours."""
    rows = [row for row in result.rows if row.kind == KIND]
    timed = sorted((row for row in rows if row.ratio("torch")), key=_ratio)
    lines = ["| torch / ours | ours, ms | case |", "|---" * 3 + "|"]
    lines += [f"| {_ratio(row):.3f} | {row.ours_ms:.2f} | {row.key} |" for row in timed[:WORST]]
    failed = [f"- {row.key}: {row.reason}" for row in rows if row.reason.startswith(("ours", "wr"))]
    fell = [f"- {row.key}: {row.reason}" for row in rows if row.fallbacks]
    return "\n".join([text.means(result), "", *lines, "", *failed, *fell]).rstrip()


def _ratio(row: Row) -> float:
    return row.ratio("torch") or inf
