"""`oclgen tune`: find the fastest variants for a device and keep them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import click

from oclgen.families import FAMILIES, ConfigError, families_for
from oclgen.problem import Problem

from .console import console
from .options import db_option, device_option, json_option
from .results import table_of, values_of
from .spreading import crew_of, run_crew
from .workload import Workload, gather, workload_options

if TYPE_CHECKING:
    from rich.console import Console

    from search_spaces.progress import TuneResult


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
    help="For all shapes together; 0: no limit.",
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
    help="Use every device of this machine, with at most so many processes.",
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
    time goes.
    """
    from oclgen.opencl.device import select
    from search_spaces.progress import Budget
    from tuned_db.database import ENVIRONMENT

    opened = select(device)
    if where:
        os.environ[ENVIRONMENT] = where  # a model's own dispatch reads the same database
    workload = gather(opened.limits, f"ocl:{opened.index}", **asked)
    _require_families(families, workload.problems)
    budget = Budget(trials, time_budget or inf, seed, "cold" if cold else "warm", _study(study))
    out = console(aside=as_json)
    tried = frozenset(families) or None
    if crew := crew_of(workers, cluster, tried, where):
        results = run_crew(out, crew, workload, budget)
    else:
        results = _with_gain(out, opened, workload, budget, tried, where)
    if as_json:
        click.echo(json.dumps([values_of(result) for result in results], indent=1))
    statuses = {result.status for result in results}
    if "interrupted" in statuses:
        raise click.Abort
    if "no variant" in statuses:
        ctx.exit(1)


def _study(where: str | None) -> str | None:
    """Return the URL of Optuna's database as SQLAlchemy takes it, with a driver that is here."""
    from tuned_db.database import locate, with_driver

    return where and with_driver(locate(where)).render_as_string(hide_password=False)


def _with_gain(
    out: Console,
    device: Any,
    workload: Workload,
    budget: Any,
    families: frozenset[str] | None,
    where: str | None,
) -> list[TuneResult]:
    """Tune; of a network, say what it gained."""

    def tuned() -> list[TuneResult]:
        return run(device, workload.problems, budget, families, where, workload.calls, out)

    if workload.network is None:
        return tuned()
    from tuned_db import open_store

    from .gain import Before

    before = Before.of(workload.network, workload.calls, device.index)
    results = tuned()
    out.print(before.compare(results, open_store(where).of(device.info)))
    return results


def _require_families(families: Sequence[str], problems: Sequence[Problem]) -> None:
    for name in families:
        if name not in FAMILIES:
            raise ConfigError(f"family {name!r} is unknown; known are {', '.join(FAMILIES)}")
    for problem in problems:
        serving = [family.NAME for family in families_for(problem)]
        if families and not set(families) & set(serving):
            raise ConfigError(
                f"{', '.join(families)} cannot serve {problem.key()}; use {', '.join(serving)}"
            )


def run(
    device: Any,
    problems: Sequence[Problem],
    budget: Any,
    families: frozenset[str] | None = None,
    where: str | None = None,
    calls: Mapping[Problem, int] | None = None,
    out: Console | None = None,
) -> list[TuneResult]:
    """Tune with a bar, print the table, and return the results.

    `calls` are how often a network runs each problem; without them all count the same.
    """
    from oclgen.measuring import peak
    from oclgen.measuring.worker import Worker
    from oclgen.opencl.exclusive import exclusive, locks
    from search_spaces.spread import tune_network
    from search_spaces.tune import tune as search
    from tuned_db import open_store

    from .progress import TuningBar
    from .tuning import tuner_for

    out = out or console()
    store = open_store(where)
    best = peak.measure(device)
    store.of(device.info).note_peak(best.gflops, best.gbytes)
    out.print(
        f"{device.name} ({device.info.runtime}), measured peak {best.gflops:.0f} GFLOP/s fp32, "
        f"{best.gbytes:.0f} GB/s. Results go to {store.name}."
    )
    bar = TuningBar(out, len(problems), budget.trials, budget.seconds)
    alone = exclusive(locks([device]), lambda: out.print("waiting: another process measures on it"))
    with alone, Worker(device.index, device.info, cache=budget.cache) as worker, bar:
        tuner = tuner_for(device, worker, store, budget, families, bar.report)
        results = tune_network(tuner, calls) if calls else search(tuner, problems)
    out.print(table_of(results, best.gflops))
    return results
