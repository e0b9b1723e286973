"""`oclgen db serve`, `push` and `pull`: a database that people share over HTTP."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from itertools import chain
from typing import Any

import click

from .console import console
from .options import db_option

HOST, PORT = "127.0.0.1", 8787
TOKEN = "OCLGEN_TOKEN"


def _networks(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> Any:
    """Return addresses and networks as they are; a name or a pattern would trust too many."""
    for one in given:
        try:
            ip_network(one)
        except ValueError as error:
            raise click.BadParameter(f"{error}; an address or a network is needed") from error
    return given


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
@click.option(
    "--connections",
    default=100,
    show_default=True,
    type=click.IntRange(1),
    help="Most connections of one address at a time.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    callback=_networks,
    help="A server before this one (or a network), whose X-Forwarded-For is believed; repeatable.",
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Processes that answer; each counts what an address does with it.",
)
@click.option("--private", is_flag=True, help="Reading needs a token, too, also of /metrics.")
@click.option("--open-metrics", is_flag=True, help="With --private: /metrics needs no token.")
@db_option
def serve(
    host: str,
    port: int,
    reads: float,
    writes: float,
    connections: int,
    proxies: tuple[str, ...],
    workers: int,
    private: bool,
    open_metrics: bool,
    where: str | None,
) -> None:
    """Serve the database: pages for a browser, and an API that push and pull speak to.

    Reading needs no token; writing needs a token of `oclgen db token add`. For the open internet
    put a server that speaks TLS in front of it, and name it by --proxy. Every request is a line of
    JSON on standard error; /healthz and /metrics are for what watches the service. Of IPv6 the
    limits count the /64 that one customer has.
    """
    try:
        from tuned_db.service import processes
    except ImportError as error:
        raise click.ClickException(
            f"the service needs {error.name}: pip install 'oclgen[serve]'"
        ) from error
    from tuned_db import open_existing
    from tuned_db.service.guard import RequestLimits

    name = open_existing(where).name  # what is wrong with it is said here, and once
    click.echo(f"serving {name} at http://{host}:{port}/ (Ctrl-C ends)")
    limits = RequestLimits(reads_per_s=reads, writes_per_s=writes)
    endpoint = processes.Endpoint(host, port, workers, limits, connections, proxies)
    processes.run(where, endpoint, private=private, open_metrics=open_metrics)


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
    out = console(aside=True)
    with Client(url, secret, say=out.print) as client, out.status("sending") as status:
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
@click.option("--token", "secret", envvar=TOKEN, metavar="TOKEN", help="Where reading is private.")
@db_option
def pull(url: str, architecture: str, kind: str, secret: str | None, where: str | None) -> None:
    """Fetch the winners of the service at URL; they serve at once, as unverified.

    `oclgen db verify` measures on this machine what would serve here.
    """
    from tuned_db import open_store
    from tuned_db.service.client import Client
    from tuned_db.storage.batches import Source

    improved = kept = 0
    out, source = console(aside=True), Source()
    with Client(url, secret or "", say=out.print) as client, out.status("fetching") as status:
        pages = client.pull(architecture, kind)
        first = next(pages)  # where it fails, no database is made
        store = open_store(where)
        for records in chain((first,), pages):
            merge = store.merge(records, f"pull from {client.host}"[:100], source)
            source = replace(source, batch=merge.batch)
            improved, kept = improved + merge.improved, kept + merge.kept
            status.update(f"fetched {improved + kept} records")
    click.echo(
        f"{improved} records of {client.host} taken into {store.name}; "
        f"{kept} were known or not faster"
    )
