"""What people look at: devices, winners and histories, page by page, for any size of database.

Pages follow a key, not an offset, so that the last one costs no more than the first. What the
numbers mean is `tuned_db.views.analysis`, how they are drawn `tuned_db.views.charts`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, and_, case, func, or_, select

from oclgen.limits import DeviceInfo
from oclgen.problem import PRODUCT_DTYPES
from tuned_db.database.models import BatchRow, DeviceRow, MeasurementRow, TuningRow
from tuned_db.records.record import Record, RecordError
from tuned_db.storage.device_rows import KNOWN_PEAK, info_of, known_peaks
from tuned_db.storage.rows import TRIALS, Query, record_of, winners

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """A device with its driver: how many problems were tuned there, with how many trials."""

    id: int
    device: DeviceInfo
    peak_gflops: float | None
    peak_gbytes: float | None
    peaks: dict[str, float] | None
    tunings: int
    winners: int
    trials: int


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest variant of a tuning; `id` is the tuning's, and pages follow it."""

    id: int
    device_id: int
    record: Record


@dataclass(frozen=True, slots=True)
class Filter:
    """Which winners are asked for; None and "" ask for all.

    `text` is a part of the problem, `problem` all of it. `source` is "here" for what was measured
    by those who write to this database, "claimed" for the rest.
    """

    device: int | None = None
    op: str = ""
    family: str = ""
    text: str = ""
    architecture: str = ""
    kind: str = ""
    dtype: str = ""
    direction: str = ""
    cache: str = ""
    source: str = ""
    problem: str = ""

    def conditions(self) -> list[Any]:
        """Return what the tables must fulfil; texts are bound, never pasted into SQL."""
        given = [
            (self.device, TuningRow.device_id == self.device),
            (self.op, TuningRow.problem.startswith(f"{self.op}:", autoescape=True)),
            (self.family, MeasurementRow.family == self.family),
            (self.text, TuningRow.problem.contains(self.text, autoescape=True)),
            (self.architecture, DeviceRow.architecture == self.architecture),
            (self.kind, DeviceRow.kind == self.kind),
            (self.dtype, _has_part(self.dtype)),
            (self.direction, _has_part(self.direction)),
            (self.cache, TuningRow.cache == self.cache),
            (self.source, (MeasurementRow.origin == "") == (self.source == "here")),
            (self.problem, TuningRow.problem == self.problem),
        ]
        return [condition for value, condition in given if value]


def _has_part(word: str) -> Any:
    """Return the condition that a problem's key has a word between two colons."""
    return TuningRow.problem.contains(f":{word}:", autoescape=True)


ORDERS: dict[str, Any] = {
    "ms": MeasurementRow.ms,
    "problem": TuningRow.problem,
    "family": MeasurementRow.family,
    "trials": TRIALS,
    "created": MeasurementRow.created,
}
"""Columns by which winners can be sorted; else they come by id."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some of what was asked for, and the key after which the next page begins, if there is one."""

    items: list[Item]
    next: int | None


def list_devices(
    connection: Connection, after: int = 0, limit: int = 100, text: str = "", kind: str = ""
) -> Page[DeviceSummary]:
    """Return devices by id, those after `after`.

    Args:
        connection: of the database.
        after: id of the last device of the page before.
        limit: devices of a page.
        text: a part of name, vendor, architecture, runtime or driver, in any case.
        kind: "cpu", "gpu" or "other"; "": all.
    """
    texts = ("name", "vendor", "architecture", "runtime", "driver_version")
    has_text = or_(*(getattr(DeviceRow, one).icontains(text, autoescape=True) for one in texts))
    given = [(text, has_text), (kind, DeviceRow.kind == kind)]
    asked = _summaries().where(DeviceRow.id > after, *(one for wanted, one in given if wanted))
    asked = asked.order_by(DeviceRow.id).limit(limit)
    rows = connection.execute(asked).all()
    return Page([_summary(row) for row in rows], _next([row.id for row in rows], limit))


def find_device(connection: Connection, device: int) -> DeviceSummary | None:
    """Return the device with this id, or None."""
    row = connection.execute(_summaries().where(DeviceRow.id == device)).first()
    return None if row is None else _summary(row)


def _summaries() -> Query:
    trials = func.coalesce(func.sum(TRIALS), 0)
    return (
        select(
            DeviceRow,
            *KNOWN_PEAK,
            func.count(TuningRow.id),
            func.count(TuningRow.winner_id),
            trials,
        )
        .outerjoin(TuningRow, TuningRow.device_id == DeviceRow.id)
        .group_by(DeviceRow.id)
    )


def _summary(row: Any) -> DeviceSummary:
    info = info_of(row)
    tunings, won, trials = row[-3:]
    peaks = known_peaks(row.peaks, row.claimed_peaks)
    rates = (row.known_gflops, row.known_gbytes, peaks)
    return DeviceSummary(row.id, info, *rates, tunings, won, int(trials))


def list_winners(
    connection: Connection, wanted: Filter, after: int = 0, limit: int = 100, sort: str = ""
) -> Page[Winner]:
    """Return the winners that `wanted` asks for, of tunings after `after`.

    Args:
        connection: of the database.
        wanted: which devices, problems and families.
        after: id of the tuning that the page before ended with.
        limit: tunings of a page.
        sort: a name of `ORDERS`, with "-" before it from the largest on; "": by id.
    """
    asked = _with_ids().where(*wanted.conditions())
    if sort:
        column = ORDERS[sort.removeprefix("-")]
        order = column.desc() if sort.startswith("-") else column.asc()
        asked = asked.order_by(order, TuningRow.id)
        if after:
            last = winners().where(TuningRow.id == after).with_only_columns(column)
            value = connection.execute(last).scalar()
            if value is None:  # it was dropped: where it stood is not known
                return Page([], None)
            beyond = column < value if sort.startswith("-") else column > value
            asked = asked.where(or_(beyond, and_(column == value, TuningRow.id > after)))
    else:
        asked = asked.where(TuningRow.id > after).order_by(TuningRow.id)
    rows = connection.execute(asked.limit(limit)).mappings().all()
    found = [winner for row in rows if (winner := _winner(dict(row)))]
    return Page(found, _next([row["tuning_id"] for row in rows], limit))


def count_winners(connection: Connection, wanted: Filter) -> int:
    """Return how many winners `wanted` asks for."""
    return count_by_dtype(connection, wanted)[0]


def count_by_dtype(connection: Connection, wanted: Filter) -> tuple[int, dict[str, int]]:
    """Return how many winners `wanted` asks for, and how many of them are of each dtype there is.

    Args:
        connection: of the database.
        wanted: which devices, problems and families.
    """
    dtypes = (func.sum(case((_has_part(dtype), 1), else_=0)) for dtype in PRODUCT_DTYPES)
    asked = (
        select(func.count(), *dtypes)
        .select_from(TuningRow)
        .join(MeasurementRow, TuningRow.winner_id == MeasurementRow.id)
        .join(DeviceRow, DeviceRow.id == TuningRow.device_id)
        .where(*wanted.conditions())
    )
    total, *counts = connection.execute(asked).one()
    return total, {dtype: n for dtype, n in zip(PRODUCT_DTYPES, counts, strict=True) if n}


def find_winner(connection: Connection, tuning: int) -> Winner | None:
    """Return the winner of a tuning, None if there is no such tuning or nothing works there."""
    row = connection.execute(_with_ids().where(TuningRow.id == tuning)).mappings().first()
    return None if row is None else _winner(dict(row))


def list_trials(
    connection: Connection, tuning: int, after: int = 0, limit: int = 100
) -> Page[MeasurementRow]:
    """Return the measurements of a tuning in the order in which they were kept.

    `ms` is None for a failure, and `invalidity` says which. The rows belong to no session.

    Args:
        connection: of the database.
        tuning: its id.
        after: id of the last measurement of the page before.
        limit: measurements of a page.
    """
    asked = (
        select(*MeasurementRow.__table__.columns, BatchRow.arrived)
        .outerjoin(BatchRow, BatchRow.id == MeasurementRow.batch_id)
        .where(MeasurementRow.tuning_id == tuning, MeasurementRow.id > after)
        .order_by(MeasurementRow.id)
        .limit(limit)
    )
    trials = [_trial(dict(row)) for row in connection.execute(asked).mappings()]
    return Page(trials, _next([trial.id for trial in trials], limit))


def _trial(values: dict[str, Any]) -> MeasurementRow:
    arrived = values.pop("arrived")
    trial = MeasurementRow(**values)
    trial.arrived = arrived
    return trial


@cache
def _with_ids() -> Query:
    ids = (TuningRow.id.label("tuning_id"), TuningRow.device_id.label("device_id"))
    return winners().add_columns(*ids)


def _winner(values: dict[str, Any]) -> Winner | None:
    """Return the winner in a row, None if it holds no record: such a row is stepped over."""
    tuning, device = values.pop("tuning_id"), values.pop("device_id")
    with suppress(RecordError, TypeError):
        return Winner(tuning, device, record_of(values))
    return None


def _next(keys: list[int], limit: int) -> int | None:
    return keys[-1] if len(keys) == limit else None
