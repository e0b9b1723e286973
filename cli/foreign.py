"""`oclgen db foreign`: keeps, writes and searches other tuners' measurements of their kernels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from .console import console
from .options import db_option, json_option
from .sharing import TOKEN

if TYPE_CHECKING:
    from tuned_db.tuners.foreign import Near

FORMATS = ("kernel_tuner", "t4", "clblast", "triton")


def _sizes(_: click.Context, __: click.Parameter, value: str | None) -> dict[str, int] | None:
    """Return sizes by name of a text such as m=1024,n=512; without names they are "0", "1"..."""
    if value is None:
        return None
    parts = [part.rpartition("=") for part in value.split(",")]
    try:
        return {name or str(place): int(size) for place, (name, _, size) in enumerate(parts)}
    except ValueError:
        said = f"{value!r} is no list of sizes such as 1024,512 or m=1024,n=512"
        raise click.BadParameter(said) from None


source_option = click.option("--source", default="", help="Digest of the kernel's source, in hex.")
device_name = click.option("--device-name", default="", help="The device, where FILE names none.")


@click.group()
def foreign() -> None:
    """Keep and ask what other tuners measured: Kernel Tuner, T4, CLBlast, Triton.

    Their kernels are not built, checked or served here.
    """


@foreign.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--kernel", default="", help="The kernel's name, where a file names none (T4).")
@click.option("--sizes", callback=_sizes, help="The problem's sizes, where a file names none.")
@source_option
@click.option("--url", help="Send it to this service instead.")
@click.option("--token", "secret", envvar=TOKEN, metavar="TOKEN", help=f"Default: ${TOKEN}.")
@device_name
@db_option
def import_(
    files: tuple[Path, ...],
    kernel: str,
    sizes: Mapping[str, int] | None,
    source: str,
    url: str | None,
    secret: str | None,
    device_name: str,
    where: str | None,
) -> None:
    """Take in FILES of other tuners; which tuner's they are, their fields tell."""
    from tuned_db import open_store
    from tuned_db.service.client import Client
    from tuned_db.tuners.adapters import About, read
    from tuned_db.tuners.foreign import keep

    about = About(kernel, device_name, sizes, source)
    found = []
    for file in files:
        try:
            found += read(file.name, file.read_bytes(), about)
        except OSError as error:
            raise click.ClickException(f"cannot read {file}: {error.strerror}") from error
    if url:
        with Client(url, secret or "", say=console(aside=True).print) as client:
            new, place = client.push_foreign(found), client.host
    else:
        store = open_store(where)
        new, place = keep(store, found, "import"), store.name
    click.echo(f"{new} of {len(found)} measurements are new in {place}")


@foreign.command("export")
@click.argument("kind", type=click.Choice(FORMATS))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--kernel", required=True)
@click.option("--sizes", callback=_sizes, help="Only of this problem.")
@device_name
@db_option
def export(
    kind: str,
    file: Path,
    kernel: str,
    sizes: Mapping[str, int] | None,
    device_name: str,
    where: str | None,
) -> None:
    """Write what is kept of a kernel to FILE in the form of another tuner."""
    from tuned_db import open_existing
    from tuned_db.tuners.adapters import WRITERS
    from tuned_db.tuners.foreign import select_kernels

    kept = select_kernels(open_existing(where), kernel, device=device_name)
    found = [one for one in kept if sizes is None or dict(one.sizes) == dict(sizes)]
    text = json.dumps(WRITERS[kind](found), indent=1)
    try:
        file.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from error
    click.echo(f"{len(found)} measurements written to {file}")


@foreign.command("nearest")
@click.argument("kernel")
@click.argument("sizes", callback=_sizes)
@click.option("--word", "words", multiple=True, help="What else names the problem; repeatable.")
@click.option("--device-name", default="", help="Comes before other devices.")
@source_option
@click.option("--url", help="Ask this service instead.")
@click.option("--limit", default=5, show_default=True, type=click.IntRange(1, 100))
@json_option
@db_option
def nearest(
    kernel: str,
    sizes: Mapping[str, int],
    words: tuple[str, ...],
    device_name: str,
    source: str,
    url: str | None,
    limit: int,
    as_json: bool,
    where: str | None,
) -> None:
    """Show the best parameters of KERNEL for the sizes nearest to SIZES (m=1024,n=512)."""
    from tuned_db import open_existing
    from tuned_db.service.client import Client
    from tuned_db.tuners.foreign import nearest as ask

    if url:
        with Client(url, say=console(aside=True).print) as client:
            found = client.nearest_foreign(kernel, sizes, words, device_name, source, limit)
    else:
        found = ask(open_existing(where), kernel, sizes, words, device_name, source, limit)
    if as_json:
        rows = [one.foreign.values() | {"distance": one.distance} for one in found]
        click.echo(json.dumps(rows, indent=1))
    else:
        console().print(_table(found))


def _table(found: list[Near]) -> Table:
    table = Table("device", "sizes", "distance", "ms", "parameters", "tuner")
    for one in found:
        kept = one.foreign
        table.add_row(
            kept.device or "unknown",
            _pairs(kept.sizes),
            f"{one.distance:.2f}",
            f"{kept.ms:.4g}",
            _pairs(kept.parameters),
            kept.tuner,
        )
    return table


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
