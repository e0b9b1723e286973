"""`oclgen db`: moves records out of the database and into it, and tidies it up."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress

from .console import console
from .contributions import contribute, dataset, import_
from .foreign import foreign
from .options import db_option
from .records import list_, stats
from .sharing import pull, push, serve
from .signing import consensus, key, sign
from .trust import backup, batches, quarantine, thin, token, undo
from .verify import verify


@click.group("db")
def database() -> None:
    """Look at what was tuned, share it, check it, tidy it up."""


@database.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--history", is_flag=True, help="Write every measurement that went well.")
@db_option
def export(file: Path, history: bool, where: str | None) -> None:
    """Write every winner to FILE as JSON lines, sorted ("-": standard output)."""
    from tuned_db import open_existing, write_records

    store = open_existing(where)
    records = store.history() if history else store.all_winners()
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


@database.command("measurements")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@db_option
def measurements(file: Path, where: str | None) -> None:
    """Write every measurement made here to FILE (JSON lines under gzip), failures too.

    Of such tables `python -m benchmarks fit` makes the model that chooses where there is no record.
    """
    from tuned_db import open_existing
    from tuned_db.files.table import of_store, write

    store = open_existing(where)
    try:
        count = write(file, of_store(store))
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from error
    click.echo(f"{count} measurements of {store.name} written to {file}")


@database.command("merge")
@click.argument("others", nargs=-1, required=True, metavar="DATABASE...")
@click.option(
    "--trusted",
    is_flag=True,
    help="Their measurements were made on this machine: take them as verified.",
)
@db_option
def merge(others: tuple[str, ...], trusted: bool, where: str | None) -> None:
    """Take in all that other databases (URLs or files) hold, failures and history too."""
    from tuned_db import open_existing, open_store
    from tuned_db.storage.upkeep import absorb

    sources = [open_existing(other) for other in others]
    store = open_store(where)
    for source in sources:
        came = absorb(store, source, trusted=trusted)
        click.echo(
            f"{came.new} measurements of {source.name} taken into {store.name}, {came.improved} "
            f"of them new winners; {came.known} were known"
        )


@database.command("prune")
@click.option("--failures", is_flag=True, help="Variants that did not work; they are tried again.")
@click.option("--history", is_flag=True, help="All that is no winner.")
@click.option("--unverified", "claims", is_flag=True, help="What was not measured here.")
@click.option("--outdated", is_flag=True, help="What ran other kernels than today's, or unknown.")
@click.option("--origin", default="", help="What came this way, as `db list` shows it.")
@click.option("--dry-run", is_flag=True, help="Only say how many measurements would go.")
@db_option
def prune(dry_run: bool, where: str | None, **wanted: Any) -> None:
    """Drop measurements for which any of the options holds; the next best becomes the winner."""
    from tuned_db import open_existing
    from tuned_db.storage.upkeep import Prune
    from tuned_db.storage.upkeep import prune as drop

    what = Prune(**wanted)
    if what == Prune():
        raise click.UsageError("Say what is to be dropped, such as --failures; see --help.")
    store = open_existing(where)
    out = console(aside=True)
    with Progress(console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("comparing kernels", visible=what.outdated, total=None)
        count = drop(
            store,
            what,
            dry_run=dry_run,
            report=lambda done, total: bar.update(task, completed=done, total=total),
        )
    click.echo(f"{count} measurements {'would go' if dry_run else 'dropped'} from {store.name}")


for command in (
    list_, stats, import_, contribute, push, pull, serve, token, verify, batches, foreign, dataset,
    undo, quarantine, backup, thin, key, sign, consensus,
):  # fmt: skip
    database.add_command(command)
