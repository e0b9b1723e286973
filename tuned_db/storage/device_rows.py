"""Statements on the rows of devices: which one it is, and what is known of it.

As in `tuned_db.storage.rows`, nothing here opens, begins or commits.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from oclgen.limits import DeviceInfo
from tuned_db.database.models import DeviceRow

DEVICE = tuple(field.name for field in fields(DeviceInfo))
KNOWN_PEAK = (
    func.coalesce(DeviceRow.peak_gflops, DeviceRow.claimed_gflops).label("known_gflops"),
    func.coalesce(DeviceRow.peak_gbytes, DeviceRow.claimed_gbytes).label("known_gbytes"),
)
"""A device's peak as it was measured here, else as records from elsewhere claim it."""
PEAKS = (DeviceRow.peaks, DeviceRow.claimed_peaks)
"""The same of dtypes other than fp32; `known_peaks` says what is known."""


def known_peaks(
    peaks: dict[str, float] | None, claimed: dict[str, float] | None
) -> dict[str, float] | None:
    """Return GFLOP/s by dtype: the measured peak of a dtype if there is one, else the claimed one.

    Args:
        peaks: the column of what was measured here.
        claimed: the column of what records from elsewhere give.
    """
    return {**(claimed or {}), **(peaks or {})} or None


def info_of(row: Any) -> DeviceInfo:
    """Return the device of a row that has at least the columns `DEVICE`."""
    return DeviceInfo(**{name: getattr(row, name) for name in DEVICE})


def is_device(info: DeviceInfo) -> list[Any]:
    """Return the conditions under which a device's row is this one."""
    return [getattr(DeviceRow, name) == value for name, value in asdict(info).items()]


def row_id(connection: Connection, table: Any, key: dict[str, Any], **more: Any) -> int:
    """Return the id of the row with this unique key, inserted if it is not there.

    Args:
        connection: in a transaction that writes.
        table: of `tuned_db.database.models`.
        key: the columns that no two rows share.
        more: columns of a row that is inserted.
    """
    asked = select(table.id).filter_by(**key)
    found = connection.execute(asked).scalar()
    if found is None:
        try:
            with connection.begin_nested():
                return inserted(connection, insert(table).values(**key, **more))
        except IntegrityError:  # another writer was faster
            found = connection.execute(asked).scalar_one()
    return int(found)


def inserted(connection: Connection, statement: Any) -> int:
    """Insert a row and return its id."""
    result: Any = connection.execute(statement)
    return int(result.inserted_primary_key[0])


def raise_peak(
    connection: Connection,
    info: DeviceInfo,
    gflops: float | None,
    gbytes: float | None,
    peaks: dict[str, float] | None = None,
    *,
    claimed: bool = False,
) -> None:
    """Keep what a device reaches at most, where less was known.

    Args:
        connection: in a transaction that writes.
        info: the device, whose row is made if there is none.
        gflops: billions of fp32 operations a second; None: not known.
        gbytes: 1e9 bytes a second that are copied; None: not known.
        peaks: GFLOP/s of further dtypes; None: not known.
        claimed: said by somewhere else, not measured here.
    """
    kind = "claimed" if claimed else "peak"
    by_dtype = "claimed_peaks" if claimed else "peaks"
    given = {f"{kind}_gflops": gflops, f"{kind}_gbytes": gbytes, by_dtype: peaks}
    given = {name: value for name, value in given.items() if value}
    asked = select(DeviceRow.id, *(getattr(DeviceRow, name) for name in given))
    asked = asked.where(*is_device(info))
    row = connection.execute(asked).first()
    if row is None:
        row_id(connection, DeviceRow, asdict(info))
    elif not _raised(row, given):  # nearly always: then no writer waits for the row
        return
    row = connection.execute(asked.with_for_update()).one()
    if raised := _raised(row, given):
        connection.execute(update(DeviceRow).where(DeviceRow.id == row.id).values(raised))


def _raised(row: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a device's row that are less than what is given, with their values."""
    best = {name: _larger(getattr(row, name), value) for name, value in given.items()}
    return {name: value for name, value in best.items() if value != getattr(row, name)}


def _larger(known: Any, given: Any) -> Any:
    """Return the larger of two rates; of two tables of rates by dtype the larger one of each."""
    if not isinstance(given, dict):
        return given if known is None else max(known, given)
    known = known or {}
    larger = {name: max(rate, known.get(name, 0.0)) for name, rate in given.items()}
    return dict(sorted((known | larger).items()))


def set_limits(
    connection: Connection, info: DeviceInfo, limits: dict[str, Any], *, claimed: bool = False
) -> None:
    """Store the limits of a device in place of the old ones.

    Args:
        connection: in a transaction that writes.
        info: the device, whose row is made if there is none.
        limits: `Limits.to_json()`.
        claimed: whether they come from elsewhere; then they are stored only if none are known.
    """
    row_id(connection, DeviceRow, asdict(info))
    setting = update(DeviceRow).where(*is_device(info)).values(limits=limits)
    connection.execute(setting.where(DeviceRow.limits.is_(None)) if claimed else setting)
