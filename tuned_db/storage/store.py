"""What was measured, kept in a database: every measurement, one winner per tuning.

It opens no device and chooses nothing; `tuned_db.choosing.chooser` reads the winners into memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from oclgen import GENERATOR_VERSION
from oclgen.families import ConfigError
from oclgen.limits import DeviceInfo, Limits
from oclgen.measurement import PACE, Cache, Measurement
from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.database.models import DeviceRow, MeasurementRow, TuningRow
from tuned_db.database.opening import Database, locate, open_database
from tuned_db.database.place import ENVIRONMENT
from tuned_db.records.digests import digest_of, is_of_today
from tuned_db.records.record import Record, json_object
from tuned_db.storage import device_rows, rows
from tuned_db.storage.arrivals import CHUNK, count_new
from tuned_db.storage.batches import Source
from tuned_db.storage.merging import Merge, Merging, arrival_of
from tuned_db.storage.quick_checks import checks, note_check


def open_store(where: str | os.PathLike[str] | None = None) -> Store:
    """Open the database at a URL or path, else at $OCLGEN_DB, else in the user's data folder.

    It is created if it is not there and upgraded if it is older; a file that cannot be written
    still serves what is in it.

    Raises:
        DatabaseError: it is damaged, something else's, of a newer schema, or out of reach.
    """
    return Store(open_database(locate(where)))


def open_existing(where: str | os.PathLike[str] | None = None) -> Store:
    """Open a database as `open_store` does, but create none: a mistyped path is an error.

    Raises:
        DatabaseError: there is none, or it cannot be opened.
    """
    return Store(open_database(locate(where), create=False))


def open_if_any(where: str | os.PathLike[str] | None = None) -> Store | None:
    """Open a database as `open_existing` does; None if none is named and the user has none yet.

    Raises:
        DatabaseError: `where` or $OCLGEN_DB names one that is not there, or it cannot be opened.
    """
    url = locate(where)
    if not where and not os.environ.get(ENVIRONMENT) and not Path(str(url.database)).is_file():
        return None
    return Store(open_database(url, create=False))


class Store:
    """The records of many devices; may be used by many threads, and by many processes at once.

    Every method raises `DatabaseError` where the database fails, and then nothing was changed.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._merging = Merging(database)

    @property
    def name(self) -> str:
        """The kind and place of the database, for messages."""
        return self.database.name

    def of(self, info: DeviceInfo, cache: Cache = "warm") -> DeviceStore:
        """Return the part that belongs to one device with its driver.

        Times with warm and with cold caches are kept apart; each has its own winners.
        """
        return DeviceStore(self.database, info, cache)

    def peaks(self) -> dict[DeviceInfo, dict[str, float]]:
        """Return GFLOP/s by dtype of each device whose peak was measured here."""
        asked = select(DeviceRow.__table__).where(DeviceRow.peak_gflops.is_not(None))
        with self.database.reading() as connection:
            found = connection.execute(asked).all()
        return {
            device_rows.info_of(row): {"fp32": row.peak_gflops} | (row.peaks or {}) for row in found
        }

    def all_winners(self) -> list[Record]:
        """Return every readable winner, sorted by device, generator and problem."""
        return self._sorted(rows.winners())

    def relatives(self, info: DeviceInfo) -> list[Record]:
        """Return the winners of devices of one architecture and kind, `info` itself among them."""
        same = (DeviceRow.architecture == info.architecture, DeviceRow.kind == info.kind)
        # the few devices first: joined to them, SQLite would go through the tunings of all
        devices = select(DeviceRow.id).where(*same)
        return self._sorted(rows.winners().where(TuningRow.device_id.in_(devices)))

    def runners_up(self, info: DeviceInfo, problem: Problem) -> list[Record]:
        """Return the best measurements of `problem` on `info` that are no winners.

        Those with warm caches come first, then those made here, then faster ones; a claim whose
        variant was measured here is left out.
        """
        with self.database.reading() as connection:
            return list(rows.records_of(connection, rows.runners_up(info, problem.key())))

    def unsettled(self, info: DeviceInfo) -> list[Record]:
        """Return the claims about `info` whose variant was not measured here."""
        asked = rows.successes().where(MeasurementRow.origin != "", ~rows.settled())
        asked = asked.where(~rows.distrusted())
        return self._sorted(asked.where(*device_rows.is_device(info)))

    def checks(self, info: DeviceInfo) -> Mapping[str, str]:
        """Return what quick checks of plans on `info` said, by digest; "" where one may serve."""
        return checks(self.database, info)

    def note_check(self, info: DeviceInfo, digest: str, reason: str) -> None:
        """Keep what a quick check of a plan on a device said.

        Args:
            info: the device.
            digest: of the plan.
            reason: why it is not to serve; "": it may.
        """
        note_check(self.database, info, digest, reason)

    def note_race(self, record: Record) -> None:
        """Keep the winner of a race (`tuned_db.choosing.raced`) in place of an earlier race's."""
        place = (record.device, record.generator, record.problem, record.cache)
        with self.database.writing() as connection:
            tuning = rows.tuning_id(connection, *place)
            row = rows.columns_of_record(record, record.origin)
            rows.add_raced(connection, tuning, row)

    def history(self) -> list[Record]:
        """Return every measurement that went well as a record, in the order of `all_winners`."""
        return self._sorted(rows.successes())

    def _sorted(self, query: rows.Query) -> list[Record]:
        with self.database.reading() as connection:
            records = list(rows.records_of(connection, query))
        return sorted(records, key=lambda record: (record.order, record.created, record.ms))

    def merge(
        self,
        records: Iterable[Record],
        origin: str = "import",
        source: Source | None = None,
        report: Callable[[int], None] = lambda _: None,
    ) -> Merge:
        """Take in `records` and keep the faster where both sides have one.

        Everything taken in is a claim with this `origin`: it serves where nothing was measured
        here, but as unverified, until it is measured here. With an empty `origin` it counts as
        measured here. The history keeps every new record. A transaction has at most
        `arrivals.CHUNK` records, so that other writers wait little; records that other threads
        bring meanwhile are part of it (`tuned_db.storage.merging`). Doing it again does no harm.

        Args:
            records: in any order.
            origin: how they came.
            source: who sent them; several calls with one source are one batch.
            report: hears how many are kept.
        """
        ordered = sorted(records, key=lambda record: record.order)
        source = source or Source()
        improved = 0
        for start in range(0, len(ordered), CHUNK):
            chunk = ordered[start : start + CHUNK]
            merge = self._merging.merge(chunk, origin, source)
            source = replace(source, batch=merge.batch)
            improved += merge.improved
            report(start + len(chunk))
            if start + CHUNK < len(ordered):
                self.database.let_others_write()
        return Merge(improved, len(ordered) - improved, source.batch)

    def count_new(self, records: Iterable[Record]) -> int:
        """Return how many of `records` `merge` would keep as new ones."""
        with self.database.reading() as connection:
            return count_new(connection, [arrival_of(record, "new") for record in records])


class DeviceStore:
    """What is known of one device with its driver; what a tuning talks to.

    A tuning is about today's kernels, whichever version of the generator wrote them: what other
    kernels took is no trial, no incumbent, and no rival of what is measured.
    """

    def __init__(self, database: Database, info: DeviceInfo, cache: Cache = "warm") -> None:
        self._database, self._info, self._cache = database, info, cache

    def record(self, problem: Problem, variant: Variant, measurement: Measurement) -> bool:
        """Keep a measurement, failures too, and say whether it became the winner.

        Args:
            problem: what was computed.
            variant: how.
            measurement: its times, or why there are none.

        Raises:
            ValueError: its times were taken with cold caches, and these results are of warm ones.
        """
        row = self._columns(problem, variant, measurement)
        with self._database.writing() as connection:
            tuning = self._tuning(connection, problem)
            key = rows.add_here(connection, tuning, row)
            if measurement.ok:
                return self._challenge(connection, tuning, key)
            if rows.winner_is_claim(connection, tuning):
                rows.crown_best(connection, tuning)  # it may be the claim that failed here
            return False

    def promote(self, problem: Problem, variant: Variant, measurement: Measurement) -> None:
        """Keep a measurement and make it the winner: it won side by side against the others.

        Args:
            problem: what was computed.
            variant: how.
            measurement: its times, taken in turns with the others'.

        Raises:
            ValueError: the measurement is a failure, or of cold caches where these are warm.
        """
        if not measurement.ok:
            raise ValueError(f"a failure cannot win: {measurement.invalidity}")
        row = self._columns(problem, variant, measurement) | {"promoted": True}
        with self._database.writing() as connection:
            tuning = self._tuning(connection, problem)
            key = rows.add_here(connection, tuning, row)
            rows.set_tuning(connection, tuning, winner_id=key)

    def _challenge(self, connection: Connection, tuning: int, key: int) -> bool:
        """Make what was measured here the winner if it is better; say whether it is.

        A winner of other kernels than today's gives way to the best measurement of today's.
        """
        mine = rows.measured().where(TuningRow.id == tuning)
        winner = mine.where(MeasurementRow.id == TuningRow.winner_id)
        if all(map(is_of_today, connection.execute(winner))):
            return rows.challenge(connection, tuning, key)
        kept = connection.execute(mine.where(MeasurementRow.origin == "")).all()
        others = [row.id for row in kept if not is_of_today(row)]
        return rows.crown_best(connection, tuning, others) == key

    def _columns(
        self, problem: Problem, variant: Variant, measurement: Measurement
    ) -> dict[str, Any]:
        if measurement.ok and measurement.cache == "cold" != self._cache:
            raise ValueError("times with cold caches are no results for warm ones")
        return rows.columns_of(variant, measurement, digest_of(problem, variant))

    def note_peak(
        self, gflops: float, gbytes: float, peaks: dict[str, float] | None = None
    ) -> None:
        """Keep what the device was measured to reach; the best that is known stays.

        Other work on the machine only lowers a measured peak.

        Args:
            gflops: fp32 GFLOP/s.
            gbytes: GB/s of a copy.
            peaks: GFLOP/s of other dtypes.
        """
        with self._database.writing() as connection:
            device_rows.raise_peak(connection, self._info, gflops, gbytes, peaks)

    def note_limits(self, limits: Limits) -> None:
        """Keep what the device allows, which its measurements are explained by."""
        with self._database.writing() as connection:
            device_rows.set_limits(connection, self._info, limits.to_json())

    def peak(self) -> tuple[float, float] | None:
        """Return the best GFLOP/s and GB/s that were measured here, None if nothing was."""
        asked = select(DeviceRow.peak_gflops, DeviceRow.peak_gbytes)
        with self._database.reading() as connection:
            found = connection.execute(asked.where(*device_rows.is_device(self._info))).first()
        if found is None or found.peak_gflops is None or found.peak_gbytes is None:
            return None
        return found.peak_gflops, found.peak_gbytes

    def peaks(self) -> dict[str, float]:
        """Return GFLOP/s of dtypes other than fp32 that were measured here."""
        asked = select(DeviceRow.peaks).where(*device_rows.is_device(self._info))
        with self._database.reading() as connection:
            return connection.execute(asked).scalar() or {}

    def winner(self, problem: Problem) -> Record | None:
        """Return the winner for exactly this problem with today's kernels, or None."""
        with self._database.reading() as connection:
            found = list(rows.records_of(connection, self._only(rows.winners(), problem)))
        of_today = (record for record in found if is_of_today(record))
        return min(of_today, key=lambda record: (not record.verified, record.ms), default=None)

    def incumbent(self, problem: Problem) -> tuple[Variant, float] | None:
        """Return the winner's variant and milliseconds, or None."""
        record = self.winner(problem)
        return None if record is None else (record.variant, record.ms)

    def measured(self, problem: Problem) -> dict[Variant, float]:
        """Return milliseconds of what was tried here with today's kernels; failures: inf.

        Times are over their `PACE`: as if all had been taken when the problem's tuning began.
        What failed with warm caches fails with cold ones. A measurement whose digest is not the
        one of the kernels that are generated today is left out: its variant is tried again.
        """
        found: dict[Variant, float] = {}
        for trial in self._tried(problem):
            if trial.is_of_today and (trial.cache == self._cache or trial.ms == inf):
                found[trial.variant] = min(found.get(trial.variant, inf), trial.ms)
        return found

    def timeouts(self, problem: Problem) -> set[Variant]:
        """Return what was tried here with today's kernels and timed out."""
        tried = self._tried(problem)
        return {one.variant for one in tried if one.is_of_today and one.has_hung}

    def trials(self, problem: Problem) -> int:
        """Return how many distinct variants were tried here with today's kernels.

        What others tried does not count. What was pruned counts where all that its tuning kept is
        of today's kernels.
        """
        tried = [one for one in self._tried(problem) if one.cache == self._cache]
        asked = select(TuningRow.id, TuningRow.trials).join(DeviceRow)
        with self._database.reading() as connection:
            counts = connection.execute(self._only(asked, problem)).all()
        count = len({one.variant for one in tried if one.is_of_today})
        for tuning, trials in counts:
            kept = [one for one in tried if one.tuning == tuning]
            variants = {one.variant for one in kept if one.is_of_today}
            if kept and variants.issuperset(one.variant for one in kept):
                count += max(trials - len(variants), 0)
        return count

    def _tried(self, problem: Problem) -> list[_Trial]:
        """Return the measurements made here of variants that today's families can read."""
        asked = rows.measured().join(DeviceRow, DeviceRow.id == TuningRow.device_id)
        asked = asked.where(MeasurementRow.origin == "")
        with self._database.reading() as connection:
            found = connection.execute(self._about(asked, problem)).all()
        trials = []
        for one in found:
            with suppress(ConfigError):
                variant = Variant.from_values(one.family, json_object(one.config))
                pace = (one.conditions or {}).get(PACE, 1.0)
                ms = inf if one.ms is None else one.ms / pace
                hung, of_today = one.invalidity == "timeout", is_of_today(one)
                trials.append(_Trial(variant, ms, one.cache, of_today, one.tuning, hung))
        return trials

    def _tuning(self, connection: Connection, problem: Problem) -> int:
        key = (self._info, GENERATOR_VERSION, problem.key(), self._cache)
        return rows.tuning_id(connection, *key)

    def _only(self, asked: rows.Query, problem: Problem) -> rows.Query:
        """Narrow `asked` to this device, `problem` and this state of the caches."""
        return self._about(asked, problem).where(TuningRow.cache == self._cache)

    def _about(self, asked: rows.Query, problem: Problem) -> rows.Query:
        """Narrow `asked` to this device and `problem`, whichever generator wrote it."""
        return asked.where(TuningRow.problem == problem.key(), *device_rows.is_device(self._info))


class _Trial(NamedTuple):
    """A measurement made here; `is_of_today`: the kernels it ran are those generated today.

    `tuning` is the row of its tuning, `has_hung` says that it timed out.
    """

    variant: Variant
    ms: float
    cache: Cache
    is_of_today: bool
    tuning: int
    has_hung: bool
