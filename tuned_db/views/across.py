"""Views beyond one device: problems, two devices side by side, two variants side by side.

`tuned_db.views.browse` has the views of one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import Any

from sqlalchemy import Connection, func, select

from oclgen.limits import DeviceInfo
from tuned_db.database.models import BatchRow, DeviceRow, MeasurementRow, TuningRow
from tuned_db.records.fields import LEAST_MS
from tuned_db.records.record import RecordError, json_object
from tuned_db.storage.device_rows import DEVICE
from tuned_db.storage.rows import TRIALS
from tuned_db.views.browse import Filter

ENOUGH = 8
"""Trials of a winner with which it counts in a mean: with fewer it may be far from the best."""


def list_names(connection: Connection, limit: int) -> list[tuple[int, DeviceInfo]]:
    """Return the ids of the first devices and what they are, without sums over their tunings."""
    asked = select(DeviceRow.id, *(getattr(DeviceRow, name) for name in DEVICE))
    rows = connection.execute(asked.order_by(DeviceRow.id).limit(limit))
    return [(row[0], DeviceInfo(*row[1:])) for row in rows]


@dataclass(frozen=True, slots=True)
class Known:
    """A problem, and on how many devices (with their drivers) it was tuned."""

    problem: str
    devices: int


def list_problems(
    connection: Connection, wanted: Filter, after: str = "", limit: int = 100
) -> list[Known]:
    """Return problems by their keys, those after `after`.

    Args:
        connection: of the database.
        wanted: which; of the filter what a problem's key says.
        after: key of the last problem of the page before.
        limit: problems of a page.
    """
    devices = func.count(TuningRow.device_id.distinct())
    asked = select(TuningRow.problem, devices).where(TuningRow.problem > after)
    asked = asked.where(*wanted.conditions()).group_by(TuningRow.problem)
    return [
        Known(*row) for row in connection.execute(asked.order_by(TuningRow.problem).limit(limit))
    ]


@dataclass(frozen=True, slots=True)
class Side:
    """The winner of a problem on one device; `id` is its tuning's."""

    id: int
    family: str
    ms: float
    trials: int


@dataclass(frozen=True, slots=True)
class Pair:
    """A problem with one state of the caches, as two devices have it."""

    problem: str
    cache: str
    left: Side
    right: Side

    @property
    def speedup(self) -> float:
        """How many times faster the right side is."""
        return max(self.left.ms, LEAST_MS) / max(self.right.ms, LEAST_MS)

    @property
    def is_sure(self) -> bool:
        """Whether both sides have trials enough to stand for what the device can do."""
        return min(self.left.trials, self.right.trials) >= ENOUGH


def pairs(
    connection: Connection, left: int, right: int, wanted: Filter, limit: int
) -> tuple[list[Pair], bool]:
    """Return the problems that two devices know, where the right one is fastest first.

    Of several generators' winners that measured here comes first, then the fastest.

    Args:
        connection: of the database.
        left: id of a device.
        right: id of another.
        wanted: which problems; of the filter what a problem's key says.
        limit: problems of the left device that are looked at, the first by key.

    Returns:
        The pairs, and whether the left device has problems beyond the limit.
    """
    mine = _best(left, wanted).subquery()
    asked = select(mine).where(mine.c.place == 1).order_by(mine.c.problem, mine.c.cache)
    sides = connection.execute(asked.limit(limit)).all()
    if not sides:
        return [], False
    until = TuningRow.problem <= sides[-1].problem
    theirs = _best(right, wanted).where(until).subquery()
    # joined here: a server that has no figures of new tables compares each row with each
    best = connection.execute(select(theirs).where(theirs.c.place == 1))
    others = {(row.problem, row.cache): _side(row) for row in best}
    found = [
        Pair(row.problem, row.cache, _side(row), other)
        for row in sides
        if (other := others.get((row.problem, row.cache)))
    ]
    return sorted(found, key=lambda pair: -pair.speedup), len(sides) == limit


def _best(device: int, wanted: Filter) -> Any:
    place = func.row_number().over(
        partition_by=(TuningRow.problem, TuningRow.cache),
        order_by=(MeasurementRow.origin != "", MeasurementRow.ms, TuningRow.id),
    )
    side = (TuningRow.id, MeasurementRow.family, MeasurementRow.ms, TRIALS.label("trials"))
    return (
        select(TuningRow.problem, TuningRow.cache, *side, place.label("place"))
        .join(MeasurementRow, TuningRow.winner_id == MeasurementRow.id)
        .where(TuningRow.device_id == device, *wanted.conditions())
    )


def _side(row: Any) -> Side:
    return Side(row.id, row.family, row.ms, row.trials)


def mean_speedup(found: Sequence[Pair]) -> float | None:
    """Return the geometric mean of pairs, None where there are none."""
    return exp(fmean(log(pair.speedup) for pair in found)) if found else None


@dataclass(frozen=True, slots=True)
class Trial:
    """A measurement with its problem and device; `tuning` is the id of its tuning."""

    row: MeasurementRow
    tuning: int
    problem: str
    cache: str
    generator: str
    device: DeviceInfo

    @property
    def parameters(self) -> dict[str, Any]:
        """Its config, empty where it cannot be read."""
        try:
            return json_object(self.row.config)
        except RecordError:
            return {}


def find_trial(connection: Connection, key: int) -> Trial | None:
    """Return a measurement by its id, or None."""
    place = (TuningRow.problem, TuningRow.cache, TuningRow.generator)
    asked = (
        select(*MeasurementRow.__table__.columns, BatchRow.arrived, *place)
        .add_columns(*(getattr(DeviceRow, name) for name in DEVICE))
        .outerjoin(BatchRow, BatchRow.id == MeasurementRow.batch_id)
        .join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)
        .join(DeviceRow, DeviceRow.id == TuningRow.device_id)
        .where(MeasurementRow.id == key)
    )
    found = connection.execute(asked).mappings().first()
    if found is None:
        return None
    values = dict(found)
    info = DeviceInfo(**{name: values.pop(name) for name in DEVICE})
    problem, cache, generator = (values.pop(name) for name in ("problem", "cache", "generator"))
    arrived = values.pop("arrived")
    row = MeasurementRow(**values)
    row.arrived = arrived
    return Trial(row, row.tuning_id, problem, cache, generator, info)


def differences(left: dict[str, Any], right: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return every name with the values of both sides (None: not there), first what differs."""
    rows = [(name, left.get(name), right.get(name)) for name in sorted({*left, *right})]
    return sorted(rows, key=lambda row: row[1] == row[2])
