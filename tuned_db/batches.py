"""What came from elsewhere at once, from whom and when; and how to take one of them back.

`tuned_db.store` opens a batch for what it takes in.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, insert, select, update

from tuned_db.database import Database
from tuned_db.device_rows import inserted
from tuned_db.errors import DatabaseError
from tuned_db.models import BatchRow
from tuned_db.rows import now


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
    """What came at once, as `tuned_db.models.BatchRow` has it."""

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
    if source.batch is not None:
        return source.batch
    values = {"origin": origin, "token": source.token, "address": source.address[:64]}
    return inserted(connection, insert(BatchRow).values(arrived=now(), records=0, **values))


def count_batch(connection: Connection, batch: int | None, new: int) -> None:
    """Add to the number of records that were new with a batch.

    Args:
        connection: in a transaction that writes.
        batch: its id; None: there is none.
        new: how many.
    """
    if batch is not None and new:
        counted = update(BatchRow).where(BatchRow.id == batch)
        connection.execute(counted.values(records=BatchRow.records + new))


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
