"""`oclgen tune --workers` and `--cluster`: many devices at once, and what is shown meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console

from .results import table_of
from .workload import Workload

if TYPE_CHECKING:
    from search_spaces.progress import Budget, TuneResult
    from search_spaces.spread import Lot

    from .crews import LocalCrew, RayCrew


def crew_of(
    workers: int | None, cluster: str | None, families: frozenset[str] | None, where: str | None
) -> LocalCrew | RayCrew | None:
    """Return the crew that the options ask for, None for this process alone.

    Raises:
        click.UsageError: both are given, or a cluster with a database that is a file.
    """
    if not (workers or cluster):
        return None
    from tuned_db.database import locate

    from .crews import LocalCrew, RayCrew

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


def run_crew(
    out: Console, crew: LocalCrew | RayCrew, workload: Workload, budget: Budget
) -> list[TuneResult]:
    """Tune every problem on every kind of device of the crew; print each turn, then the tables.

    An interrupt ends the crew's turns; what they measured is kept.
    """
    from search_spaces.spread import SLICE, Lot, Spread

    def told(kind: str, result: TuneResult) -> None:
        best = f"{result.best.ms:.4g} ms" if result.best else result.reason or "nothing works yet"
        out.print(f"{kind} {result.problem.key()}: {result.trials} trials, best {best}")

    calls = workload.calls or dict.fromkeys(workload.problems, 1)
    with crew as ready:
        devices = ready.devices()
        if not devices:
            raise click.ClickException("the crew has no OpenCL device; see `oclgen ray-resources`")
        out.print("devices: " + ", ".join(f"{n} x {kind}" for kind, n in devices.items()))
        lots = [Lot.of(kind, calls) for kind in devices]
        slice_ = SLICE if workload.calls else budget.trials
        try:
            Spread(ready, lots, budget, slice=slice_, told=told).run()
        except KeyboardInterrupt:
            _interrupt(lots)
    for lot in lots:
        table = table_of(lot.results)
        table.title = lot.kind
        out.print(table)
    return [result for lot in lots for result in lot.results]


def _interrupt(lots: Sequence[Lot]) -> None:
    for lot in lots:
        for task, result in zip(lot.tasks, lot.results, strict=True):
            if task.busy:
                result.status = "interrupted"
