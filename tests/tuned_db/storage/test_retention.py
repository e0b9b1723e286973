"""What is thinned with the years, and what never is."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, select, update

from oclgen.measurement import Measurement
from tests.tuned_db.tuned_samples import INFO, SQUARE, record, timed, variant
from tuned_db import Store
from tuned_db.database.models import MeasurementRow
from tuned_db.storage import retention, rows
from tuned_db.storage.retention import Candidate, Retention, retention_of, thin

OLD, YEAR, YOUNG = "2020-01-01T00:00:00Z", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"
FAILED = Measurement(invalidity="compile", reason="no")


def left(store: Store) -> list[tuple[int, float | None, str]]:
    """What is kept, by item_m: times, and how they came."""
    asked = select(MeasurementRow.config, MeasurementRow.ms, MeasurementRow.origin)
    with store.database.reading() as connection:
        rows = connection.execute(asked.order_by(MeasurementRow.id)).all()
    return [(json.loads(row.config)["item_m"], row.ms, row.origin) for row in rows]


def age(store: Store, *times: float) -> None:
    """Make all measurements old but those with such times."""
    aged = update(MeasurementRow).where(
        MeasurementRow.ms.not_in(times) | MeasurementRow.ms.is_(None)
    )
    with store.database.writing() as connection:
        connection.execute(aged.values(created=OLD, batch_id=None))


def test_old_repeats_and_slow_variants_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "TUNINGS", 1)
    mine = store.of(INFO)
    for item_m, ms in ((1, 3.0), (1, 2.0), (1, 2.5), (2, 1.0), (4, 9.0), (8, 8.0)):
        mine.record(SQUARE, variant(item_m=item_m), timed(ms))
    for _ in range(2):
        mine.record(SQUARE, variant(item_m=16), FAILED)
    age(store, 8.0)
    keeping, before = Retention(YEAR, keep=2), left(store)
    assert thin(store, keeping, dry_run=True) == 3
    assert left(store) == before
    seen: list[int] = []
    assert thin(store, keeping, dry_run=False, report=seen.append) == 3
    assert seen == [3]
    assert left(store) == [(1, 2.0, ""), (1, 2.5, ""), (2, 1.0, ""), (8, 8.0, ""), (16, None, "")]
    assert thin(store, keeping, dry_run=False) == 0
    assert mine.trials(SQUARE) == 5  # one that went was tried as well
    assert store.all_winners()[0].ms == 1.0


def test_the_winner_of_a_duel_and_what_settles_a_claim_stay(store: Store) -> None:
    mine = store.of(INFO)
    mine.record(SQUARE, variant(item_m=1), timed(1.0))
    mine.record(SQUARE, variant(item_m=2), timed(1.2))
    mine.promote(SQUARE, variant(item_m=2), timed(1.1))
    mine.record(SQUARE, variant(item_m=4), timed(7.0))
    for item_m, ms in ((4, 0.1), (8, 0.2), (8, 0.3), (16, 0.4)):
        store.merge([record(config=variant(item_m=item_m).to_json(), samples=(ms,))])
    age(store, 0.1)
    thin(store, Retention(YEAR, keep=1), dry_run=False)
    assert left(store) == [
        (1, 1.0, ""), (2, 1.1, ""), (4, 7.0, ""), (4, 0.1, "import"), (8, 0.2, "import"),
    ]  # fmt: skip
    assert store.all_winners()[0].ms == 1.1


def test_more_may_go_than_a_statement_has_values(
    shelf: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = shelf.of(INFO)
    for item_m in range(1, 13):
        mine.record(SQUARE, variant(item_m=item_m), timed(float(item_m)))
    age(shelf)

    def bound(connection: Any, *_: object) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 8)

    event.listen(shelf.database.engine, "checkout", bound)
    monkeypatch.setattr(rows, "MOST_KEYS", 8)
    assert thin(shelf, Retention(YEAR, keep=1), dry_run=False) == 11


def test_what_is_young_stays(tmp_path: Path, shelf: Store) -> None:
    for _ in range(3):
        shelf.of(INFO).record(SQUARE, variant(), timed(1.0))
    shelf.merge([record(created=OLD), record(created=OLD, samples=(2.0,))])  # arrived today
    assert thin(shelf, retention_of(1, 1), dry_run=False) == 0


ROWS: Any = st.lists(
    st.builds(
        Candidate,
        id=st.just(0),
        tuning=st.just(1),
        winner=st.integers(0, 20),
        variant=st.tuples(st.just("f"), st.sampled_from("abcd")),
        ms=st.none() | st.floats(0.1, 9.0),
        is_claim=st.booleans(),
        promoted=st.booleans(),
        since=st.sampled_from((OLD, YOUNG)),
    ),
    max_size=20,
)


@given(ROWS, st.integers(1, 4))
def test_no_retention_drops_what_is_needed(drawn: list[Candidate], keep: int) -> None:
    winner = drawn[0].winner if drawn else None
    rows = [one._replace(id=n, winner=winner) for n, one in enumerate(drawn)]
    gone = set(Retention(YEAR, keep).superfluous(rows))
    stay = [one for one in rows if one.id not in gone]
    assert winner not in gone
    assert not [one for one in rows if one.since == YOUNG and one.id in gone]
    failed = {one.variant for one in rows if one.ms is None}
    assert failed == {one.variant for one in stay if one.ms is None}
    measured = {one.variant for one in rows if not one.is_claim}
    settled = {one.variant for one in stay if not one.is_claim}
    assert not [one for one in stay if one.is_claim and one.variant in measured - settled]
    for claims in (False, True):
        times = [one.ms for one in rows if one.ms is not None and one.is_claim == claims]
        best = [one.ms for one in stay if one.ms is not None and one.is_claim == claims]
        if times and not claims:
            assert min(times) == min(best)
