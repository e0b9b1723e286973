"""Takes in records; records that several threads bring at once share a transaction.

A transaction costs the same number of statements, and of waits for the disk, for a hundred records
as for one. So uploads that arrive while another one is written wait, and are then written together.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock

from sqlalchemy import Connection

from tuned_db.database.opening import Database
from tuned_db.records.record import Record
from tuned_db.storage import rows
from tuned_db.storage.arrivals import CHUNK, Arrival, Place, raise_peaks, take_in
from tuned_db.storage.batches import Source, count_batches, open_batches


@dataclass(frozen=True)
class Merge:
    """The result of an import: records that became winners, and those that were not faster.

    `batch` is the one that they came with, None where they count as measured here.
    """

    improved: int
    kept: int
    batch: int | None = None


@dataclass(frozen=True, eq=False)
class _Load:
    """Records that are kept all or not at all, and what will have come of them."""

    records: Sequence[Record]
    origin: str
    source: Source
    done: Future[Merge] = field(default_factory=Future)


class Merging:
    """The records that threads bring to one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Load] = []
        self._lock, self._turn = Lock(), Lock()

    def merge(self, records: Sequence[Record], origin: str, source: Source) -> Merge:
        """Keep some records, all of them or none; return when they are kept.

        Args:
            records: `CHUNK` at most.
            origin: how they came; "" where they count as measured here.
            source: who sent them.

        Raises:
            DatabaseError: none of them is kept.
        """
        mine = _Load(records, origin, source)
        with self._lock:
            self._waiting.append(mine)
        while not mine.done.done():
            with self._turn:
                if not mine.done.done():  # else the thread before has written it
                    self._write(self._next())
        return mine.done.result()

    def _next(self) -> list[_Load]:
        """Take the waiting records, up to a transaction's size."""
        with self._lock:
            count = size = 0
            for one in self._waiting:
                size += len(one.records)
                if count and size > CHUNK:
                    break
                count += 1
            loads, self._waiting = self._waiting[:count], self._waiting[count:]
        return loads

    def _write(self, loads: list[_Load]) -> None:
        try:
            with self._database.writing() as connection:
                merges = _merge(connection, loads)
        except BaseException as error:
            if len(loads) > 1 and isinstance(error, Exception):
                for one in loads:  # what is wrong with one of them is not to fail the others
                    self._write([one])
                return
            for one in loads:
                one.done.set_exception(error)
        else:
            for one, merge in zip(loads, merges, strict=True):
                one.done.set_result(merge)


def arrival_of(record: Record, origin: str, batch: int | None = None) -> Arrival:
    """Return a record on its way.

    Args:
        record: what arrives.
        origin: how; "" where it counts as measured here.
        batch: id of the batch that it comes with.
    """
    place = Place(record.device, record.generator, record.problem, record.cache)
    counts = {"claimed" if origin else "trials": record.trials}
    row = rows.columns_of_record(record, origin) | {"batch_id": batch}
    return Arrival(place, row, counts=counts)


def _merge(connection: Connection, loads: Sequence[_Load]) -> list[Merge]:
    # in one order everywhere, so that two who write to a server cannot wait for each other
    ordered = sorted(
        ((record, one) for one in loads for record in one.records), key=lambda pair: pair[0].order
    )
    for claimed in (False, True):
        some = (record for record, one in ordered if bool(one.origin) == claimed)
        raise_peaks(connection, some, claimed=claimed)
    claims = [one for one in loads if one.origin]
    made = open_batches(connection, [(one.origin, one.source) for one in claims])
    batches = dict(zip(claims, made, strict=True))
    arrivals = [arrival_of(record, one.origin, batches.get(one)) for record, one in ordered]
    won: dict[_Load, list[bool | None]] = {one: [] for one in loads}
    for (_, one), wins in zip(ordered, take_in(connection, arrivals), strict=True):
        won[one].append(wins)
    new = {batch: len(won[one]) - won[one].count(None) for one, batch in batches.items()}
    count_batches(connection, new)
    improved = {one: wins.count(True) for one, wins in won.items()}
    return [
        Merge(improved[one], len(one.records) - improved[one], batches.get(one)) for one in loads
    ]
