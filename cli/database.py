"""`oclgen db`: look at the database, take records out of it and into it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import click
from rich.table import Table

from oclgen import GENERATOR_VERSION

from .console import console
from .options import db_option


@click.group("db")
def database() -> None:
    """Export, import and list what was tuned."""


@database.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@db_option
def export(file: Path, where: str | None) -> None:
    """Write every winner to FILE as JSON lines, sorted ("-": standard output)."""
    from tuned_db import open_store, write_records

    store = open_store(where)
    records = store.all_winners()
    if str(file) == "-":
        write_records(records, sys.stdout.buffer)
        return
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with part.open("wb") as stream:
            count = write_records(records, stream)
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from error
    click.echo(f"{count} records of {store.name} written to {file}")


@database.command("import")
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path))
@db_option
def import_(file: Path, where: str | None) -> None:
    """Take in the records of FILE where they are faster; none if one line is bad."""
    from tuned_db import open_store, read_records

    try:
        with _input(file) as stream:
            records = read_records(str(file), stream)
    except OSError as error:
        raise click.ClickException(f"cannot read {file}: {error.strerror}") from error
    store = open_store(where)
    merge = store.merge(records)
    click.echo(
        f"{merge.improved} records taken into {store.name}; {merge.kept} were known or not faster"
    )


def _input(file: Path) -> IO[bytes] | nullcontext[IO[bytes]]:
    return nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb")


@database.command("list")
@click.option("--limit", default=50, show_default=True, help="Lines to print; 0 for all.")
@db_option
def list_(limit: int, where: str | None) -> None:
    """List the winners: device, problem, family, config, time."""
    from oclgen.keys import parse_key
    from oclgen.problem import ProblemError
    from tuned_db import open_store

    store = open_store(where)
    records = store.all_winners()
    table = Table("device", "problem", "family", "config", "ms", "GFLOP/s", "trials")
    for record in records[: limit or None]:
        try:
            rate = f"{parse_key(record.problem).flops / record.ms / 1e6:.1f}"
        except ProblemError:  # of another generator version
            rate = "?"
        ms, trials = f"{record.ms:.4g}", str(record.trials)
        config = record.config.replace('"', "")
        table.add_row(record.device.name, record.problem, record.family, config, ms, rate, trials)
    out = console()
    out.print(f"{store.name}: {len(records)} winners")
    if records:
        out.print(table)
    if limit and len(records) > limit:
        out.print(f"... and {len(records) - limit} more; --limit 0 prints all")


@database.command("stats")
@db_option
def stats(where: str | None) -> None:
    """Count the winners by device, driver and generator version."""
    from tuned_db import open_store

    store = open_store(where)
    counts = Counter((r.device, r.generator) for r in store.all_winners())
    out = console()
    out.print(f"{store.name}: {counts.total()} winners")
    table = Table("device", "runtime", "driver", "generator", "winners")
    for (device, generator), count in counts.items():
        stale = "" if generator == GENERATOR_VERSION else " (this is another)"
        table.add_row(
            device.name, device.runtime, device.driver_version, generator + stale, str(count)
        )
    if counts:
        out.print(table)
