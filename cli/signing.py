"""`oclgen db key`, `sign` and `consensus`: whose files are trusted, and how contributors agree."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from .console import console
from .options import db_option, json_option

private_option = click.option(
    "--key",
    "private",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the private key. Default: key.pem in the user's configuration.",
)


def signature_of(file: Path) -> Path:
    """Return the file beside a file that holds its signature."""
    return file.with_name(f"{file.name}.sig")


@click.group()
def key() -> None:
    """Keys that sign contributions, and those that are trusted here."""


@key.command("make")
@private_option
def make(private: Path | None) -> None:
    """Make a private key for this user and print its public key."""
    from tuned_db.trust.signatures import key_file, make_key

    click.echo(make_key(private or key_file()))


@key.command("show")
@private_option
def show(private: Path | None) -> None:
    """Print the public key, for those who are to trust it."""
    from tuned_db.trust.signatures import key_file, public_key

    click.echo(public_key(private or key_file()))


@key.command("trust")
@click.argument("name")
@click.argument("public")
@db_option
def trust(name: str, public: str, where: str | None) -> None:
    """Take what is signed with PUBLIC as NAME's from now on."""
    from tuned_db import open_store
    from tuned_db.trust import signatures

    signatures.trust(open_store(where).database, name, public)
    click.echo(f"what is signed with this key is {name}'s")


@key.command("distrust")
@click.argument("name")
@db_option
def distrust(name: str, where: str | None) -> None:
    """Trust NAME's key no more; `oclgen db quarantine "signed by NAME"` is for what came."""
    from tuned_db import open_existing
    from tuned_db.trust import signatures

    signatures.distrust(open_existing(where).database, name)
    click.echo(f"the key of {name} is not trusted any more")


@key.command("list")
@json_option
@db_option
def list_(as_json: bool, where: str | None) -> None:
    """List the keys that are trusted here."""
    from tuned_db import open_existing
    from tuned_db.trust.signatures import trusted

    found = trusted(open_existing(where).database)
    if as_json:
        names = ("name", "key", "created")
        click.echo(json.dumps([dict(zip(names, row, strict=True)) for row in found], indent=1))
    else:
        for name, public, created in found:
            click.echo(f"{name}  {public}  since {created}")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@private_option
def sign(file: Path, private: Path | None) -> None:
    """Sign FILE, an export or a check file: its signature is written beside it, as FILE.sig."""
    from tuned_db.trust.signatures import key_file
    from tuned_db.trust.signatures import sign as signed

    path = signature_of(file)
    try:
        path.write_text(
            signed(file.read_bytes(), private or key_file()).to_json(), encoding="utf-8"
        )
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
    click.echo(f"signature written to {path}")


@click.command()
@click.option("--least", default=2, show_default=True, type=click.IntRange(1), help="Contributors.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(0), help="0 for all.")
@json_option
@db_option
def consensus(least: int, limit: int, as_json: bool, where: str | None) -> None:
    """Show how contributors agree on what is fastest on a device model, problem by problem."""
    from tuned_db import open_existing
    from tuned_db.trust.consensus import agreements

    found = agreements(open_existing(where), least)[: limit or None]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=1))
        return
    table = Table("device", "problem", "contributors", "agree", "variant", "ms", "spread")
    for one in found:
        problem = one.problem + (" cold" if one.cache == "cold" else "")
        numbers = (str(one.contributors), str(one.agree))
        variant = f"{one.family} {one.config}".replace('"', "")
        table.add_row(one.device, problem, *numbers, variant, f"{one.ms:.4g}", f"{one.spread:.2f}")
    console().print(table)
