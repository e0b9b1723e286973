"""Makes the tables of most databases of a run from the statements that the first one ended with.

The migrations take 30 ms, and hundreds of tests begin with an empty SQLite file. Tests of the
migrations themselves (`tests/tuned_db/database`) and nightly runs migrate each.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from tests import samples
from tuned_db.database import opening
from tuned_db.database.schema import migrate, read_revision

_statements: list[str] = []
"""What makes an empty SQLite database one of the newest schema."""


def begin() -> None:
    """Let databases that are opened from now on take part."""
    if not samples.THOROUGH:
        vars(opening)["migrate"] = _migrated


def _migrated(connection: Connection) -> None:
    """Bring the schema up to date as `migrate` does."""
    is_new = connection.dialect.name == "sqlite" and read_revision(connection) is None
    if is_new and _statements:
        for statement in _statements:
            connection.exec_driver_sql(statement)
        return
    migrate(connection)
    if is_new:
        driver: Any = connection.connection.driver_connection
        _statements[:] = [
            line
            for line in driver.iterdump()
            if line not in ("BEGIN TRANSACTION;", "COMMIT;") and "sqlite_sequence" not in line
        ]
