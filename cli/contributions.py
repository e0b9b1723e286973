"""`oclgen db import` and `contribute`: reads export files and check files, or sends them on."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import Progress

from .console import console
from .options import db_option
from .sharing import TOKEN
from .signing import signature_of

if TYPE_CHECKING:
    from tuned_db.files.measured import Measured
    from tuned_db.storage.merging import Merge
    from tuned_db.storage.store import Store


@click.command("import")
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path))
@click.option(
    "--profile",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Of a check file: write the device's profile into this folder, too.",
)
@click.option("--signed", is_flag=True, help="Refuse what no trusted key has signed.")
@db_option
def import_(file: Path, folder: Path | None, signed: bool, where: str | None) -> None:
    """Take in the records of FILE where they are faster; none if one line is bad.

    FILE is an export, or what `oclgen check` wrote, a data set's folder or one of its files: then
    measurements come, failures too. They serve at once, but as unverified until `oclgen db verify`
    or `oclgen tune` measured them. A record that no family reads today is kept, and serves once one
    does. Every 500 records are kept at once: after an interrupt, import again.

    Where FILE.sig is there, it has to be a trusted key's signature of FILE; what comes is then
    "signed by NAME".
    """
    from tuned_db.files.dataset import from_lines, is_measurements, read
    from tuned_db.files.selftest import is_selftest

    if file.is_dir():
        if signed:
            raise click.UsageError("A data set has digests and no signature; import its files.")
        _take_sets(list(read(file)), where, "import")
        return
    content = _content(file)
    origin = _origin(file, content, signed, where)
    if is_measurements(content):
        _take_sets([from_lines(str(file), content)], where, origin)
    elif is_selftest(content):
        _take_check(file, content, where, folder, origin)
    elif folder is not None:
        raise click.UsageError(f"{file} is no check file: only those have a profile.")
    else:
        _take_records(file, content, where, origin)


def _content(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise click.ClickException(f"cannot read {file}: {error.strerror}") from error


def _origin(file: Path, content: bytes, signed: bool, where: str | None) -> str:
    """Return how a file's content comes: "import", or "signed by NAME".

    Raises:
        ImportFileError: its signature is wrong or of a key that is not trusted, or `signed` is
            asked for and there is none.
    """
    from tuned_db import ImportFileError, open_store
    from tuned_db.trust.signatures import Signature, signer

    beside = signature_of(file)
    if str(file) == "-" or not beside.exists():
        if signed:
            raise ImportFileError(f"{file} is not signed: there is no {beside}")
        return "import"
    signature = Signature.from_json(beside.read_bytes())
    return f"signed by {signer(open_store(where).database, content, signature)}"


def _take_records(file: Path, content: bytes, where: str | None, origin: str) -> None:
    from tuned_db import open_store, read_records
    from tuned_db.records.digests import with_digests

    records = read_records(str(file), io.BytesIO(content))
    store = open_store(where)
    out = console(aside=True)
    with Progress(console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("importing", total=len(records))
        merge = store.merge(
            with_digests(records), origin, report=lambda done: bar.update(task, completed=done)
        )
    click.echo(
        f"{merge.improved} records taken into {store.name}; {merge.kept} were known or not faster"
    )
    unread = [reason for one in records if (reason := one.why_unreadable())]
    if unread:
        click.echo(f"{len(unread)} of them serve nothing today, the first since {unread[0]}")


def _take_sets(sets: Sequence[Measured], where: str | None, origin: str) -> None:
    from tuned_db import open_store
    from tuned_db.files.measured import take
    from tuned_db.storage.batches import Source

    store = open_store(where)
    click.echo(_taken(take(store, sets, origin, Source()), store))


def _taken(merge: Merge, store: Store) -> str:
    return (
        f"{merge.improved} records taken into {store.name}, {merge.kept} further measurements "
        "kept, known or not faster"
    )


def _take_check(
    file: Path, content: bytes, where: str | None, folder: Path | None, origin: str
) -> None:
    from oclgen.profiles.writing import name_of
    from tuned_db import open_store
    from tuned_db.files.measured import take
    from tuned_db.files.selftest import read_selftest
    from tuned_db.storage.batches import Source

    check = read_selftest(str(file), content)
    store = open_store(where)
    merge = take(store, [check.measured], origin, Source())
    failed = sum(one.verdict == "fail" for one in check.findings)
    click.echo(
        f"{check.device.name}: {failed} of {len(check.findings)} checks failed; "
        f"{_taken(merge, store)}"
    )
    if folder is not None:
        path = folder / f"{name_of(check.device)}.toml"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(check.profile(), encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
        click.echo(f"its profile is written to {path}")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", metavar="URL|FOLDER")
@click.option("--token", "secret", envvar=TOKEN, metavar="TOKEN", help=f"Default: ${TOKEN}.")
def contribute(file: Path, target: str, secret: str | None) -> None:
    """Hand FILE, an export or what `oclgen check` wrote, to a service or into a folder.

    A service takes it in as claims of the token's owner. In a folder it is kept, once, under the
    digest of its bytes, until an import takes what came there. FILE is read whole before: what is
    wrong is not sent. Its signature, FILE.sig (`oclgen db sign`), goes with it.
    """
    from tuned_db import read_records
    from tuned_db.files.selftest import is_selftest, read_selftest
    from tuned_db.service.client import Client
    from tuned_db.trust.signatures import Signature

    content = file.read_bytes()
    check = read_selftest(str(file), content) if is_selftest(content) else None
    records = [] if check else read_records(str(file), io.BytesIO(content))
    beside = signature_of(file)
    signature = Signature.from_json(beside.read_bytes()) if beside.exists() else None
    if "://" not in target:
        kept = _keep(content, Path(target), check is not None)
        if signature:
            signature_of(kept).write_text(signature.to_json(), encoding="utf-8")
        click.echo(f"{file} kept as {kept}")
        return
    if not secret:
        raise click.UsageError(f"Writing needs a token: --token, or set {TOKEN}.")
    with Client(target, secret, say=console(aside=True).print) as client:
        if check or signature:
            merge = client.contribute(content, "checks" if check else "records", signature)
        else:
            merge = client.push(records)
        click.echo(
            f"{file} handed to {client.host}: {merge.improved} records are winners there, "
            f"{merge.kept} were known or not faster"
        )


def _keep(content: bytes, folder: Path, is_check: bool) -> Path:
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = folder / f"{digest}.{'json' if is_check else 'jsonl'}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
    return path


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--version", required=True, help="Of the data set, such as 2026.11.")
@click.option("--licence", default="CC0-1.0", show_default=True, help="Its SPDX name.")
@db_option
def dataset(folder: Path, version: str, licence: str, where: str | None) -> None:
    """Write all records and measurements, failures too, to FOLDER as a data set to publish.

    A manifest names version, licence and the SHA-256 of every file. The same database gives the
    same bytes, without names of contributors. `oclgen db import FOLDER` takes it in.
    """
    from tuned_db import open_existing
    from tuned_db.files.dataset import write

    store = open_existing(where)
    try:
        manifest = write(store, folder, version, licence)
    except OSError as error:
        raise click.ClickException(f"cannot write {folder}: {error.strerror}") from error
    click.echo(
        f"{manifest['records']} records and {manifest['measurements']} measurements of "
        f"{store.name} written to {folder}, {len(manifest['files'])} files"
    )
