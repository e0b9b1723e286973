"""Batches: what came from elsewhere at once, its origin and time; and how to take one back.

`tuned_db.storage.store` opens a batch for everything that it takes in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, insert, select, update

from tuned_db.database.errors import DatabaseError
from tuned_db.database.models import BatchRow
from tuned_db.database.opening import Database
from tuned_db.storage.rows import now


class NoBatchError(DatabaseError):
    """No batch has this number."""


@dataclass(frozen=True)
class Source:
    """Who sends: the token's name and the address of an upload; `batch` goes on with one."""

    token: str = ""
    address: str = ""
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, with the fields of `tuned_db.database.models.BatchRow`."""

    id: int
    origin: str
    token: str
    address: str
    arrived: str
    records: int


def open_batch(connection: Connection, origin: str, source: Source) -> int:
    """Return the id of the source's batch, made if it has none.

    Args:
        connection: in a transaction that writes.
        origin: how its records came.
        source: who sends them.
    """
    (batch,) = open_batches(connection, [(origin, source)])
    return batch


def open_batches(connection: Connection, sources: Sequence[tuple[str, Source]]) -> list[int]:
    """Return the id of each source's batch, made where it has none.

    Args:
        connection: in a transaction that writes.
        sources: pairs of how records came, and who sends them.
    """
    new = [
        {"origin": origin, "token": one.token, "address": one.address[:64]}
        for origin, one in sources
        if one.batch is None
    ]
    made: Iterator[int] = iter(())
    if new:
        adding = insert(BatchRow).returning(BatchRow.id, sort_by_parameter_order=True)
        rows = [row | {"arrived": now(), "records": 0} for row in new]
        made = iter(connection.execute(adding, rows).scalars().all())
    return [next(made) if one.batch is None else one.batch for _, one in sources]


def count_batch(connection: Connection, batch: int, new: int) -> None:
    """Add to the number of records that were new with a batch.

    Args:
        connection: in a transaction that writes.
        batch: its id.
        new: how many.
    """
    count_batches(connection, {batch: new})


def count_batches(connection: Connection, new: Mapping[int, int]) -> None:
    """Add to the numbers of records that were new with batches.

    Args:
        connection: in a transaction that writes.
        new: how many, by the batch's id.
    """
    counts = [{"key": batch, "more": count} for batch, count in sorted(new.items()) if count]
    if counts:
        counted = update(BatchRow).where(BatchRow.id == bindparam("key"))
        more = BatchRow.records + bindparam("more")
        connection.execute(counted.values(records=more), counts)


def list_batches(database: Database, limit: int = 0) -> list[Batch]:
    """Return all batches, the latest first, or `limit` of them."""
    names = (getattr(BatchRow, name) for name in Batch.__dataclass_fields__)
    asked = select(*names).order_by(BatchRow.id.desc()).limit(limit or None)
    with database.reading() as connection:
        return [Batch(*row) for row in connection.execute(asked)]


def find_batch(database: Database, batch: int) -> Batch:
    """Return one batch.

    Raises:
        NoBatchError: there is none with this number.
    """
    found = [one for one in list_batches(database) if one.id == batch]
    if not found:
        raise NoBatchError(f"there is no batch {batch}; `oclgen db batches` lists all")
    return found[0]


def sent_since(connection: Connection, token: str, since: str) -> int:
    """Return how many new records a token sent from a time on.

    Args:
        connection: in a transaction.
        token: its name.
        since: as `rows.now` writes times.
    """
    asked = select(func.coalesce(func.sum(BatchRow.records), 0))
    mine = asked.where(BatchRow.token == token, BatchRow.arrived >= since)
    return int(connection.execute(mine).scalar_one())
