"""Files of records: JSON lines, sorted, a schema line first, so that people can diff and share.

`tuned_db.storage.store` merges them into a database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import IO

from tuned_db.records.record import Record, RecordError, json_object

SCHEMA = 4
"""What is written. Schema 2 brought the device's peak, schema 3 the state of the caches, the seed,
the conditions and the kernels' digest, schema 4 peaks by dtype; older files are read as well."""
SCHEMA_LINE = json.dumps({"format": "oclgen records", "schema": SCHEMA}, separators=(",", ":"))
LINE_LIMIT = 64 * 1024
"""Longest line that is read, in bytes; a record has about one thousand."""


class ImportFileError(ValueError):
    """A file that is not taken in; the message names the line and what is wrong with it."""


def write_records(records: Iterable[Record], stream: IO[bytes]) -> int:
    """Write `records` in their order to `stream` and return how many there were.

    The same records give the same bytes. Lines carry what the device says of itself and nothing
    of the person or the machine around it.
    """
    ordered = sorted(records, key=lambda record: record.order)
    for line in (SCHEMA_LINE, *(record.to_line() for record in ordered)):
        stream.write(line.encode() + b"\n")
    return len(ordered)


def read_records(name: str, stream: IO[bytes]) -> list[Record]:
    """Return the records that `write_records` wrote, one file or several joined.

    `name` is for messages. What no family reads today is returned, too: whether it was written by
    a later version, by an earlier one or by mistake, nothing in a line can tell. A chooser steps
    over it (`Record.why_unreadable`).

    Raises:
        ImportFileError: the schema line or a record is wrong; the message has the line's number.
    """
    records: list[Record] = []
    number = 1
    try:
        for number, raw in enumerate(_lines(stream), start=1):
            line = _text(raw)
            if number == 1 or line.startswith('{"format"'):  # where files were joined
                _check_schema(line)
            else:
                records.append(Record.from_line(line))
    except RecordError as error:
        raise ImportFileError(f"{name}, line {number}: {error}") from error
    return records


def read_checked(stream: IO[bytes]) -> list[Record]:
    """Return the records of a file of today's schema that was checked before: values are taken."""
    stream.readline()
    return [Record.of_checked(json.loads(line)) for line in stream]


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield at least one line, so that an empty file has a schema line to miss."""
    yield stream.readline(LINE_LIMIT + 1)
    while raw := stream.readline(LINE_LIMIT + 1):
        yield raw


def _text(raw: bytes) -> str:
    if len(raw) > LINE_LIMIT:
        raise RecordError(f"longer than {LINE_LIMIT} bytes; a record has about one thousand")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: {error}") from error


def _check_schema(line: str) -> None:
    try:
        found = json_object(line)
    except RecordError:
        found = {}
    schema = found.get("schema")
    if found == {"format": "oclgen records", "schema": schema} and type(schema) is int:
        if 1 <= schema <= SCHEMA:
            return
        raise RecordError(
            f"the file has schema {schema}, this version of oclgen reads schema 1 to {SCHEMA}; "
            "update oclgen, or export the file again"
        )
    raise RecordError(f"this is no export of oclgen; the first line of one is {SCHEMA_LINE}")
