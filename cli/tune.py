"""`oclgen tune`: find the fastest variants for a device and keep them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Any, TextIO

import click
from rich.table import Table

from oclgen.families import FAMILIES, ConfigError, families_for
from oclgen.keys import CONV_FORM, GEMM_FORM, parse_conv, parse_gemm, parse_key
from oclgen.problem import Problem

from .console import console
from .options import db_option, device_option

if TYPE_CHECKING:
    from search_spaces.progress import TuneResult


@click.command()
@device_option
@click.option("--gemm", "gemms", multiple=True, metavar="SHAPE", help=f"{GEMM_FORM}. Repeatable.")
@click.option("--conv", "convs", multiple=True, metavar="SHAPE", help=f"{CONV_FORM}. Repeatable.")
@click.option(
    "--problems",
    "listed",
    type=click.File(),
    help="File with one problem per line, written as torch.ocl.explain prints them; - is stdin.",
)
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
@click.option(
    "--family",
    "families",
    multiple=True,
    metavar="NAME",
    help="Try only this kernel family. Repeatable.",
)
@db_option
@click.pass_context
def tune(
    ctx: click.Context,
    device: str,
    gemms: Sequence[str],
    convs: Sequence[str],
    listed: TextIO | None,
    trials: int,
    time_budget: float,
    seed: int,
    families: Sequence[str],
    where: str | None,
) -> None:
    """Search the fastest kernels for the given shapes, or for a default set of them.

    Every variant is verified before its time counts, and is kept at once: Ctrl-C loses nothing,
    and a later run goes on where this one ended.
    """
    from oclgen.device import select
    from search_spaces.progress import Budget
    from search_spaces.workloads import default_problems

    problems: list[Problem] = [*map(parse_gemm, gemms), *map(parse_conv, convs)]
    problems += [parse_key(line.strip()) for line in listed or () if line.strip()]
    opened = select(device)
    problems = problems or default_problems(opened.limits)
    _require_families(families, problems)
    budget = Budget(trials, time_budget or inf, seed)
    results = run(opened, problems, budget, frozenset(families) or None, where)
    statuses = {result.status for result in results}
    if "interrupted" in statuses:
        raise click.Abort
    if "no variant" in statuses:
        ctx.exit(1)


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
) -> list[TuneResult]:
    """Tune with a bar, print the table, and return the results."""
    from oclgen import peak
    from oclgen.worker import Worker
    from search_spaces.tune import Tuner
    from search_spaces.tune import tune as search
    from tuned_db import Chooser, open_store

    from .progress import TuningBar

    out = console()
    store = open_store(where)
    best = peak.measure(device)
    out.print(
        f"{device.name} ({device.info.runtime}), measured peak {best.gflops:.0f} GFLOP/s fp32, "
        f"{best.gbytes:.0f} GB/s. Results go to {store.name}."
    )
    bar = TuningBar(out, len(problems), budget.trials, budget.seconds)
    with Worker(device.index, device.info) as worker, bar:
        tuner = Tuner(
            limits=device.limits,
            measure=worker.measure,
            results=store.of(device.info),
            budget=budget,
            families=families,
            starts=Chooser(store, device.info, device.limits).starts,
            report=bar.report,
        )
        results = search(tuner, problems)
    out.print(_table(results, best.gflops))
    return results


def _table(results: Sequence[TuneResult], peak_gflops: float) -> Table:
    """Return one row per problem; family and config stand below it, for narrow terminals."""
    table = Table("problem\nfamily: config", "ms", "GFLOP/s", "of peak", "trials", show_lines=True)
    for result in results:
        trials = ", ".join(f"{n} {_outcome(kind)}" for kind, n in sorted(result.outcomes.items()))
        trials = f"{result.status}\n{trials}" if trials else result.status
        key = result.problem.key()
        if result.best is None:
            table.add_row(f"{key}\n{result.reason[:200]}", "", "", "", trials)
            continue
        rate = result.problem.flops / result.best.ms / 1e6
        config = " ".join(f"{key}={value}" for key, value in asdict(result.best.config).items())
        table.add_row(
            f"{key}\n{result.best.family}: {config}",
            f"{result.best.ms:.4g}",
            f"{rate:.1f}",
            f"{rate / peak_gflops:.0%}",
            trials,
        )
    table.caption = "GFLOP/s count the direct algorithm: Winograd may pass the peak."
    return table


def _outcome(invalidity: str) -> str:
    return "timed" if invalidity == "none" else f"failed ({invalidity})"
