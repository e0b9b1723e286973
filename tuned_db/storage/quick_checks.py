"""Results of quick checks of claims' plans, so that a plan is checked once on a device.

`oclgen.measuring.quick_check` checks; `tuned_db.choosing` asks for it before a claim serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from sqlalchemy import select, update

from oclgen.limits import DeviceInfo
from tuned_db.database.models import CheckRow, DeviceRow
from tuned_db.database.opening import Database
from tuned_db.storage import device_rows, rows


def note_check(database: Database, info: DeviceInfo, digest: str, reason: str) -> None:
    """Keep what a check of a plan on a device said, in place of an earlier one.

    Args:
        database: what is written to.
        info: the device.
        digest: of the plan.
        reason: why it is not to serve; "": it may.
    """
    with database.writing() as connection:
        device = device_rows.row_id(connection, DeviceRow, asdict(info))
        values = {"reason": reason[:2000], "created": rows.now()}
        key = {"device_id": device, "digest": digest}
        row = device_rows.row_id(connection, CheckRow, key, **values)
        connection.execute(update(CheckRow).where(CheckRow.id == row).values(**values))


def checks(database: Database, info: DeviceInfo) -> Mapping[str, str]:
    """Return what checks on a device said, by the digest of the plan; "" where it may serve."""
    asked = select(CheckRow.digest, CheckRow.reason).join(DeviceRow)
    with database.reading() as connection:
        found = connection.execute(asked.where(*device_rows.is_device(info)))
        return {one.digest: one.reason for one in found}
