"""Which claims are not used: those of batches that were taken back, and of origins in quarantine.

A single claim is judged by its rate (`tuned_db.choosing.plausible`), by a quick check of its plan
(`tuned_db.storage.quick_checks`), and by measuring it (`verify`).
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, or_, select
from sqlalchemy.orm import aliased

from tuned_db.database.errors import DatabaseError
from tuned_db.database.models import ForeignRow, MeasurementRow, QuarantineRow, TuningRow
from tuned_db.database.opening import Database
from tuned_db.storage import rows
from tuned_db.storage.batches import find_batch
from tuned_db.storage.store import Store
from tuned_db.storage.upkeep import repair


def undo(store: Store, batch: int) -> int:
    """Drop what one batch brought and return how many measurements; the next best win.

    The batch stays listed.

    Raises:
        NoBatchError: there is no such batch.
    """
    find_batch(store.database, batch)
    with store.database.writing() as connection:
        gone = [
            connection.execute(delete(table).where(table.batch_id == batch)).rowcount
            for table in (MeasurementRow, ForeignRow)
        ]
        repair(connection)
        return sum(gone)


def quarantine(store: Store, origin: str, reason: str) -> int:
    """Let no claim of an origin serve from now on, also such as come later.

    Measurements of its variants that were made here stay.

    Args:
        store: what is written to.
        origin: as `oclgen db list` shows it.
        reason: is listed beside it.

    Returns:
        How many of its claims lost their place as the winner.
    """
    with store.database.writing() as connection:
        known = select(QuarantineRow.origin).where(QuarantineRow.origin == origin)
        if connection.execute(known).scalar() is None:
            values = {"origin": origin, "reason": reason, "created": rows.now()}
            connection.execute(insert(QuarantineRow).values(**values))
        won = select(TuningRow.id).join(MeasurementRow, TuningRow.winner_id == MeasurementRow.id)
        won = won.where(MeasurementRow.origin == origin)
        return _crown(connection, won)


def release(store: Store, origin: str) -> None:
    """Let claims of an origin serve again.

    Raises:
        DatabaseError: it is not in quarantine.
    """
    with store.database.writing() as connection:
        gone = connection.execute(delete(QuarantineRow).where(QuarantineRow.origin == origin))
        if not gone.rowcount:
            raise DatabaseError(f"{origin[:100]!r} is not in quarantine")
        theirs = select(MeasurementRow.tuning_id).where(MeasurementRow.origin == origin).distinct()
        winner = aliased(MeasurementRow)
        claimed = theirs.join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)
        claimed = claimed.outerjoin(winner, TuningRow.winner_id == winner.id)
        # what was measured here keeps its place
        _crown(connection, claimed.where(or_(winner.id.is_(None), winner.origin != "")))


def _crown(connection: Connection, tunings: rows.Query) -> int:
    found = connection.execute(tunings).scalars().all()
    for tuning in found:
        rows.crown_best(connection, tuning)
    return len(found)


def quarantined(database: Database) -> list[tuple[str, str, str]]:
    """Return origin, reason and time of everything in quarantine."""
    asked = select(QuarantineRow.origin, QuarantineRow.reason, QuarantineRow.created)
    with database.reading() as connection:
        return [(one.origin, one.reason, one.created) for one in connection.execute(asked)]
