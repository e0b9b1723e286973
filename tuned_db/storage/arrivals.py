"""Stores many measurements from elsewhere by few statements, inside a caller's transaction.

`rows` stores single measurements that are made here. The winner is decided in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from oclgen.limits import DeviceInfo
from tuned_db.database.models import DeviceRow, MeasurementRow, QuarantineRow, TuningRow
from tuned_db.records.record import Record
from tuned_db.storage import device_rows
from tuned_db.storage.device_rows import row_id
from tuned_db.storage.many import add_rows, is_among
from tuned_db.storage.rows import VARIANT

CHUNK = 500
"""Measurements of a transaction: others who write wait for some 0.2 s."""
_PLACED = (TuningRow.generator, TuningRow.problem, TuningRow.cache)
_FIRST = ("", " ")
"""Names of the two rates of `Record.peak` among the dtypes of `Record.peaks`."""
_SAME = (*VARIANT, "ms", "created")
"""The columns that are equal if a measurement came twice."""


class Place(NamedTuple):
    """A tuning, as it is named in every database."""

    info: DeviceInfo
    generator: str
    problem: str
    cache: str


@dataclass(frozen=True)
class Arrival:
    """A measurement on its way: its place, its columns, and whether it may become the winner.

    `counts` are the least values of its tuning's `trials` or `claimed`.
    """

    place: Place
    row: dict[str, Any]
    competes: bool = True
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class _Tuning:
    """A tuning's row while measurements arrive; `best` competes with its winner.

    `new` is the place of an arrival that is the winner now, None while the old one is.
    """

    id: int
    counts: dict[str, int]
    winner: int | None
    best: tuple[bool, float] | None = None
    new: int | None = None
    known: set[tuple[Any, ...]] = field(default_factory=set)
    measured_here: set[tuple[Any, ...]] = field(default_factory=set)
    raised: bool = False


def take_in(
    connection: Connection, arrivals: Sequence[Arrival], batch: int | None = None
) -> list[bool | None]:
    """Keep `arrivals`; say of each whether it won, None where it was known.

    A claim never beats what was measured here, nor comes from a quarantined origin; one about a
    variant that was measured here changes no winner.

    Args:
        connection: in a transaction that writes.
        arrivals: in the order in which all writers take places.
        batch: id of the batch that they came with.
    """
    tunings = _tunings(connection, arrivals)
    _read_known(connection, tunings.values(), arrivals)
    distrusted = set(connection.execute(select(QuarantineRow.origin)).scalars())
    verdicts = []
    for number, one in enumerate(arrivals):
        believed = one.competes and one.row["origin"] not in distrusted
        verdicts.append(_judge(tunings[one.place], one, number, believed))
    new = [number for number, won in enumerate(verdicts) if won is not None]
    if new:
        rows = [
            {"tuning_id": tunings[arrivals[n].place].id, "batch_id": batch, **arrivals[n].row}
            for n in new
        ]
        ids = dict(zip(new, add_rows(connection, MeasurementRow, rows), strict=True))
        _crown(connection, tunings.values(), ids)
    _count(connection, tunings.values())
    return verdicts


def count_new(connection: Connection, arrivals: Sequence[Arrival]) -> int:
    """Return how many of `arrivals` are not kept yet.

    Args:
        connection: in a transaction.
        arrivals: in any order.
    """
    place = (*(getattr(DeviceRow, name) for name in device_rows.DEVICE), *_PLACED)
    asked = (
        select(*place, *(getattr(MeasurementRow, name) for name in _SAME))
        .join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)
        .join(DeviceRow, DeviceRow.id == TuningRow.device_id)
    )
    new = 0
    for start in range(0, len(arrivals), CHUNK):
        some = arrivals[start : start + CHUNK]
        near = asked.where(
            is_among(connection, TuningRow.problem, {one.place.problem for one in some}),
            is_among(connection, MeasurementRow.config, {one.row["config"] for one in some}),
        )
        sent = {
            (*astuple(one.place.info), *one.place[1:], *(one.row[name] for name in _SAME))
            for one in some
        }
        new += len(sent.difference(tuple(row) for row in connection.execute(near)))
    return new


def raise_peaks(connection: Connection, records: Iterable[Record], *, claimed: bool) -> None:
    """Keep the largest peaks that records give of each device.

    Args:
        connection: in a transaction that writes.
        records: of any devices.
        claimed: said by somewhere else, not measured here.
    """
    best: dict[DeviceInfo, dict[str, float]] = defaultdict(dict)
    for one in records:
        rates = dict(zip(_FIRST, one.peak, strict=True)) if one.peak else {}
        known = best[one.device]
        for name, rate in (rates | (one.peaks or {})).items():
            known[name] = max(rate, known.get(name, 0.0))
    for info, known in best.items():
        if known:
            gflops, gbytes = (known.pop(name, None) for name in _FIRST)
            device_rows.raise_peak(connection, info, gflops, gbytes, known, claimed=claimed)


def _judge(tuning: _Tuning, one: Arrival, number: int, competes: bool) -> bool | None:
    row = one.row
    for name, count in one.counts.items():
        if tuning.counts[name] < count:
            tuning.counts[name], tuning.raised = count, True
    same, variant = (tuple(row[name] for name in names) for names in (_SAME, VARIANT))
    if same in tuning.known:
        return None
    tuning.known.add(same)
    settled = row["origin"] and variant in tuning.measured_here
    if not row["origin"]:
        tuning.measured_here.add(variant)
    if settled or not competes or row["ms"] is None:
        return False
    rank = (row["origin"] != "", row["ms"])
    if tuning.best is not None and tuning.best <= rank:
        return False
    tuning.best, tuning.new = rank, number
    return True


def _tunings(connection: Connection, arrivals: Sequence[Arrival]) -> dict[Place, _Tuning]:
    """Return the rows of all places, made where there are none and locked, with their winners."""
    groups: dict[tuple[DeviceInfo, str, str], dict[str, None]] = defaultdict(dict)
    for one in arrivals:
        info, generator, problem, cache = one.place
        groups[info, generator, cache][problem] = None
    infos = dict.fromkeys(info for info, _, _ in groups)
    devices = {info: row_id(connection, DeviceRow, asdict(info)) for info in infos}
    found: dict[Place, _Tuning] = {}
    for (info, generator, cache), problems in groups.items():
        same = {"device_id": devices[info], "generator": generator, "cache": cache}
        _insert_missing(connection, same, problems)
        names = ("id", "problem", "trials", "claimed", "winner_id")
        asked = select(*(getattr(TuningRow, name) for name in names)).filter_by(**same)
        asked = asked.where(is_among(connection, TuningRow.problem, problems))
        asked = asked.order_by(TuningRow.id)
        for row in connection.execute(asked.with_for_update()):
            counts = {"trials": row.trials, "claimed": row.claimed}
            place = Place(info, generator, row.problem, cache)
            found[place] = _Tuning(row.id, counts, row.winner_id)
    _read_winners(connection, found.values())
    return found


def _insert_missing(
    connection: Connection, same: dict[str, Any], problems: Collection[str]
) -> None:
    """Make the rows of problems that have none; `same` are the columns that all of them share."""
    asked = select(TuningRow.problem).filter_by(**same)
    asked = asked.where(is_among(connection, TuningRow.problem, problems))
    known = set(connection.execute(asked).scalars())
    new = [
        same | {"problem": problem, "trials": 0, "claimed": 0}
        for problem in problems
        if problem not in known
    ]
    if new:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        connection.execute(dialect.insert(TuningRow).on_conflict_do_nothing(), new)


def _read_winners(connection: Connection, tunings: Iterable[_Tuning]) -> None:
    by_winner = {one.winner: one for one in tunings if one.winner is not None}
    names = (MeasurementRow.id, MeasurementRow.origin, MeasurementRow.ms)
    of_winners = is_among(connection, MeasurementRow.id, by_winner)
    for row in connection.execute(select(*names).where(of_winners)):
        if row.ms is not None:
            by_winner[row.id].best = (row.origin != "", row.ms)


def _read_known(
    connection: Connection, tunings: Iterable[_Tuning], arrivals: Iterable[Arrival]
) -> None:
    """Read what is kept of arrivals: the same measurement, or the same variant's here."""
    by_id = {one.id: one for one in tunings}
    configs, times = ({one.row[name] for one in arrivals} for name in ("config", "ms"))
    names = ("tuning_id", "origin", *_SAME)
    asked = select(*(getattr(MeasurementRow, name) for name in names)).where(
        is_among(connection, MeasurementRow.tuning_id, by_id),
        is_among(connection, MeasurementRow.config, configs),
    )
    same = [MeasurementRow.origin == "", is_among(connection, MeasurementRow.ms, times - {None})]
    same += [MeasurementRow.ms.is_(None)] if None in times else []
    asked = asked.where(or_(*same))
    for row in connection.execute(asked).mappings():
        tuning = by_id[row["tuning_id"]]
        tuning.known.add(tuple(row[name] for name in _SAME))
        if not row["origin"]:
            tuning.measured_here.add(tuple(row[name] for name in VARIANT))


def _crown(connection: Connection, tunings: Iterable[_Tuning], ids: dict[int, int]) -> None:
    won = [{"key": one.id, "to": ids[one.new]} for one in tunings if one.new is not None]
    if won:
        crowned = update(TuningRow).where(TuningRow.id == bindparam("key"))
        connection.execute(crowned.values(winner_id=bindparam("to")), won)


def _count(connection: Connection, tunings: Iterable[_Tuning]) -> None:
    raised = [{"key": one.id} | one.counts for one in tunings if one.raised]
    if raised:
        counted = update(TuningRow).where(TuningRow.id == bindparam("key"))
        counted = counted.values(trials=bindparam("trials"), claimed=bindparam("claimed"))
        connection.execute(counted, raised)
