"""A data set: everything a database holds of measurements, as files that people can publish.

A folder has `dataset.json`, which names version, licence and every file with its SHA-256;
`schema.json`, the JSON schema of a line; `records.jsonl`, the winners as an export; and in
`measurements/` a file of JSON lines per device, failures included. The same database gives the same
bytes. Who contributed what is not in it.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from oclgen.limits import DeviceInfo
from oclgen.opencl.exclusive import kind_of
from tuned_db.files.measured import ROWS, Measured, of_store, why_contradictory
from tuned_db.records.exchange import ImportFileError, write_records
from tuned_db.records.fields import Device, LimitsJson, Peaks, Rate, sentence, several, strict
from tuned_db.storage.store import Store

SCHEMA = 1
MANIFEST, LINES = "dataset.json", "measurements"
LICENCE = "CC0-1.0"
"""Under what a data set is given by default, as SPDX names it."""
LINE_LIMIT = 1024 * 1024
"""Longest line that is read, in bytes: ten thousand samples fit."""
HEAD = TypeAdapter(
    strict(
        "Head",
        {
            "format": str,
            "schema": int,
            "device": Device,
            "limits": LimitsJson | None,
            "peak": several(Rate, 2, least=2) | None,
            "peaks": Peaks | None,
        },
    )
)
"""The first line of a file of measurements; `peak` is fp32 GFLOP/s and GB/s of a copy,
`peaks` GFLOP/s of other dtypes."""


def write(store: Store, folder: Path, version: str, licence: str = LICENCE) -> dict[str, Any]:
    """Write a data set and return what its manifest says.

    Args:
        store: what is read: what was measured there and what came from elsewhere.
        folder: is made; a data set that is there gives way to the new one.
        version: of the data set.
        licence: under which it is given, as SPDX names it.

    Raises:
        ImportFileError: the folder holds something else.
        DatabaseError: the store fails.
        OSError: a file cannot be written.
    """
    for name in _old(folder):
        (folder / name).unlink(missing_ok=True)
    (folder / LINES).mkdir(parents=True, exist_ok=True)
    files = dict(_files(store))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    manifest = {
        "format": "oclgen dataset",
        "schema": SCHEMA,
        "version": version,
        "licence": licence,
        "records": files["records.jsonl"].count(b"\n") - 1,
        "measurements": sum(
            content.count(b"\n") - 1 for name, content in files.items() if name.startswith(LINES)
        ),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def _old(folder: Path) -> list[str]:
    """Return the files of the data set in a folder; none where there is nothing at all."""
    if not folder.exists() or not any(folder.iterdir()):
        return []
    return list(manifest_of(folder)["files"])


def _files(store: Store) -> Iterator[tuple[str, bytes]]:
    stream = io.BytesIO()
    write_records(store.all_winners(), stream)
    yield "records.jsonl", stream.getvalue()
    described = {"head": HEAD.json_schema(), "measurement": ROWS.json_schema()}
    yield "schema.json", (json.dumps(described, indent=1, sort_keys=True) + "\n").encode()
    for one in of_store(store, everyone=True):
        yield f"{LINES}/{kind_of(one.device)}.jsonl", to_lines(one)


def to_lines(one: Measured) -> bytes:
    """Return a file of measurements: a line that says of which device, then a line for each."""
    head = {
        "format": "oclgen measurements",
        "schema": SCHEMA,
        "device": {name: getattr(one.device, name) for name in one.device.__dataclass_fields__},
        "limits": one.limits,
        "peak": one.peak,
        "peaks": one.peaks,
    }
    lines = (json.dumps(line, separators=(",", ":")) for line in (head, *one.rows))
    return ("\n".join(lines) + "\n").encode()


def is_measurements(head: bytes) -> bool:
    """Say whether a file that begins so is one of measurements."""
    return b'"format":"oclgen measurements"' in head[:200]


def from_lines(name: str, content: bytes) -> Measured:
    """Return what `to_lines` wrote.

    Args:
        name: of the file, for messages.
        content: the whole file.

    Raises:
        ImportFileError: a line is wrong; the message has its number.
    """
    number = 1
    rows: list[dict[str, Any]] = []
    try:
        first, *rest = content.splitlines()
        head = HEAD.validate_json(first)
        if (head["format"], head["schema"]) != ("oclgen measurements", SCHEMA):
            said = f"schema {head['schema']}; this version of oclgen reads {SCHEMA}"
            raise ImportFileError(f"{name}: {said}")
        for number, line in enumerate(rest, start=2):
            if len(line) > LINE_LIMIT:
                raise ImportFileError(f"{name}, line {number}: longer than {LINE_LIMIT} bytes")
            rows.append(ROWS.validate_json(line))
            if reason := why_contradictory(rows[-1]):
                raise ImportFileError(f"{name}, line {number}: {reason}")
    except ValidationError as error:
        raise ImportFileError(f"{name}, line {number}: {sentence(error)}") from error
    except ValueError as error:
        if isinstance(error, ImportFileError):
            raise
        raise ImportFileError(f"{name} is empty") from error
    peak = None if head["peak"] is None else (head["peak"][0], head["peak"][1])
    return Measured(DeviceInfo(**head["device"]), head["limits"], peak, head["peaks"], rows)


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return what a data set's manifest says.

    Raises:
        ImportFileError: the folder has no data set of a schema that is known.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        known = (manifest["format"], manifest["schema"]) == ("oclgen dataset", SCHEMA)
        files = dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ImportFileError(f"{folder} holds no data set: {error}") from error
    if not known or not all(map(_is_inside, files)):
        raise ImportFileError(f"{folder} holds no data set of schema {SCHEMA}")
    return {**manifest, "files": files}


def _is_inside(name: Any) -> bool:
    """Whether it is the name of a file in a folder; a manifest of a stranger's may have any."""
    is_name = type(name) is str and name.isprintable()
    return is_name and ".." not in name and not name.startswith("/")


def read(folder: Path) -> Iterator[Measured]:
    """Yield the measurements of a data set, device by device.

    Raises:
        ImportFileError: it is none, or a file is not what the manifest says.
    """
    for name, digest in manifest_of(folder)["files"].items():
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            raise ImportFileError(f"{folder}: {name} cannot be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise ImportFileError(f"{folder}: {name} is not what {MANIFEST} says; fetch it again")
        if name.startswith(LINES):
            yield from_lines(name, content)
