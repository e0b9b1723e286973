"""What was measured, kept in a database: every measurement, one winner per tuning.

It opens no device and chooses nothing; `tuned_db.choose` reads the winners into memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from math import inf, isfinite, nan
from typing import Any

from sqlalchemy import Connection, Select, insert, select, update
from sqlalchemy.exc import IntegrityError

from oclgen import GENERATOR_VERSION
from oclgen.families import ConfigError, config_from_dict, config_to_json
from oclgen.limits import DeviceInfo
from oclgen.measurement import Measurement
from oclgen.problem import Problem
from tuned_db.database import Database, locate, open_database
from tuned_db.models import DeviceRow, MeasurementRow, TuningRow
from tuned_db.record import Record, RecordError, json_object

Query = Select[*tuple[Any, ...]]

_REASON_LIMIT = 2000
"""Characters of a failure's reason that are kept: a compiler's log can be megabytes."""


_MEASURED = ("family", "config", "samples", "error", "created", "version")
_DEVICE = tuple(field.name for field in fields(DeviceInfo))
_PLACE = (
    TuningRow.problem,
    TuningRow.trials,
    TuningRow.generator,
    *(getattr(DeviceRow, name) for name in _DEVICE),
)


def open_store(where: str | os.PathLike[str] | None = None) -> Store:
    """Open the database at a URL or path, else at $OCLGEN_DB, else in the user's data folder.

    It is created if it is not there and upgraded if it is older; a file that cannot be written
    still serves what is in it.

    Raises:
        DatabaseError: it is damaged, something else's, of a newer schema, or out of reach.
    """
    return Store(open_database(locate(where)))


@dataclass(frozen=True)
class Merge:
    """What came of an import: records that became winners, and those that were not faster."""

    improved: int
    kept: int


class Store:
    """The records of many devices; may be used by many threads, and by many processes at once.

    Every method raises `DatabaseError` where the database fails, and then nothing was changed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def name(self) -> str:
        """What and where the database is, for messages."""
        return self._database.name

    def of(self, info: DeviceInfo) -> DeviceStore:
        """Return the part that belongs to one device, its driver and this generator."""
        return DeviceStore(self._database, info)

    def all_winners(self) -> list[Record]:
        """Return every readable winner, sorted by device, generator and problem."""
        with self._database.reading() as connection:
            return sorted(_records(connection, _winners()), key=lambda record: record.order)

    def merge(self, records: Iterable[Record]) -> Merge:
        """Take in `records` in one transaction and keep the faster where both sides have one.

        The history keeps a record that was not known; the trials become the larger count.
        """
        with self._database.writing() as connection:
            improved = [_merge(connection, record) for record in records]
        return Merge(sum(improved), len(improved) - sum(improved))


class DeviceStore:
    """What is known of one device with its driver and this generator; what a tuning talks to."""

    def __init__(self, database: Database, info: DeviceInfo) -> None:
        self._database, self._info = database, info

    def record(self, problem: Problem, family: str, config: Any, measurement: Measurement) -> bool:
        """Keep a measurement, failures too, and say whether it became the winner."""
        with self._database.writing() as connection:
            tuning = self._tuning(connection, problem)
            row = _row(family, config_to_json(config), measurement)
            if not _is_known(connection, tuning, row, "family", "config"):
                _set(connection, tuning, trials=TuningRow.trials + 1)
            key = _add(connection, tuning, row)
            return measurement.ok and _crown_if_faster(connection, tuning, key, row["ms"])

    def promote(self, problem: Problem, family: str, config: Any, measurement: Measurement) -> None:
        """Keep a measurement and make it the winner: it won side by side against the others.

        Raises:
            ValueError: the measurement is a failure.
        """
        if not measurement.ok:
            raise ValueError(f"a failure cannot win: {measurement.invalidity}")
        with self._database.writing() as connection:
            tuning = self._tuning(connection, problem)
            row = _row(family, config_to_json(config), measurement)
            _set(connection, tuning, winner_id=_add(connection, tuning, row))

    def winner(self, problem: Problem) -> Record | None:
        """Return the winner for exactly this problem, or None."""
        with self._database.reading() as connection:
            return next(iter(_records(connection, self._only(_winners(), problem))), None)

    def incumbent(self, problem: Problem) -> tuple[str, Any, float] | None:
        """Return family, config and milliseconds of the winner; None if it no longer parses."""
        if (record := self.winner(problem)) is None:
            return None
        try:
            config = config_from_dict(record.family, json_object(record.config))
        except ConfigError:
            return None
        return record.family, config, record.ms

    def measured(self, problem: Problem) -> dict[tuple[str, str], float]:
        """Return milliseconds by (family, config JSON) of all that was tried; failures: inf."""
        row = MeasurementRow
        asked = select(row.family, row.config, row.ms).join(
            TuningRow, TuningRow.id == row.tuning_id
        )
        asked = asked.join(DeviceRow, DeviceRow.id == TuningRow.device_id)
        found: dict[tuple[str, str], float] = {}
        with self._database.reading() as connection:
            for family, config, ms in connection.execute(self._only(asked, problem)):
                best = found.get((family, config), inf)
                found[family, config] = min(best, inf if ms is None else ms)
        return found

    def trials(self, problem: Problem) -> int:
        """Return how many distinct variants were tried, here or where the winner came from."""
        asked = select(TuningRow.trials).join(DeviceRow, DeviceRow.id == TuningRow.device_id)
        with self._database.reading() as connection:
            return connection.execute(self._only(asked, problem)).scalar() or 0

    def _tuning(self, connection: Connection, problem: Problem) -> int:
        return _tuning_id(connection, self._info, GENERATOR_VERSION, problem.key())

    def _only(self, asked: Query, problem: Problem) -> Query:
        """Narrow `asked` to this device, this generator and `problem`."""
        return asked.where(
            TuningRow.problem == problem.key(),
            TuningRow.generator == GENERATOR_VERSION,
            *_is_device(self._info),
        )


def _is_device(info: DeviceInfo) -> list[Any]:
    return [getattr(DeviceRow, name) == value for name, value in asdict(info).items()]


def _tuning_id(connection: Connection, info: DeviceInfo, generator: str, problem: str) -> int:
    """Return the row of a tuning, made if it is not there and locked until the transaction ends."""
    device = _row_id(connection, DeviceRow, asdict(info))
    values = {"device_id": device, "generator": generator, "problem": problem}
    tuning = _row_id(connection, TuningRow, values, trials=0)
    # SQLite has locked the file already and knows no row locks; a server needs this one
    connection.execute(select(TuningRow.id).filter_by(id=tuning).with_for_update())
    return tuning


def _row_id(connection: Connection, table: Any, key: dict[str, Any], **more: Any) -> int:
    """Return the id of the row with this unique key, inserted if it is not there."""
    asked = select(table.id).filter_by(**key)
    found = connection.execute(asked).scalar()
    if found is None:
        try:
            with connection.begin_nested():
                return _inserted(connection, insert(table).values(**key, **more))
        except IntegrityError:  # another writer was faster
            found = connection.execute(asked).scalar_one()
    return int(found)


def _inserted(connection: Connection, statement: Any) -> int:
    result: Any = connection.execute(statement)
    return int(result.inserted_primary_key[0])


def _row(family: str, config: str, measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as columns; times are kept to the nanosecond that devices count in."""
    return {
        "family": family,
        "config": config,
        "samples": [round(sample, 6) for sample in measurement.samples],
        "ms": round(measurement.ms, 6) if measurement.ok else None,
        "spread": measurement.spread if measurement.ok else None,
        "error": measurement.error if isfinite(measurement.error) else None,
        "invalidity": measurement.invalidity,
        "reason": measurement.reason[:_REASON_LIMIT],
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "version": _version(),
    }


@cache
def _version() -> str:
    return version("oclgen")


def _add(connection: Connection, tuning: int, row: dict[str, Any]) -> int:
    return _inserted(connection, insert(MeasurementRow).values(tuning_id=tuning, **row))


def _set(connection: Connection, tuning: int, **values: Any) -> None:
    connection.execute(update(TuningRow).where(TuningRow.id == tuning).values(**values))


def _is_known(connection: Connection, tuning: int, row: dict[str, Any], *names: str) -> bool:
    """Say whether a measurement with the same values of `names` is there already."""
    same = {name: row[name] for name in names}
    asked = select(MeasurementRow.id).filter_by(tuning_id=tuning, **same).limit(1)
    return connection.execute(asked).scalar() is not None


def _crown_if_faster(connection: Connection, tuning: int, key: int, ms: float) -> bool:
    asked = select(MeasurementRow.ms).join(TuningRow, TuningRow.winner_id == MeasurementRow.id)
    best = connection.execute(asked.where(TuningRow.id == tuning)).scalar()
    if best is not None and best <= ms:
        return False
    _set(connection, tuning, winner_id=key)
    return True


def _winners() -> Query:
    """Return the query of every winner with its tuning and device."""
    return (
        select(*(MeasurementRow.__table__.c[name] for name in _MEASURED), *_PLACE)
        .join(TuningRow, TuningRow.winner_id == MeasurementRow.id)
        .join(DeviceRow, DeviceRow.id == TuningRow.device_id)
    )


def _records(connection: Connection, query: Query) -> Iterator[Record]:
    """Yield the records of a query of winners; a row that is no record is stepped over."""
    for row in connection.execute(query).mappings():
        values = dict(row)
        device = DeviceInfo(**{name: values.pop(name) for name in _DEVICE})
        values["samples"] = tuple(values["samples"])
        with suppress(RecordError):
            yield Record(device=device, **values)


def _merge(connection: Connection, record: Record) -> bool:
    """Take in one record and say whether it became the winner."""
    tuning = _tuning_id(connection, record.device, record.generator, record.problem)
    trials = connection.execute(select(TuningRow.trials).filter_by(id=tuning)).scalar_one()
    _set(connection, tuning, trials=max(trials, record.trials))
    measurement = Measurement(record.samples, error=nan if record.error is None else record.error)
    row = _row(record.family, record.config, measurement)
    row |= {"created": record.created, "version": record.version}
    if _is_known(connection, tuning, row, "family", "config", "ms", "created"):
        return False
    return _crown_if_faster(connection, tuning, _add(connection, tuning, row), row["ms"])
