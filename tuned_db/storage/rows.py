"""Statements on the tables, to be composed inside a caller's transaction.

Nothing here opens, begins or commits; `tuned_db.storage.store` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from math import isfinite
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import aliased

from oclgen.limits import DeviceInfo
from oclgen.measurement import Measurement
from oclgen.variant import Variant
from tuned_db.database.models import MEASURED, DeviceRow, MeasurementRow, QuarantineRow, TuningRow
from tuned_db.records.fields import LEAST_MS
from tuned_db.records.record import Record, RecordError
from tuned_db.storage.device_rows import (
    DEVICE,
    KNOWN_PEAK,
    PEAKS,
    inserted,
    is_device,
    known_peaks,
    row_id,
)

Query = Select[*tuple[Any, ...]]

_REASON_LIMIT = 2000
"""Characters of a failure's reason that are kept: a compiler's log can be megabytes."""
VARIANT = ("family", "config")
RECORDED = tuple(name for name in MEASURED if name in Record.__dataclass_fields__)
"""The columns of a measurement that are fields of a record, too."""
TRIALS = case((TuningRow.claimed > TuningRow.trials, TuningRow.claimed), else_=TuningRow.trials)
"""The variants that were tried for a tuning here or where a record came from."""
RUNNERS_UP = 64
"""Most measurements of a problem that are read beside its winners."""
MOST_KEYS = 2000
"""Values of a statement; SQLite may be built to take no more than 32,766."""
_PLACE = (
    TuningRow.problem,
    TuningRow.generator,
    TuningRow.cache,
    TRIALS.label("trials"),
    *KNOWN_PEAK,
    *PEAKS,
    *(getattr(DeviceRow, name) for name in DEVICE),
)


def tuning_id(
    connection: Connection, info: DeviceInfo, generator: str, problem: str, cache: str
) -> int:
    """Return the id of a tuning's row, made if there is none, and locked for the transaction.

    Args:
        connection: in a transaction that writes.
        info: the device, whose row is made if there is none.
        generator: the generator's version.
        problem: its key.
        cache: "warm" or "cold".
    """
    device = row_id(connection, DeviceRow, asdict(info))
    values = {"device_id": device, "generator": generator, "problem": problem, "cache": cache}
    tuning = row_id(connection, TuningRow, values, trials=0, claimed=0)
    if connection.dialect.name != "sqlite":  # which has locked the file already
        connection.execute(select(TuningRow.id).filter_by(id=tuning).with_for_update())
    return tuning


def columns_of(
    variant: Variant, measurement: Measurement, digest: str | None = None
) -> dict[str, Any]:
    """Return a measurement made here as columns; times are kept to the nanosecond.

    Args:
        variant: what was measured.
        measurement: times, or a failure.
        digest: of the variant's plan, None where there is none.
    """
    return {
        "family": variant.family,
        "config": variant.to_json(),
        **_times(measurement.samples),
        "error": measurement.error if isfinite(measurement.error) else None,
        "invalidity": measurement.invalidity,
        "reason": measurement.reason[:_REASON_LIMIT],
        "seed": measurement.seed,
        "conditions": dict(measurement.conditions) or None,
        "digest": digest,
        "promoted": False,
        "created": now(),
        "version": version_here(),
        "origin": "",
    }


def columns_of_record(record: Record, origin: str) -> dict[str, Any]:
    """Return a record that came by `origin` as columns."""
    kept = {name: getattr(record, name) for name in RECORDED}
    made_here = {"invalidity": "none", "reason": "", "promoted": False, "origin": origin}
    return kept | _times(record.samples) | made_here


def _times(samples: tuple[float, ...]) -> dict[str, Any]:
    """Return the columns of times; a clock that counts in coarser steps can say 0."""
    times = Measurement(tuple(max(round(sample, 6), LEAST_MS) for sample in samples))
    return {
        "samples": list(times.samples),
        "ms": times.ms if times.ok else None,
        "spread": times.spread if times.ok else None,
    }


def now() -> str:
    """Return the time as it is kept: UTC in ISO 8601, to the second."""
    return time_of(datetime.now(UTC))


def time_of(moment: datetime) -> str:
    """Return a time of UTC as it is kept."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def version_here() -> str:
    """Return this package's version."""
    return version("oclgen")


def set_tuning(connection: Connection, tuning: int, **values: Any) -> None:
    """Change columns of a tuning."""
    connection.execute(update(TuningRow).where(TuningRow.id == tuning).values(**values))


def _is_known(connection: Connection, tuning: int, row: dict[str, Any], *names: str) -> bool:
    """Say whether a measurement with the same values of `names` is there already."""
    same = {name: row[name] for name in names}
    asked = select(MeasurementRow.id).filter_by(tuning_id=tuning, **same).limit(1)
    return connection.execute(asked).scalar() is not None


def add_raced(connection: Connection, tuning: int, row: dict[str, Any]) -> None:
    """Insert what won a race in place of what won an earlier one; it wins where nothing else does.

    Args:
        connection: in a transaction that writes.
        tuning: id of its tuning.
        row: values by column, as `columns_of_record` returns them.
    """
    earlier = select(MeasurementRow.id).filter_by(tuning_id=tuning, origin=row["origin"])
    won = TuningRow.winner_id.in_(earlier)
    connection.execute(update(TuningRow).where(TuningRow.id == tuning, won).values(winner_id=None))
    gone = delete(MeasurementRow).filter_by(tuning_id=tuning, origin=row["origin"])
    connection.execute(gone)
    key = inserted(connection, insert(MeasurementRow).values(tuning_id=tuning, **row))
    still = (TuningRow.id == tuning, TuningRow.winner_id.is_(None))
    connection.execute(update(TuningRow).where(*still).values(winner_id=key))


def drop(connection: Connection, keys: Sequence[int]) -> None:
    """Delete measurements by their keys, in statements with as many values as any database takes.

    Args:
        connection: in a transaction that writes.
        keys: of the measurements; where one is a winner the caller crowns another.
    """
    for start in range(0, len(keys), MOST_KEYS):
        some = MeasurementRow.id.in_(keys[start : start + MOST_KEYS])
        connection.execute(delete(MeasurementRow).where(some))


def variants_here(connection: Connection, tuning: int) -> int:
    """Return how many distinct variants of a tuning were measured here and are still kept."""
    variants = select(MeasurementRow.family, MeasurementRow.config).distinct()
    mine = variants.filter_by(tuning_id=tuning, origin="").subquery()
    return int(connection.execute(select(func.count()).select_from(mine)).scalar_one())


def raise_count(connection: Connection, tuning: int, **counts: int) -> None:
    """Set `trials` or `claimed` of a tuning to a number, if that is more than it is."""
    for name, count in counts.items():
        where = (TuningRow.id == tuning, getattr(TuningRow, name) < count)
        connection.execute(update(TuningRow).where(*where).values({name: count}))


def add_here(connection: Connection, tuning: int, row: dict[str, Any]) -> int:
    """Insert what was measured here, count a variant that is new as a trial; return its id.

    Args:
        connection: in a transaction that writes.
        tuning: id of its tuning.
        row: values by column, as `columns_of` returns them.
    """
    if not _is_known(connection, tuning, row | {"origin": ""}, *VARIANT, "origin"):
        set_tuning(connection, tuning, trials=TuningRow.trials + 1)
    return inserted(connection, insert(MeasurementRow).values(tuning_id=tuning, **row))


def winner_is_claim(connection: Connection, tuning: int) -> bool:
    """Say whether a tuning's winner was not measured here."""
    asked = (
        select(MeasurementRow.id)
        .join(TuningRow, TuningRow.winner_id == MeasurementRow.id)
        .where(TuningRow.id == tuning, MeasurementRow.origin != "")
    )
    return connection.execute(asked).scalar() is not None


def crown_best(connection: Connection, tuning: int, without: Collection[int] = ()) -> int | None:
    """Make the best measurement the winner, none if there is none; return its id.

    Measurements made here come before all claims. Of these, the one that was promoted last stays
    until a later one is faster. A claim counts as long as its variant was not measured here.

    Args:
        connection: in a transaction that writes.
        tuning: id of the tuning.
        without: ids of measurements made here that do not count.
    """
    best = _best_here(connection, tuning, without)
    if best is None:
        best = connection.execute(_claims(tuning).limit(1)).scalar()
    set_tuning(connection, tuning, winner_id=best)
    return best


def _best_here(connection: Connection, tuning: int, without: Collection[int]) -> int | None:
    asked = select(MeasurementRow.id, MeasurementRow.ms).where(
        MeasurementRow.tuning_id == tuning,
        MeasurementRow.ms.is_not(None),
        MeasurementRow.origin == "",
        MeasurementRow.id.not_in(without),
    )
    last = asked.where(MeasurementRow.promoted).order_by(MeasurementRow.id.desc()).limit(1)
    promoted = connection.execute(last).first()
    if promoted is not None:
        later = (MeasurementRow.id >= promoted.id, MeasurementRow.ms <= promoted.ms)
        asked = asked.where(*later)
    asked = asked.order_by(MeasurementRow.ms, MeasurementRow.id)
    found = connection.execute(asked.limit(1)).first()
    return None if found is None else int(found.id)


def _claims(tuning: int) -> Query:
    """Return the query of the claims of a tuning that are not settled, by time."""
    return (
        select(MeasurementRow.id)
        .where(MeasurementRow.tuning_id == tuning, MeasurementRow.ms.is_not(None))
        .where(MeasurementRow.origin != "", ~settled(), ~distrusted())
        .order_by(MeasurementRow.ms, MeasurementRow.id)
    )


def distrusted() -> ColumnElement[bool]:
    """Return the condition that a measurement came from a quarantined origin."""
    return MeasurementRow.origin.in_(select(QuarantineRow.origin))


def settled() -> ColumnElement[bool]:
    """Return the condition that a measurement's variant was measured here."""
    checked = aliased(MeasurementRow)
    same = and_(
        checked.tuning_id == MeasurementRow.tuning_id,
        checked.family == MeasurementRow.family,
        checked.config == MeasurementRow.config,
        checked.origin == "",
    )
    return exists().where(same)


def challenge(connection: Connection, tuning: int, key: int) -> bool:
    """Make a measurement that went well the winner if it is better; say whether it is.

    A measurement made here is better than any claim, and no claim is better than it; among equals
    the faster one is.

    Args:
        connection: in a transaction that writes.
        tuning: id of the tuning.
        key: id of the measurement.
    """
    columns = (MeasurementRow.ms, MeasurementRow.origin)
    new = connection.execute(select(*columns).where(MeasurementRow.id == key)).one()
    asked = select(*columns).join(TuningRow, TuningRow.winner_id == MeasurementRow.id)
    old = connection.execute(asked.where(TuningRow.id == tuning)).first()
    if old is not None and (old.origin != "", old.ms) <= (new.origin != "", new.ms):
        return False
    set_tuning(connection, tuning, winner_id=key)
    return True


@cache
def measured() -> Query:
    """Return the query of every measurement: its time, and what says which kernels it is of."""
    names = ("id", "family", "config", "digest", "ms", "invalidity", "conditions")
    columns = (getattr(MeasurementRow, name) for name in names)
    place = (TuningRow.problem, TuningRow.generator, TuningRow.cache, TuningRow.id.label("tuning"))
    return select(*columns, *place).join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)


@cache
def winners() -> Query:
    """Return the query of every winner with its tuning and device."""
    return (
        select(*(getattr(MeasurementRow, name) for name in RECORDED), *_PLACE)
        .join(TuningRow, TuningRow.winner_id == MeasurementRow.id)
        .join(DeviceRow, DeviceRow.id == TuningRow.device_id)
    )


def runners_up(info: DeviceInfo, problem: str) -> Query:
    """Return the query for the best measurement of a problem if its winner cannot serve."""
    return (
        successes()
        .where(*is_device(info), TuningRow.problem == problem)
        .where(MeasurementRow.id != TuningRow.winner_id)
        .where(or_(MeasurementRow.origin == "", ~settled()), ~distrusted())
        .order_by(TuningRow.cache != "warm", MeasurementRow.origin != "")
        .order_by(MeasurementRow.ms, MeasurementRow.id)
        .limit(RUNNERS_UP)
    )


@cache
def successes() -> Query:
    """Return the query of every measurement that went well, winners among them."""
    return (
        select(*(getattr(MeasurementRow, name) for name in RECORDED), *_PLACE)
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
    device = DeviceInfo(**{name: values.pop(name) for name in DEVICE})
    gflops, gbytes = values.pop("known_gflops"), values.pop("known_gbytes")
    values["peak"] = None if gflops is None or gbytes is None else (gflops, gbytes)
    values["peaks"] = known_peaks(values.pop("peaks"), values.pop("claimed_peaks"))
    values["samples"] = tuple(values["samples"])
    return Record(device=device, **values)
