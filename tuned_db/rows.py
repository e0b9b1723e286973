"""Statements on the tables, to be composed inside somebody's transaction.

Nothing here opens, begins or commits; `tuned_db.store` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from math import isfinite
from typing import Any

from sqlalchemy import Connection, Select, and_, exists, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import aliased

from oclgen.limits import DeviceInfo
from oclgen.measurement import Measurement
from tuned_db.models import DeviceRow, MeasurementRow, TuningRow
from tuned_db.record import Record, RecordError

Query = Select[*tuple[Any, ...]]

_REASON_LIMIT = 2000
"""Characters of a failure's reason that are kept: a compiler's log can be megabytes."""
_MEASURED = ("family", "config", "samples", "error", "created", "version", "origin")
VARIANT = ("family", "config")
_DEVICE = tuple(field.name for field in fields(DeviceInfo))
_PLACE = (
    TuningRow.problem,
    TuningRow.trials,
    TuningRow.generator,
    DeviceRow.peak_gflops,
    DeviceRow.peak_gbytes,
    *(getattr(DeviceRow, name) for name in _DEVICE),
)


def is_device(info: DeviceInfo) -> list[Any]:
    """Return the conditions under which a device's row is this one."""
    return [getattr(DeviceRow, name) == value for name, value in asdict(info).items()]


def tuning_id(connection: Connection, info: DeviceInfo, generator: str, problem: str) -> int:
    """Return the row of a tuning, made if it is not there and locked until the transaction ends."""
    device = _row_id(connection, DeviceRow, asdict(info))
    values = {"device_id": device, "generator": generator, "problem": problem}
    tuning = _row_id(connection, TuningRow, values, trials=0)
    if connection.dialect.name != "sqlite":  # which has locked the file already
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


def columns_of(
    family: str, config: str, measurement: Measurement, origin: str = ""
) -> dict[str, Any]:
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
        "seed": measurement.seed,
        "cache": measurement.cache,
        "conditions": dict(measurement.conditions) or None,
        "created": now(),
        "version": _version(),
        "origin": origin,
    }


def now() -> str:
    """Return the time as it is kept: UTC in ISO 8601, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def _version() -> str:
    return version("oclgen")


def add_measurement(connection: Connection, tuning: int, row: dict[str, Any]) -> int:
    """Insert a measurement and return its id."""
    return _inserted(connection, insert(MeasurementRow).values(tuning_id=tuning, **row))


def set_tuning(connection: Connection, tuning: int, **values: Any) -> None:
    """Change columns of a tuning."""
    connection.execute(update(TuningRow).where(TuningRow.id == tuning).values(**values))


def is_known(connection: Connection, tuning: int, row: dict[str, Any], *names: str) -> bool:
    """Say whether a measurement with the same values of `names` is there already."""
    same = {name: row[name] for name in names}
    asked = select(MeasurementRow.id).filter_by(tuning_id=tuning, **same).limit(1)
    return connection.execute(asked).scalar() is not None


def raise_trials(connection: Connection, tuning: int, trials: int) -> None:
    """Set the trials of a tuning to `trials`, if that is more than they are."""
    where = (TuningRow.id == tuning, TuningRow.trials < trials)
    connection.execute(update(TuningRow).where(*where).values(trials=trials))


def set_peak(
    connection: Connection, info: DeviceInfo, peak: tuple[float, float], *, replace: bool
) -> None:
    """Keep what a device reaches at most; with `replace` also where less is known already."""
    _row_id(connection, DeviceRow, asdict(info))
    for name, value in zip(("peak_gflops", "peak_gbytes"), peak, strict=True):
        known = getattr(DeviceRow, name)
        lower = known.is_(None) | (known < value) if replace else known.is_(None)
        statement = update(DeviceRow).where(*is_device(info), lower)
        connection.execute(statement.values({name: value}))


def winner_is_claim(
    connection: Connection, tuning: int, variant: tuple[str, str] | None = None
) -> bool:
    """Say whether the winner (if it is `variant`: family, config) was not measured here."""
    asked = (
        select(MeasurementRow.family, MeasurementRow.config)
        .join(TuningRow, TuningRow.winner_id == MeasurementRow.id)
        .where(TuningRow.id == tuning, MeasurementRow.origin != "")
    )
    claim = connection.execute(asked).first()
    return claim is not None and variant in (None, tuple(claim))


def crown_best(connection: Connection, tuning: int) -> int | None:
    """Make the fastest measurement the winner, none if there is none; return its id.

    A claim counts as long as nobody here has measured the same variant.
    """
    checked = aliased(MeasurementRow)
    same = and_(
        checked.tuning_id == tuning,
        checked.family == MeasurementRow.family,
        checked.config == MeasurementRow.config,
        checked.origin == "",
    )
    asked = (
        select(MeasurementRow.id)
        .where(MeasurementRow.tuning_id == tuning, MeasurementRow.ms.is_not(None))
        .where(or_(MeasurementRow.origin == "", ~exists().where(same)))
        .order_by(MeasurementRow.ms, MeasurementRow.id)
        .limit(1)
    )
    best = connection.execute(asked).scalar()
    set_tuning(connection, tuning, winner_id=best)
    return best


def crown_if_faster(connection: Connection, tuning: int, key: int, ms: float) -> bool:
    """Make a measurement the winner if it is faster than the one there is; say whether it is."""
    asked = select(MeasurementRow.ms).join(TuningRow, TuningRow.winner_id == MeasurementRow.id)
    best = connection.execute(asked.where(TuningRow.id == tuning)).scalar()
    if best is not None and best <= ms:
        return False
    set_tuning(connection, tuning, winner_id=key)
    return True


def take(connection: Connection, tuning: int, row: dict[str, Any]) -> bool | None:
    """Take in a measurement from elsewhere; None if it was known, else whether it won.

    A claim about a variant that was measured here already changes no winner.
    """
    if is_known(connection, tuning, row, *VARIANT, "ms", "created"):
        return None
    settled = row["origin"] and is_known(
        connection, tuning, row | {"origin": ""}, *VARIANT, "origin"
    )
    key = add_measurement(connection, tuning, row)
    if settled or row["ms"] is None:
        return False
    return crown_if_faster(connection, tuning, key, row["ms"])


def winners() -> Query:
    """Return the query of every winner with its tuning and device."""
    return (
        select(*(MeasurementRow.__table__.c[name] for name in _MEASURED), *_PLACE)
        .join(TuningRow, TuningRow.winner_id == MeasurementRow.id)
        .join(DeviceRow, DeviceRow.id == TuningRow.device_id)
    )


def successes() -> Query:
    """Return the query of every measurement that went well, winners among them."""
    return (
        select(*(MeasurementRow.__table__.c[name] for name in _MEASURED), *_PLACE)
        .join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)
        .join(DeviceRow, DeviceRow.id == TuningRow.device_id)
        .where(MeasurementRow.ms.is_not(None))
    )


def records_of(connection: Connection, query: Query) -> Iterator[Record]:
    """Yield the records of a query of winners; a row that is no record is stepped over."""
    for row in connection.execute(query).mappings():
        with suppress(RecordError, TypeError):
            yield record_of(dict(row))


def record_of(values: dict[str, Any]) -> Record:
    """Return the record in a row of `winners` or `successes`.

    Raises:
        RecordError, TypeError: the row holds none.
    """
    device = DeviceInfo(**{name: values.pop(name) for name in _DEVICE})
    gflops, gbytes = values.pop("peak_gflops"), values.pop("peak_gbytes")
    values["peak"] = None if gflops is None or gbytes is None else (gflops, gbytes)
    values["samples"] = tuple(values["samples"])
    return Record(device=device, **values)
