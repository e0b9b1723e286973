"""`oclgen db list` and `stats`: what the database holds, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from .console import console
from .options import db_option, json_option

if TYPE_CHECKING:
    from tuned_db import Record


@click.command("list")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(0),
    help="Lines to print; 0 for all.",
)
@click.option("--unverified", is_flag=True, help="Only what was imported or pulled, not checked.")
@json_option
@db_option
def list_(limit: int, unverified: bool, as_json: bool, where: str | None) -> None:
    """List the winners: device, problem, family, config, time, and whether it was checked here."""
    from tuned_db import open_existing

    store = open_existing(where)
    records = [r for r in store.all_winners() if not (unverified and r.verified)]
    shown = records[: limit or None]
    if as_json:
        click.echo(json.dumps([_values(record) for record in shown], indent=1))
        return
    out = console()
    out.print(f"{store.name}: {len(records)} winners")
    if records:
        out.print(_table(shown))
    if limit and len(records) > limit:
        out.print(f"... and {len(records) - limit} more; --limit 0 prints all")


def _values(record: Record) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(record.to_line())
    return line | {"ms": record.ms, "verified": record.verified, "origin": record.origin}


def _table(records: list[Record]) -> Table:
    from tuned_db.views.analysis import rate_of

    table = Table(
        "device", "problem", "family", "config", "ms", "GFLOP/s", "of peak", "trials", "checked"
    )
    for record in records:
        rate = rate_of(record)
        table.add_row(
            record.device.name,
            record.problem,
            record.family,
            record.config.replace('"', ""),
            f"{record.ms:.4g}" + (" cold" if record.cache == "cold" else ""),
            f"{rate.gflops:.1f}" if rate else "?",
            f"{rate.of_peak:.0%}" if rate and rate.of_peak is not None else "?",
            str(record.trials),
            "here" if record.verified else f"unverified ({record.origin})",
        )
    return table


@click.command("stats")
@json_option
@db_option
def stats(as_json: bool, where: str | None) -> None:
    """Count the winners by device, driver and the version of the generator that wrote them."""
    from tuned_db import open_existing

    store = open_existing(where)
    winners = store.all_winners()
    counts = Counter((r.device, r.generator) for r in winners)
    claims = Counter((r.device, r.generator) for r in winners if not r.verified)
    if as_json:
        rows = [
            asdict(device)
            | {"generator": generator, "winners": n, "unverified": claims[device, generator]}
            for (device, generator), n in counts.items()
        ]
        click.echo(json.dumps({"winners": len(winners), "devices": rows}, indent=1))
        return
    out = console()
    out.print(f"{store.name}: {counts.total()} winners")
    table = Table("device", "runtime", "driver", "generator", "winners", "unverified")
    for (device, generator), count in counts.items():
        numbers = (str(count), str(claims[device, generator]))
        table.add_row(device.name, device.runtime, device.driver_version, generator, *numbers)
    if counts:
        out.print(table)
