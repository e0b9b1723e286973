"""`oclgen db serve`, `push`, `pull` and `token`: a database that people share over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.table import Table

from .console import console
from .options import db_option

HOST, PORT = "127.0.0.1", 8787
TOKEN = "OCLGEN_TOKEN"
PATIENCE_S = 10
"""How long the service keeps an idle connection, and finishes what it does when it is stopped."""


@click.command()
@click.option("--host", default=HOST, show_default=True, help="Address to listen on.")
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(1, 65535))
@click.option(
    "--reads",
    default=20.0,
    show_default=True,
    type=click.FloatRange(0.01),
    help="Reading requests per second of one address; ten seconds' worth may come at once.",
)
@click.option(
    "--writes",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.01),
    help="Writing requests per second of one address.",
)
@db_option
def serve(host: str, port: int, reads: float, writes: float, where: str | None) -> None:
    """Serve the database: pages for a browser, and an API that push and pull speak to.

    Reading needs no token; writing needs a token of `oclgen db token add`. For
    the open internet put a server that speaks TLS in front of it.
    """
    try:
        import uvicorn

        from tuned_db.service.app import create_app
    except ImportError as error:
        raise click.ClickException(
            f"the service needs {error.name}: pip install 'oclgen[serve]'"
        ) from error
    from tuned_db import open_existing
    from tuned_db.service.guard import Limits

    store = open_existing(where)
    click.echo(f"serving {store.name} at http://{host}:{port}/ (Ctrl-C ends)")
    uvicorn.run(
        create_app(store, Limits(reads_per_s=reads, writes_per_s=writes)),
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        limit_concurrency=1000,
        timeout_keep_alive=PATIENCE_S,
        timeout_graceful_shutdown=PATIENCE_S,
    )


@click.command()
@click.argument("url")
@click.option("--token", "secret", envvar=TOKEN, metavar="TOKEN", help=f"Default: ${TOKEN}.")
@click.option("--history", is_flag=True, help="Send every measurement that went well.")
@db_option
def push(url: str, secret: str | None, history: bool, where: str | None) -> None:
    """Send what was measured here to the service at URL; records carry no names and no paths."""
    from tuned_db import open_existing
    from tuned_db.service.client import BATCH, Client

    if not secret:
        raise click.UsageError(f"Writing needs a token: --token, or set {TOKEN}.")
    store = open_existing(where)
    records = [r for r in (store.history() if history else store.all_winners()) if r.verified]
    improved = kept = 0
    with Client(url, secret) as client, console(aside=True).status("sending") as status:
        for start in range(0, len(records), BATCH):
            merge = client.push(records[start : start + BATCH])
            improved, kept = improved + merge.improved, kept + merge.kept
            status.update(f"sent {improved + kept} of {len(records)} records")
    click.echo(
        f"{len(records)} records of {store.name} sent to {client.host}: "
        f"{improved} are winners there, {kept} were known or not faster"
    )


@click.command()
@click.argument("url")
@click.option("--architecture", default="", help="Only devices of this one, as `db list` has it.")
@click.option("--kind", default="", type=click.Choice(["", "cpu", "gpu", "other"]))
@db_option
def pull(url: str, architecture: str, kind: str, where: str | None) -> None:
    """Fetch the winners of the service at URL; they serve at once, as unverified.

    `oclgen db verify` measures on this machine what would serve here.
    """
    from tuned_db import open_store
    from tuned_db.service.client import Client

    store = open_store(where)
    improved = kept = 0
    with Client(url) as client, console(aside=True).status("fetching") as status:
        for records in client.pull(architecture, kind):
            merge = store.merge(records, origin=f"pull from {client.host}"[:100])
            improved, kept = improved + merge.improved, kept + merge.kept
            status.update(f"fetched {improved + kept} records")
    click.echo(
        f"{improved} records of {client.host} taken into {store.name}; "
        f"{kept} were known or not faster"
    )


@click.group()
def token() -> None:
    """Tokens for writing to a database that is served."""


@token.command("add")
@click.argument("name")
@click.option("--create", is_flag=True, help="Make the database if it is not there.")
@db_option
def add(name: str, create: bool, where: str | None) -> None:
    """Print a new token for NAME; it cannot be shown again, only its hash is kept."""
    from tuned_db import open_existing, open_store
    from tuned_db.tokens import add_token

    store = open_store(where) if create else open_existing(where)
    click.echo(add_token(store.database, name))


@token.command("list")
@db_option
def list_(where: str | None) -> None:
    """Show who may write, and since when."""
    from tuned_db import open_existing
    from tuned_db.tokens import list_tokens

    _print(list_tokens(open_existing(where).database))


@token.command("revoke")
@click.argument("name")
@db_option
def revoke(name: str, where: str | None) -> None:
    """Take NAME's token back; `oclgen db prune --origin "push by NAME"` drops what it wrote."""
    from tuned_db import open_existing
    from tuned_db.tokens import revoke_token

    revoke_token(open_existing(where).database, name)
    click.echo(f"the token of {name} is no longer valid")


def _print(tokens: Sequence[tuple[str, str]]) -> None:
    table = Table("name", "since")
    for row in tokens:
        table.add_row(*row)
    console().print(table)
