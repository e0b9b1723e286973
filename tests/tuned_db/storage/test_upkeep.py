"""Merging whole databases, dropping what is not wanted, and checking claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from oclgen.limits import Limits
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from tests.tuned_db.tuned_samples import (
    FAMILY,
    INFO,
    LIMITS,
    SQUARE,
    record,
    timed,
    variant,
)
from tuned_db import Chooser, Record, Store, open_existing, open_store
from tuned_db.database.errors import DatabaseError
from tuned_db.database.models import MEASURED, MeasurementRow, TuningRow
from tuned_db.files.measured import of_store
from tuned_db.storage import rows
from tuned_db.storage.upkeep import Prune, absorb, prune
from tuned_db.trust.verify import verify

OTHER = GemmProblem(128, 64, 64)
FAILED = Measurement(invalidity="compile", reason="no")


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """A database with a history: two times, a failure and a claim."""
    store = open_store(tmp_path / "other.sqlite")
    mine = store.of(INFO)
    mine.record(SQUARE, variant(item_m=1), timed(2.0))
    mine.record(SQUARE, variant(item_m=2), timed(1.0))
    mine.record(SQUARE, variant(item_m=3), FAILED)
    store.merge([claim(4, OTHER)])
    return store


def claim(item_m: int, problem: GemmProblem = SQUARE, ms: float = 0.5, **changes: Any) -> Record:
    text = variant(item_m=item_m).to_json()
    return record(problem, config=text, samples=(ms,), **changes)


def test_a_merge_takes_all_and_twice_does_no_harm(store: Store, other: Store) -> None:
    came = absorb(store, other)
    assert (came.new, came.improved, came.known) == (4, 2, 0)
    assert store.all_winners() == other.all_winners()
    assert [one.origin for one in store.all_winners()] == ["import", "merge"]
    assert absorb(store, other).known == 4
    assert len(store.history()) == 3
    assert store.of(INFO).measured(SQUARE) == {}


def test_what_was_measured_on_this_machine_stays_verified(store: Store, other: Store) -> None:
    absorb(store, other, trusted=True)
    assert [one.origin for one in store.all_winners()] == ["import", ""]
    assert store.of(INFO).measured(SQUARE) == other.of(INFO).measured(SQUARE)
    assert store.of(INFO).trials(SQUARE) == 3


@pytest.mark.parametrize("trusted", [False, True])
def test_limits_that_are_claimed_do_not_replace_known_ones(
    store: Store, other: Store, trusted: bool
) -> None:
    said = replace(LIMITS, local_bytes=LIMITS.local_bytes // 2)
    store.of(INFO).note_limits(LIMITS)
    other.of(INFO).note_limits(said)
    absorb(store, other, trusted=trusted)
    (found,) = of_store(store, everyone=True)
    assert found.limits is not None
    assert Limits.from_json(found.limits) == (said if trusted else LIMITS)


def test_merging_does_not_make_a_file(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="there is no database file"):
        open_existing(tmp_path / "nothing.sqlite")
    assert not (tmp_path / "nothing.sqlite").exists()


@pytest.mark.parametrize(
    ("what", "dropped", "left"),
    [
        (Prune(failures=True), 1, 2),
        (Prune(history=True), 2, 2),
        (Prune(claims=True), 1, 1),
        (Prune(origin="import"), 1, 1),
        (Prune(origin="push by mallory"), 0, 2),
        (Prune(outdated=True), 0, 2),
        (Prune(failures=True, history=True, claims=True), 3, 1),
        (Prune(), 0, 2),
    ],
)
def test_pruning_drops_what_is_asked_for(
    other: Store, what: Prune, dropped: int, left: int
) -> None:
    assert prune(other, what, dry_run=True) == dropped
    assert len(other.all_winners()) == 2
    assert prune(other, what) == dropped
    assert len(other.all_winners()) == left
    assert prune(other, what) == 0


def test_where_a_winner_is_dropped_the_next_best_is_crowned(store: Store) -> None:
    store.of(INFO).record(SQUARE, variant(item_m=1), timed(2.0))
    store.merge([claim(2), claim(3, ms=1.0)], origin="push by mallory")
    store.merge([claim(4, device=replace(INFO, name="B"))], origin="push by mallory")
    assert prune(store, Prune(origin="push by mallory")) == 3
    assert [(one.ms, one.verified) for one in store.all_winners()] == [(2.0, True)]
    assert prune(store, Prune(history=True)) == 0


def test_what_ran_other_kernels_than_todays_is_dropped_with_whatever_else(store: Store) -> None:
    mine = store.of(INFO)
    mine.record(SQUARE, variant(item_m=1), timed(2.0))
    mine.record(SQUARE, variant(item_m=2), FAILED)
    unknown, renumbered = claim(1, OTHER, generator="0"), replace(claim(4, OTHER), generator="0")
    changed, gone = claim(3, digest="0" * 16), record(family="gone", digest="1" * 16)
    store.merge([unknown, renumbered, changed, gone])
    heard: list[tuple[int, int]] = []
    what = Prune(outdated=True, failures=True)
    report = lambda done, total: heard.append((done, total))  # noqa: E731
    assert prune(store, what, dry_run=True, report=report) == 4
    assert heard == [(done, 5) for done in range(1, 6)]
    assert len(store.history()) == 5
    assert prune(store, what) == 4
    assert {(one.problem, one.parameters["item_m"]) for one in store.history()} == {
        (SQUARE.key(), 1), (OTHER.key(), 4),
    }  # fmt: skip
    assert prune(store, what) == 0


def measuring(times: dict[int, float], asked: list[int]) -> Any:
    """A machine on which variants take these milliseconds; what is not named fails."""

    def measure(problem: Any, variant: Variant) -> Measurement:
        asked.append(variant.config.item_m)
        ms = times.get(variant.config.item_m)
        return FAILED if ms is None else timed(ms)

    return measure


def test_verifying_measures_what_would_serve_until_something_works(store: Store) -> None:
    sibling = replace(INFO, name="Imaginary GPU Mini")
    store.merge([claim(1), claim(2, device=sibling, ms=0.1), claim(3, OTHER)])
    chooser = Chooser(store, INFO, LIMITS)
    asked: list[int] = []
    claims = chooser.unverified()
    assert {choice.source for choice in claims} == {"exact, unverified"}
    done = list(verify(chooser, store.of(INFO), claims, measuring({2: 3.0, 3: 0.6}, asked)))
    assert asked == [3, 1, 2]  # what a relative measured for the square comes before the other's
    assert [one.measurement.ok for one in done] == [True, False, True]
    assert chooser.unverified() == []
    assert [chooser.choose(problem).source for problem in (OTHER, SQUARE)] == ["exact", "exact"]


def test_a_relatives_record_is_verified_for_this_device(store: Store) -> None:
    sibling = replace(INFO, name="Imaginary GPU Mini")
    store.merge([claim(2, device=sibling)])
    chooser = Chooser(store, INFO, LIMITS)
    (choice,) = chooser.unverified()
    assert (choice.source, choice.ms) == ("architecture, unverified", None)
    list(verify(chooser, store.of(INFO), [choice], measuring({2: 3.0}, [])))
    assert (chooser.choose(SQUARE).source, chooser.choose(SQUARE).ms) == ("exact", 3.0)


def test_where_nothing_claimed_works_the_default_serves(store: Store) -> None:
    store.merge([claim(1), claim(2, ms=1.0)])
    chooser = Chooser(store, INFO, LIMITS)
    asked: list[int] = []
    list(verify(chooser, store.of(INFO), chooser.unverified(), measuring({}, asked)))
    assert asked == [1, 2]
    assert Chooser(store, INFO, LIMITS).choose(SQUARE).rung in ("default", "guess", "shipped")


def a_value_of(name: str, column: Any) -> Any:
    """A value of a measurement's column that is not its default."""
    known = {
        "family": FAMILY,
        "config": variant(item_m=7).to_json(),
        "samples": [1.5, 2.5],
        "created": "2026-01-01T01:01:01Z",
        "conditions": {"mhz_before": 1980.0},
        "digest": "0123456789abcdef",
    }
    default = {int: 41, float: 2.5, str: "another", bool: True}
    return known.get(name, default.get(getattr(column.type, "python_type", str)))


def test_a_merge_keeps_every_column(store: Store, tmp_path: Path) -> None:
    source = open_store(tmp_path / "source.sqlite")
    columns = {column.name: column for column in MeasurementRow.__table__.columns}
    values = {name: a_value_of(name, columns[name]) for name in MEASURED}
    assert None not in values.values()
    with source.database.writing() as connection:
        tuning = rows.tuning_id(connection, INFO, "3", SQUARE.key(), "cold")
        key = rows.add_here(connection, tuning, values)
        rows.set_tuning(connection, tuning, winner_id=key, trials=3, claimed=5)
    absorb(store, source, trusted=True)
    with store.database.reading() as connection:
        (kept,) = connection.execute(select(MeasurementRow.__table__)).mappings().all()
        place = connection.execute(select(TuningRow.__table__)).mappings().one()
    assert {name: kept[name] for name in MEASURED} == values
    assert (place["cache"], place["trials"], place["claimed"]) == ("cold", 3, 5)
    assert place["winner_id"] == kept["id"]


def test_columns_of_a_measurement_and_of_a_record_are_all_of_the_table(store: Store) -> None:
    row = rows.columns_of(variant(), timed(1.0))
    assert row.keys() == MEASURED.keys()
    assert rows.columns_of_record(record(), "import").keys() == MEASURED.keys()
    derived = {"ms", "spread", "invalidity", "reason", "promoted"}
    assert MEASURED.keys() - Record.__dataclass_fields__.keys() == derived


def lucky_and_promoted(store: Store) -> None:
    """Variant 2 beats variant 1 side by side, which was once faster by luck."""
    mine = store.of(INFO)
    mine.record(SQUARE, variant(item_m=1), timed(1.0))
    mine.record(SQUARE, variant(item_m=2), timed(1.2))
    mine.promote(SQUARE, variant(item_m=2), timed(1.1))


def winner_of(store: Store) -> Any:
    incumbent = store.of(INFO).incumbent(SQUARE)
    assert incumbent is not None
    return incumbent[0].config.item_m


def test_a_merge_keeps_the_winner_of_a_duel_and_counts_it_once(
    store: Store, tmp_path: Path
) -> None:
    other = open_store(tmp_path / "other.sqlite")
    lucky_and_promoted(other)
    came = absorb(store, other, trusted=True)
    assert (came.new, came.improved, winner_of(store)) == (3, 1, 2)


def test_pruning_keeps_the_winner_of_a_duel(store: Store) -> None:
    lucky_and_promoted(store)
    store.of(INFO).record(SQUARE, variant(item_m=3), timed(0.5))
    with store.database.writing() as connection:
        fastest = select(MeasurementRow.id).where(MeasurementRow.ms == 0.5).scalar_subquery()
        connection.execute(
            update(MeasurementRow)
            .where(MeasurementRow.id == fastest)
            .values(origin="push by mallory")
        )
    prune(store, Prune(origin="push by mallory"))
    assert winner_of(store) == 2
