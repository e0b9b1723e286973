"""Housekeeping of a database: merges a whole other one into it, and drops rows that are not wanted.

`tuned_db.storage.store` takes in single records, `tuned_db.records.exchange` files of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, delete, exists, false, func, or_, select, update

from oclgen.limits import DeviceInfo
from tuned_db.database.models import MEASURED, CheckRow, DeviceRow, MeasurementRow, TuningRow
from tuned_db.records.digests import is_of_today
from tuned_db.storage import device_rows, rows
from tuned_db.storage.arrivals import CHUNK, Arrival, Place, take_in
from tuned_db.storage.batches import Source, count_batch, open_batch
from tuned_db.storage.store import Store

BATCH = 2000
"""Measurements that are read at once."""
_TUNING = ("generator", "problem", "cache", "trials", "claimed", "winner_id")


@dataclass(frozen=True)
class Absorbed:
    """The result of merging: measurements that were new, and how many tunings got a new winner."""

    new: int
    improved: int
    known: int


def absorb(target: Store, source: Store, *, trusted: bool = False) -> Absorbed:
    """Copy every measurement of `source` into `target`, failures too; `source` stays as it is.

    With `trusted`, what was measured by those who write to `source` counts as measured here: right
    for a second database of one machine. Else it comes as claims. Batches are transactions of
    their own, and running it again does no harm.

    Args:
        target: what is written to.
        source: what is read.
        trusted: its measurements count as made here.
    """
    new = improved = known = 0
    batch: int | None = None
    for copies in _chunks(source):
        with target.database.writing() as connection:
            batch = open_batch(connection, "merge", Source(batch=batch))
            won = _take(connection, copies, batch, trusted=trusted)
            count_batch(connection, batch, len(won) - won.count(None))
        known, new = known + won.count(None), new + len(won) - won.count(None)
        improved += len({one.place for one, wins in zip(copies, won, strict=True) if wins})
        target.database.let_others_write()
    return Absorbed(new, improved, known)


_Peak = tuple[float | None, float | None, dict[str, float] | None]


@dataclass(frozen=True)
class _Copy:
    """A measurement on its way: the device and its peaks, columns of its tuning, and its own."""

    info: DeviceInfo
    peak: _Peak
    claimed_peak: _Peak
    limits: dict[str, Any] | None
    tuning: dict[str, Any]
    row: dict[str, Any]
    wins: bool

    @property
    def place(self) -> Place:
        """Its tuning, as every database names it."""
        return Place(self.info, *(self.tuning[name] for name in Place._fields[1:]))

    @property
    def order(self) -> tuple[Any, ...]:
        """The order in which all writers take tunings."""
        return (*asdict(self.info).values(), *self.place[1:])

    def arrival(self, *, trusted: bool) -> Arrival:
        """Return it as it arrives elsewhere: as a claim, unless it is trusted.

        Only the source's winner competes: it has beaten the others, by a duel if not by its time.
        """
        row = self.row if self.row["origin"] or trusted else self.row | {"origin": "merge"}
        trials, claimed = self.tuning["trials"], self.tuning["claimed"]
        counts = {"claimed": claimed if trusted else max(trials, claimed)}
        return Arrival(self.place, row, self.wins, counts | ({"trials": trials} if trusted else {}))


def _take(
    connection: Connection, copies: list[_Copy], batch: int, *, trusted: bool
) -> list[bool | None]:
    """Take in measurements; say of each whether it won, None where it was known."""
    for first in {one.info: one for one in copies}.values():
        device_rows.raise_peak(connection, first.info, *first.peak, claimed=not trusted)
        device_rows.raise_peak(connection, first.info, *first.claimed_peak, claimed=True)
        if first.limits is not None:
            device_rows.set_limits(connection, first.info, first.limits, claimed=not trusted)
    won = take_in(connection, [one.arrival(trusted=trusted) for one in copies], batch)
    if trusted:
        for place in dict.fromkeys(one.place for one in copies):
            tuning = rows.tuning_id(connection, *place)
            rows.raise_count(connection, tuning, trials=rows.variants_here(connection, tuning))
    return won


def _chunks(source: Store) -> Iterator[list[_Copy]]:
    """Yield every measurement, sorted as all writers do."""
    asked = (
        select(
            MeasurementRow.id,
            *(getattr(MeasurementRow, name) for name in MEASURED),
            *(getattr(TuningRow, name) for name in _TUNING),
            *(DeviceRow.peak_gflops, DeviceRow.peak_gbytes, DeviceRow.peaks),
            *(DeviceRow.claimed_gflops, DeviceRow.claimed_gbytes, DeviceRow.claimed_peaks),
            DeviceRow.limits,
            *(getattr(DeviceRow, name) for name in device_rows.DEVICE),
        )
        .join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)
        .join(DeviceRow, DeviceRow.id == TuningRow.device_id)
        .order_by(MeasurementRow.id)
        .limit(CHUNK)
    )
    last = 0
    while True:
        with source.database.reading() as connection:
            found = connection.execute(asked.where(MeasurementRow.id > last)).mappings().all()
        if not found:
            return
        last = found[-1]["id"]
        yield sorted((_copy(dict(row)) for row in found), key=lambda one: one.order)


def _copy(values: dict[str, Any]) -> _Copy:
    return _Copy(
        DeviceInfo(**{name: values[name] for name in device_rows.DEVICE}),
        (values["peak_gflops"], values["peak_gbytes"], values["peaks"]),
        (values["claimed_gflops"], values["claimed_gbytes"], values["claimed_peaks"]),
        values["limits"],
        {name: values[name] for name in _TUNING},
        {name: values[name] for name in MEASURED},
        values["id"] == values["winner_id"],
    )


@dataclass(frozen=True)
class Prune:
    """What is to be dropped; a measurement goes if any of these holds for it."""

    failures: bool = False
    """Variants that did not work: they will be tried again."""
    history: bool = False
    """All that is no winner."""
    claims: bool = False
    """Rows from elsewhere: not measured by processes that write to this database."""
    outdated: bool = False
    """Rows of kernels that are not generated today, or that are unknown."""
    origin: str = ""
    """Rows with this origin, such as "push by mallory"."""

    def condition(self) -> Any:
        """Return what a measurement's row fulfils if it is to go; no row tells what is outdated."""
        chosen = select(TuningRow.winner_id).where(TuningRow.winner_id.is_not(None))
        given = [
            (self.failures, MeasurementRow.ms.is_(None)),
            (self.history, MeasurementRow.id.not_in(chosen)),
            (self.claims, MeasurementRow.origin != ""),
            (self.origin, MeasurementRow.origin == self.origin),
        ]
        return or_(false(), *(condition for wanted, condition in given if wanted))


def prune(
    store: Store,
    what: Prune,
    *,
    dry_run: bool = False,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Drop measurements and return how many; where a winner goes, the next best is crowned.

    Tunings and devices of which nothing is left go too. It is one transaction; with `dry_run`
    nothing is dropped. `report` hears how many measurements were compared with today's kernels, and
    of how many: a variant takes some 10 ms.

    Args:
        store: what is written to.
        what: which measurements go.
        dry_run: only count.
        report: hears how many of how many were compared.
    """
    if what == Prune():
        return 0
    condition = what.condition()
    outdated = list(_outdated(store, condition, report)) if what.outdated else []
    with store.database.writing() as connection:
        asked = select(func.count()).select_from(MeasurementRow).where(condition)
        count = int(connection.execute(asked).scalar_one()) + len(outdated)
        if count and not dry_run:
            connection.execute(delete(MeasurementRow).where(condition))
            rows.drop(connection, outdated)
            repair(connection)
    return count


def _outdated(store: Store, beside: Any, report: Callable[[int, int], None]) -> Iterator[int]:
    """Yield the key of every measurement of other kernels than today's that `beside` leaves."""
    count = select(func.count()).select_from(MeasurementRow).where(~beside)
    with store.database.reading() as connection:
        total = int(connection.execute(count).scalar_one())
    asked = rows.measured().where(~beside).order_by(MeasurementRow.id).limit(BATCH)
    last = done = 0
    while True:
        with store.database.reading() as connection:
            found = connection.execute(asked.where(MeasurementRow.id > last)).all()
        if not found:
            return
        for one in found:
            if not is_of_today(one):
                yield one.id
            done += 1
            report(done, total)
        last = found[-1].id


def repair(connection: Connection) -> None:
    """Crown where a winner is gone; drop tunings, devices and claims of which nothing is left."""
    kept = exists().where(MeasurementRow.tuning_id == TuningRow.id)
    connection.execute(delete(TuningRow).where(~kept))
    untuned = select(DeviceRow.id).where(~exists().where(TuningRow.device_id == DeviceRow.id))
    connection.execute(delete(CheckRow).where(CheckRow.device_id.in_(untuned)))
    connection.execute(delete(DeviceRow).where(DeviceRow.id.in_(untuned)))
    claims = exists().where(MeasurementRow.tuning_id == TuningRow.id, MeasurementRow.origin != "")
    connection.execute(update(TuningRow).where(~claims).values(claimed=0))
    theirs = select(TuningRow.device_id).join(
        MeasurementRow, MeasurementRow.tuning_id == TuningRow.id
    )
    theirs = theirs.where(MeasurementRow.origin != "")
    unclaimed = update(DeviceRow).where(DeviceRow.id.not_in(theirs))
    connection.execute(
        unclaimed.values(claimed_gflops=None, claimed_gbytes=None, claimed_peaks=None)
    )
    crowned = exists().where(MeasurementRow.id == TuningRow.winner_id)
    orphans = select(TuningRow.id).where(TuningRow.winner_id.is_not(None), ~crowned)
    for tuning in connection.execute(orphans).scalars().all():
        rows.crown_best(connection, tuning)
