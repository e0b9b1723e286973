"""Drops old rows of a long-lived database, and keeps those that serve or that a search learns from.

`tuned_db.storage.upkeep` drops rows for other reasons than their age.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from sqlalchemy import func, select

from tuned_db.database.models import BatchRow, MeasurementRow, TuningRow
from tuned_db.storage.rows import drop, time_of
from tuned_db.storage.store import Store

TUNINGS = 100
"""Tunings of a transaction: others who write wait for as long."""


_ASKED = (
    MeasurementRow.id,
    MeasurementRow.tuning_id,
    MeasurementRow.family,
    MeasurementRow.config,
    MeasurementRow.ms,
    MeasurementRow.origin,
    MeasurementRow.promoted,
)


class Candidate(NamedTuple):
    """What a `Retention` asks of a measurement; `since` is when it was made or came here."""

    id: int
    tuning: int
    winner: int | None
    variant: tuple[str, str]
    ms: float | None
    is_claim: bool
    promoted: bool
    since: str


@dataclass(frozen=True)
class Retention:
    """Which old measurements of a tuning stay; all that is younger stays as well.

    - the winner, and what won side by side last;
    - of each variant that failed the last failure, here and as claimed, so that it stays out;
    - of the `keep` fastest variants the fastest and the last time;
    - of claims about variants that were not measured here the fastest, `keep` of them;
    - a time made here of a variant that a claim stays of, which it settles.
    """

    before: str
    keep: int = 16

    def superfluous(self, rows: Sequence[Candidate]) -> list[int]:
        """Return the ids of the measurements of one tuning that may go."""
        here = [row for row in rows if not row.is_claim]
        claims = [row for row in rows if row.is_claim]
        measured = {row.variant for row in here}
        stays = {row.id for row in rows if row.since >= self.before or row.id == row.winner}
        stays |= {row.id for row in [row for row in here if row.promoted][-1:]}
        failures = {(row.variant, row.is_claim): row.id for row in rows if row.ms is None}
        stays |= set(failures.values())
        fresh = [row for row in claims if row.variant not in measured]
        stays |= {min(times, key=_time).id for times in _fastest(fresh)[: self.keep]}
        for times in _fastest(here)[: self.keep]:
            stays |= {min(times, key=_time).id, times[-1].id}
        settling = {row.variant for row in claims if row.id in stays}
        stays |= {times[-1].id for times in _fastest(here) if times[0].variant in settling}
        return [row.id for row in rows if row.id not in stays]


def _fastest(rows: Iterable[Candidate]) -> list[list[Candidate]]:
    """Return the times of each variant in their order, the fastest variant first."""
    groups: dict[tuple[str, str], list[Candidate]] = defaultdict(list)
    for row in rows:
        if row.ms is not None:
            groups[row.variant].append(row)
    return sorted(groups.values(), key=lambda times: min(map(_time, times)))


def _time(row: Candidate) -> float:
    return row.ms or 0.0


def retention_of(days: int, keep: int) -> Retention:
    """Return what keeps all that is younger than `days` today, and the `keep` fastest."""
    return Retention(time_of(datetime.now(UTC) - timedelta(days=days)), keep)


def thin(
    store: Store,
    retention: Retention,
    *,
    dry_run: bool,
    report: Callable[[int], None] = lambda _: None,
) -> int:
    """Drop what need not stay and return how many measurements; no tuning loses its winner.

    `TUNINGS` of them are a transaction; after an interrupt, thin again.

    Args:
        store: what is written to.
        retention: what stays.
        dry_run: only count.
        report: hears how many have gone so far.
    """
    gone = last = 0
    while True:
        with store.database.reading() as connection:
            asked = select(TuningRow.id).where(TuningRow.id > last).order_by(TuningRow.id)
            tunings = connection.execute(asked.limit(TUNINGS)).scalars().all()
        if not tunings:
            return gone
        gone, last = gone + _thin(store, retention, tunings, dry_run), tunings[-1]
        report(gone)


def _thin(store: Store, retention: Retention, tunings: Sequence[int], dry_run: bool) -> int:
    since = func.coalesce(BatchRow.arrived, MeasurementRow.created)
    asked = (
        select(*_ASKED, TuningRow.winner_id, since.label("since"))
        .join(TuningRow, TuningRow.id == MeasurementRow.tuning_id)
        .outerjoin(BatchRow, BatchRow.id == MeasurementRow.batch_id)
        .where(MeasurementRow.tuning_id.in_(tunings))
        .order_by(MeasurementRow.tuning_id, MeasurementRow.id)
    )
    database = store.database
    with database.reading() if dry_run else database.writing() as connection:
        rows = [
            Candidate(
                row.id, row.tuning_id, row.winner_id, (row.family, row.config), row.ms,
                row.origin != "", row.promoted, row.since,
            )
            for row in connection.execute(asked)
        ]  # fmt: skip
        groups = groupby(rows, key=lambda row: row.tuning)
        gone = [key for _, group in groups for key in retention.superfluous(list(group))]
        if gone and not dry_run:
            drop(connection, gone)
    if gone and not dry_run:
        database.let_others_write()
    return len(gone)
