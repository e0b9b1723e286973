"""`db token`, `batches`, `undo`, `quarantine`, `backup`, `thin`: who may send, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from .console import console
from .options import db_option, json_option

ROLES = ("reader", "contributor", "maintainer")


@click.group()
def token() -> None:
    """Tokens for a database that is served."""


@token.command("add")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="contributor",
    show_default=True,
    help="reader: reads where that is private; contributor: also sends; maintainer: also undoes.",
)
@click.option("--days", type=click.IntRange(1), help="Days until it expires. Default: never.")
@click.option("--daily", type=click.IntRange(1), help="Most records that it may send in 24 hours.")
@click.option("--create", is_flag=True, help="Make the database if it is not there.")
@db_option
def add(
    name: str, role: str, days: int | None, daily: int | None, create: bool, where: str | None
) -> None:
    """Print a new token for NAME; it cannot be shown again, only its hash is kept."""
    from tuned_db import open_existing, open_store
    from tuned_db.trust.tokens import add_token

    store = open_store(where) if create else open_existing(where)
    click.echo(add_token(store.database, name, role, days, daily))


@token.command("list")
@json_option
@db_option
def list_(as_json: bool, where: str | None) -> None:
    """Show who may do what, since when, until when, and when a token was last used."""
    from tuned_db import open_existing
    from tuned_db.trust.tokens import list_tokens

    _print([asdict(one) for one in list_tokens(open_existing(where).database)], as_json)


@token.command("revoke")
@click.argument("name")
@db_option
def revoke(name: str, where: str | None) -> None:
    """Take NAME's token back; `oclgen db undo` or `quarantine` is for what it wrote."""
    from tuned_db import open_existing
    from tuned_db.trust.tokens import revoke_token

    revoke_token(open_existing(where).database, name)
    click.echo(f"the token of {name} is no longer valid")


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    help="Lines to print; 0 for all.",
)
@json_option
@db_option
def batches(limit: int, as_json: bool, where: str | None) -> None:
    """List what came from elsewhere at once: who sent it, from where, when, how many records."""
    from tuned_db import open_existing
    from tuned_db.storage.batches import list_batches

    found = list_batches(open_existing(where).database, limit)
    _print([asdict(one) for one in found], as_json)


@click.command()
@click.argument("batch", type=click.IntRange(1))
@db_option
def undo(batch: int, where: str | None) -> None:
    """Drop what BATCH, a number of `oclgen db batches`, brought; the next best win again."""
    from tuned_db import open_existing
    from tuned_db.trust.withdrawn import undo as take_back

    store = open_existing(where)
    click.echo(f"{take_back(store, batch)} measurements dropped from {store.name}")


@click.command()
@click.argument("origin", required=False)
@click.option("--reason", default="", help="Is listed beside it.")
@click.option("--release", is_flag=True, help="Let its claims serve again.")
@json_option
@db_option
def quarantine(
    origin: str | None, reason: str, release: bool, as_json: bool, where: str | None
) -> None:
    """Let no claim of ORIGIN ("push by NAME", "pull from HOST") serve, also none that comes later.

    Without ORIGIN, list what is in quarantine.
    """
    from tuned_db import open_existing
    from tuned_db.trust import withdrawn

    store = open_existing(where)
    if origin is None:
        names = ("origin", "reason", "since")
        found = withdrawn.quarantined(store.database)
        _print([dict(zip(names, row, strict=True)) for row in found], as_json)
    elif release:
        withdrawn.release(store, origin)
        click.echo(f"{origin} is believed again")
    else:
        lost = withdrawn.quarantine(store, origin, reason)
        click.echo(f"{origin} is in quarantine; {lost} of its claims lost their place")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@db_option
def backup(file: Path, where: str | None) -> None:
    """Copy the database to FILE while others use it; FILE is a database that --db takes.

    For SQLite. PostgreSQL has pg_dump.
    """
    from tuned_db import open_existing
    from tuned_db.database.opening import copy_to

    store = open_existing(where)
    copy_to(store.database, file)
    click.echo(f"{store.name} copied to {file}")


@click.command()
@click.option(
    "--days",
    type=click.IntRange(1),
    default=365,
    show_default=True,
    help="What is younger stays.",
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Variants of a problem of which old times stay, the fastest.",
)
@click.option("--apply", is_flag=True, help="Drop it; without this, only say how much would go.")
@db_option
def thin(days: int, keep: int, apply: bool, where: str | None) -> None:
    """Drop old measurements that serve nothing: repeats, slow variants, claims settled here.

    Winners stay, and of each variant that failed its last failure, so that it is not tried again.
    """
    from tuned_db import open_existing
    from tuned_db.storage.retention import retention_of
    from tuned_db.storage.retention import thin as drop

    store = open_existing(where)
    with console(aside=True).status("thinning") as status:
        count = drop(
            store,
            retention_of(days, keep),
            dry_run=not apply,
            report=lambda gone: status.update(f"{gone} measurements"),
        )
    said = "dropped" if apply else "would go; --apply drops them,"
    click.echo(f"{count} measurements {said} from {store.name}")


def _print(rows: Iterable[dict[str, Any]], as_json: bool) -> None:
    found = list(rows)
    if as_json:
        click.echo(json.dumps(found, indent=1))
    elif found:
        table = Table(*found[0])
        for row in found:
            table.add_row(*("-" if value is None else str(value) for value in row.values()))
        console().print(table)
