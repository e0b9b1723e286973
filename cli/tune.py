"""`oclgen tune`: find the fastest variants for a device and keep them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import click

from .console import console
from .options import db_option, device_option, json_option
from .progress import TuningBar
from .results import table_of, values_of
from .workload import Workload, gather, workload_options

if TYPE_CHECKING:
    from rich.console import Console

    from oclgen.opencl.device import Device
    from search_spaces.crews import LocalCrew, RayCrew
    from search_spaces.progress import Budget, TuneResult

    from .network import Before

COMPARED = 0.1
"""Part of a model's time budget that is kept for timing the old variants."""
TERMINATED = 128 + signal.SIGTERM
"""The exit code after SIGTERM: what shells report of a process that it ended."""


@click.command()
@device_option
@workload_options
@click.option(
    "--trials",
    default=64,
    show_default=True,
    type=click.IntRange(1),
    help="Variants to try per shape, earlier runs included.",
)
@click.option(
    "--time-budget",
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="For all shapes together, counted from the command's start; 0: no limit.",
)
@click.option("--seed", default=0, show_default=True, help="Makes the search repeatable.")
@click.option("--cold", is_flag=True, help="Take times with caches that hold none of the data.")
@click.option(
    "--family",
    "families",
    multiple=True,
    metavar="NAME",
    help="Try only this kernel family. Repeatable.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Use every device of this machine, with at most N processes.",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Use every device of a Ray cluster: auto, ray://HOST:PORT, or local for one made here.",
)
@click.option(
    "--study",
    metavar="URL",
    help="Keep the searches themselves there too, as studies that optuna-dashboard shows.",
)
@json_option
@db_option
@click.pass_context
def tune(
    ctx: click.Context,
    /,
    device: str,
    trials: int,
    time_budget: float,
    seed: int,
    cold: bool,
    families: Sequence[str],
    workers: int | None,
    cluster: str | None,
    study: str | None,
    as_json: bool,
    where: str | None,
    **asked: Any,
) -> None:
    """Search the fastest kernels for the given shapes, or for a default set of them.

    Every variant is verified before its time counts, and is kept at once: Ctrl-C loses nothing,
    and a later run goes on where this one ended. With a model or a recording, trials go where its
    time goes. SIGTERM ends it as Ctrl-C does, with exit code 143.
    """
    began = ctx.obj or time.monotonic()
    from search_spaces.progress import Budget, shortage

    out = console(aside=as_json)
    budget = Budget(trials, time_budget or inf, seed, "cold" if cold else "warm", _study(study))
    with _sigterm_as_interrupt() as terminated:
        try:
            results = _tuned(out, device, budget, began, families, workers, cluster, where, asked)
        except KeyboardInterrupt:  # before there were any
            if not terminated:
                raise
            ctx.exit(TERMINATED)
        if as_json:
            click.echo(json.dumps([values_of(result) for result in results], indent=1))
        if missing := shortage(results, time.monotonic() - began):
            out.print(missing)
    statuses = {result.status for result in results}
    if "interrupted" in statuses:
        if terminated:
            ctx.exit(TERMINATED)
        raise click.Abort
    if "no variant" in statuses:
        ctx.exit(1)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[list[int]]:
    """Let SIGTERM raise `KeyboardInterrupt`, and note it in the list that is given."""
    seen: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGTERM, before)


def _tuned(
    out: Console,
    device: str,
    budget: Budget,
    began: float,
    families: Sequence[str],
    workers: int | None,
    cluster: str | None,
    where: str | None,
    asked: dict[str, Any],
) -> list[TuneResult]:
    """Tune what is asked for: with a crew, or in this process on one device."""
    from oclgen.families import require_families
    from oclgen.opencl.device import select
    from search_spaces.timing import last_moment
    from tuned_db.database.place import ENVIRONMENT

    with ExitStack() as stack:
        if crew := _crew_of(workers, cluster, frozenset(families), where):
            stack.enter_context(crew)  # first: its processes start during what follows
        opened = select(device)
        if where:
            os.environ[ENVIRONMENT] = where  # a model's own dispatch reads the same database
        workload = gather(opened.limits, f"ocl:{opened.index}", **asked)
        require_families(families, workload.problems)
        ends = last_moment(began, budget.seconds)
        if crew:
            return _with_crew(out, crew, workload, budget, ends)
        return _alone(out, opened, workload, budget, families, where, ends)


def _study(where: str | None) -> str | None:
    """Return the URL of Optuna's database as SQLAlchemy takes it, with a driver that is here."""
    from tuned_db.database.opening import locate, with_driver

    return where and with_driver(locate(where)).render_as_string(hide_password=False)


def _alone(
    out: Console,
    device: Device,
    workload: Workload,
    budget: Budget,
    families: Sequence[str],
    where: str | None,
    ends: float,
) -> list[TuneResult]:
    """Tune in this process with a bar, and print the table."""
    from search_spaces.session import Session

    before = _before(workload, device)
    bar = TuningBar(out, len(workload.problems), budget.trials, ends)
    with Session(device, where, ends=ends, say=out.print) as session:
        best = session.level.best if session.level else None
        if best:
            out.print(
                f"{device.name} ({device.info.runtime}), peak {best.gflops:.0f} GFLOP/s fp32, "
                f"{best.gbytes:.0f} GB/s. Results go to {session.store.name}."
            )
        with bar:
            what = workload.calls or workload.problems
            left = (1 - COMPARED) * (ends - time.monotonic()) if before else inf
            limited = replace(budget, seconds=min(budget.seconds, left))
            results = session.tune(what, limited, families, bar.report)
        saved = before.saved(session) if before else None
        known = session.store.of(session.device.info).peaks() if best else {}
    out.print(table_of(results, known | {"fp32": best.gflops} if best else {}))
    if before and saved:
        out.print(before.compare(saved))
    return results


def _before(workload: Workload, device: Device) -> Before | None:
    """If a model is tuned, remember the variants that serve it now."""
    if workload.network is None:
        return None
    from .network import Before

    return Before.of(workload.network, workload.calls, device.index)


def _crew_of(
    workers: int | None, cluster: str | None, families: frozenset[str], where: str | None
) -> LocalCrew | RayCrew | None:
    """Return the crew that the options ask for, None for this process alone.

    Raises:
        click.UsageError: both are given, or a cluster with a database that is a file.
    """
    if not (workers or cluster):
        return None
    from search_spaces.crews import LocalCrew, RayCrew
    from tuned_db.database.opening import locate

    if workers and cluster:
        raise click.UsageError("give --workers or --cluster, not both")
    url = locate(where)
    shared = url.render_as_string(hide_password=False)
    if workers:
        return LocalCrew(workers, families, shared)
    assert cluster
    if cluster != "local" and url.get_backend_name() == "sqlite":
        raise click.UsageError(
            f"nodes of a cluster cannot share the file {url.database}: "
            "give --db postgresql://USER@HOST/NAME"
        )
    return RayCrew(cluster, families, shared)


def _with_crew(
    out: Console, crew: LocalCrew | RayCrew, workload: Workload, budget: Budget, ends: float
) -> list[TuneResult]:
    """Tune every problem on every kind of device of the crew; print each turn, then the tables."""
    from oclgen.opencl.exclusive import kind_of
    from search_spaces.crews import spread
    from search_spaces.progress import FEW
    from tuned_db import open_store

    def told(kind: str, result: TuneResult) -> None:
        best = f"{result.best.ms:.4g} ms" if result.best else result.reason or "nothing works yet"
        out.print(f"{kind} {result.problem.key()}: {result.trials} trials, best {best}")

    calls = workload.calls or dict.fromkeys(workload.problems, 1)
    devices = crew.devices()
    out.print("devices: " + ", ".join(f"{n} x {kind}" for kind, n in devices.items()))
    # a few at a time, those of a network go where its time goes; of a list each problem has its own
    lots = spread(crew, calls, budget, ends, told, trials=FEW if workload.calls else budget.trials)
    known = {kind_of(info): peaks for info, peaks in open_store(crew.where).peaks().items()}
    for lot in lots:
        table = table_of(lot.all_results, known.get(lot.kind, {}))
        table.title = lot.kind
        out.print(table)
    return [result for lot in lots for result in lot.all_results]
