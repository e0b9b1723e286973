"""Housekeeping of a database: taking in another one whole, and dropping what is not wanted.

Records one by one are `tuned_db.store`'s business, files of them `tuned_db.exchange`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import Connection, delete, exists, func, or_, select

from oclgen import GENERATOR_VERSION
from oclgen.limits import DeviceInfo
from tuned_db import rows
from tuned_db.models import DeviceRow, MeasurementRow, TuningRow
from tuned_db.store import Store

BATCH = 2000
"""Measurements per transaction: few enough that others get their turn."""
_INFO = tuple(field.name for field in fields(DeviceInfo))
_KEPT = (
    "family", "config", "samples", "ms", "spread", "error", "invalidity", "reason", "created",
    "version", "origin",
)  # fmt: skip


@dataclass(frozen=True)
class Absorbed:
    """What came of merging: measurements that were new, and how many of them became winners."""

    new: int
    improved: int
    known: int


def absorb(target: Store, source: Store, *, trusted: bool = False) -> Absorbed:
    """Copy every measurement of `source` into `target`, failures too; `source` stays as it is.

    With `trusted`, what was measured by those who write to `source` counts as measured here: right
    for a second database of one machine. Else it comes as claims. Batches are transactions of
    their own, and running it again does no harm.
    """
    new = improved = known = 0
    for batch in _batches(source):
        with target.database.writing() as connection:
            for info, place, row in batch:
                if not row["origin"] and not trusted:
                    row["origin"] = "merge"
                won = _take(connection, info, place, row)
                known, new = known + (won is None), new + (won is not None)
                improved += won is True
    return Absorbed(new, improved, known)


def _take(
    connection: Connection, info: DeviceInfo, place: dict[str, Any], row: dict[str, Any]
) -> bool | None:
    tuning = rows.tuning_id(connection, info, place["generator"], place["problem"])
    if place["peak_gflops"] is not None and place["peak_gbytes"] is not None:
        peak = (place["peak_gflops"], place["peak_gbytes"])
        rows.set_peak(connection, info, peak, replace=False)
    rows.raise_trials(connection, tuning, place["trials"])
    return rows.take(connection, tuning, row)


def _batches(source: Store) -> Iterator[list[tuple[DeviceInfo, dict[str, Any], dict[str, Any]]]]:
    """Yield device, tuning and columns of every measurement, sorted as all writers do."""
    asked = (
        select(
            MeasurementRow.id,
            *(getattr(MeasurementRow, name) for name in _KEPT),
            *(TuningRow.generator, TuningRow.problem, TuningRow.trials),
            *(DeviceRow.peak_gflops, DeviceRow.peak_gbytes),
            *(getattr(DeviceRow, name) for name in _INFO),
        )
        .join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)
        .join(DeviceRow, DeviceRow.id == TuningRow.device_id)
        .order_by(MeasurementRow.id)
        .limit(BATCH)
    )
    last = 0
    while True:
        with source.database.reading() as connection:
            found = connection.execute(asked.where(MeasurementRow.id > last)).mappings().all()
        if not found:
            return
        last = found[-1]["id"]
        batch = [_split(dict(row)) for row in found]
        yield sorted(batch, key=lambda one: (*asdict(one[0]).values(), *list(one[1].values())[:2]))


def _split(values: dict[str, Any]) -> tuple[DeviceInfo, dict[str, Any], dict[str, Any]]:
    info = DeviceInfo(**{name: values.pop(name) for name in _INFO})
    place = {
        name: values.pop(name)
        for name in ("generator", "problem", "trials", "peak_gflops", "peak_gbytes")
    }
    return info, place, {name: values[name] for name in _KEPT}


@dataclass(frozen=True)
class Prune:
    """What is to be dropped; a measurement goes if any of these holds for it."""

    failures: bool = False
    """Variants that did not work: they will be tried again."""
    history: bool = False
    """All that is no winner."""
    claims: bool = False
    """What was not measured by those who write to this database."""
    other_generators: bool = False
    """What was measured with another version of the generator."""
    origin: str = ""
    """What came this way, such as "push by mallory"."""

    def condition(self) -> Any:
        """Return what a measurement's row fulfils if it is to go."""
        tunings = select(TuningRow.id).where(TuningRow.generator != GENERATOR_VERSION)
        chosen = select(TuningRow.winner_id).where(TuningRow.winner_id.is_not(None))
        given = [
            (self.failures, MeasurementRow.ms.is_(None)),
            (self.history, MeasurementRow.id.not_in(chosen)),
            (self.claims, MeasurementRow.origin != ""),
            (self.other_generators, MeasurementRow.tuning_id.in_(tunings)),
            (self.origin, MeasurementRow.origin == self.origin),
        ]
        return or_(*(condition for wanted, condition in given if wanted))


def prune(store: Store, what: Prune, *, dry_run: bool = False) -> int:
    """Drop measurements and return how many; where a winner goes, the next best is crowned.

    Tunings and devices of which nothing is left go too. It is one transaction; with `dry_run`
    nothing is dropped.
    """
    if what == Prune():
        return 0
    condition = what.condition()
    with store.database.writing() as connection:
        asked = select(func.count()).select_from(MeasurementRow).where(condition)
        count: int = connection.execute(asked).scalar_one()
        if count and not dry_run:
            connection.execute(delete(MeasurementRow).where(condition))
            _repair(connection)
    return count


def _repair(connection: Connection) -> None:
    """Crown where a winner is gone, and drop tunings and devices of which nothing is left."""
    kept = exists().where(MeasurementRow.tuning_id == TuningRow.id)
    connection.execute(delete(TuningRow).where(~kept))
    connection.execute(
        delete(DeviceRow).where(~exists().where(TuningRow.device_id == DeviceRow.id))
    )
    crowned = exists().where(MeasurementRow.id == TuningRow.winner_id)
    orphans = select(TuningRow.id).where(TuningRow.winner_id.is_not(None), ~crowned)
    for tuning in connection.execute(orphans).scalars().all():
        rows.crown_best(connection, tuning)
