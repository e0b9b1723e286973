"""Records that came from elsewhere: they serve at once, are told apart, and are settled here."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import (
    INFO,
    LIMITS,
    SQUARE,
    record,
    timed,
    variant,
)
from tuned_db import Chooser, Record, Store, open_store, read_records, write_records
from tuned_db.storage.upkeep import Prune, absorb, prune

WRONG = Measurement(invalidity="correctness", reason="error 0.7")


def claim(item_m: int, ms: float) -> Record:
    return record(config=variant(item_m=item_m).to_json(), samples=(ms,))


def winner(store: Store) -> tuple[int, float, bool]:
    known = store.of(INFO).winner(SQUARE)
    assert known is not None
    incumbent = store.of(INFO).incumbent(SQUARE)
    assert incumbent is not None
    return incumbent[0].config.item_m, known.ms, known.verified


@pytest.mark.usefixtures("alike")
def test_a_claim_serves_at_once_and_is_told_apart(store: Store) -> None:
    store.merge([claim(2, 1.0)])
    choice = Chooser(store, INFO, LIMITS).choose(SQUARE)
    assert (choice.rung, choice.verified, choice.source) == ("exact", False, "exact, unverified")
    near = Chooser(store, INFO, LIMITS).choose(GemmProblem(64, 64, 65))
    assert near.source == "nearest, unverified"
    assert Chooser(store, INFO, LIMITS).unverified() == [choice]


def test_a_claim_displaces_nothing_that_was_measured_here(store: Store) -> None:
    store.of(INFO).record(SQUARE, variant(item_m=1), timed(3.0))
    assert store.merge([claim(2, 1.0)]).improved == 0
    assert winner(store) == (1, 3.0, True)
    assert store.of(INFO).record(SQUARE, variant(item_m=2), timed(2.0))
    assert winner(store) == (2, 2.0, True)
    assert Chooser(store, INFO, LIMITS).unverified() == []


def test_what_is_measured_here_displaces_a_claim(store: Store) -> None:
    store.merge([claim(2, 1.0)])
    assert store.of(INFO).record(SQUARE, variant(item_m=1), timed(3.0))
    assert winner(store) == (1, 3.0, True)


def test_a_claim_that_is_slower_here_gives_its_place_back(store: Store) -> None:
    store.of(INFO).record(SQUARE, variant(item_m=1), timed(3.0))
    store.merge([claim(2, 1.0)])
    assert not store.of(INFO).record(SQUARE, variant(item_m=2), timed(4.0))
    assert winner(store) == (1, 3.0, True)


def test_a_wrong_claim_loses_its_place_and_does_not_come_back(store: Store) -> None:
    store.merge([claim(2, 1.0), claim(3, 2.0)])
    assert not store.of(INFO).record(SQUARE, variant(item_m=2), WRONG)
    assert winner(store) == (3, 2.0, False)
    assert not store.of(INFO).record(SQUARE, variant(item_m=3), WRONG)
    assert store.of(INFO).winner(SQUARE) is None
    again = replace(claim(2, 0.5), created="2026-05-05T05:05:05Z")
    assert store.merge([again]).improved == 0
    assert store.of(INFO).winner(SQUARE) is None


@pytest.mark.parametrize("trials", [64, 2**31 - 1])
def test_trials_from_elsewhere_are_no_trials_made_here(store: Store, trials: int) -> None:
    store.merge([replace(claim(2, 1.0), trials=trials)])
    mine = store.of(INFO)
    assert (mine.trials(SQUARE), mine.measured(SQUARE)) == (0, {})
    assert [one.trials for one in store.all_winners()] == [trials]
    mine.record(SQUARE, variant(item_m=2), timed(1.1))
    assert mine.trials(SQUARE) == 1
    assert mine.measured(SQUARE) == {variant(item_m=2): 1.1}
    prune(store, Prune(claims=True))
    assert [one.trials for one in store.all_winners()] == [1]


def test_the_peak_travels_and_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    store.of(INFO).note_peak(1000.0, 100.0)
    store.of(INFO).record(SQUARE, variant(), timed(1.0))
    stream = io.BytesIO()
    write_records(store.all_winners(), stream)
    stream.seek(0)
    other = open_store(tmp_path / "other.sqlite")
    other.merge(read_records("export", stream))
    assert [one.peak for one in other.all_winners()] == [(1000.0, 100.0)]
    other.of(INFO).note_peak(900.0, 190.0)  # measured on a machine that had other work to do
    stream.seek(0)
    other.merge(read_records("export", stream))
    assert [one.peak for one in other.all_winners()] == [(900.0, 190.0)]
    other.of(INFO).note_peak(950.0, 180.0)
    assert other.of(INFO).peak() == (950.0, 190.0)
    assert other.of(replace(INFO, name="another")).peak() is None


@pytest.mark.parametrize("by", ["push", "merge"])
def test_a_false_peak_from_elsewhere_does_not_stay(store: Store, tmp_path: Path, by: str) -> None:
    """It is shown until the device is measured here, and goes with the claims that brought it."""
    false = replace(record(), peak=(1e11, 1e11))
    if by == "push":
        store.merge([false], origin="push by mallory")
    else:
        theirs = open_store(tmp_path / "theirs.sqlite")
        theirs.merge([false], origin="")
        absorb(store, theirs)
    assert [one.peak for one in store.all_winners()] == [(1e11, 1e11)]
    mine = store.of(INFO)
    assert mine.peak() is None  # a tuning would hold it against what it measures
    mine.record(SQUARE, variant(item_m=4), timed(1.0))
    prune(store, Prune(claims=True))
    assert [one.peak for one in store.all_winners()] == [None]
    mine.note_peak(1000.0, 100.0)
    store.merge([false], origin="push by mallory")
    assert mine.peak() == (1000.0, 100.0)
    assert [one.peak for one in store.all_winners()] == [(1000.0, 100.0)]


def test_a_peak_measured_on_this_machine_stays_one_in_a_trusted_merge(
    store: Store, tmp_path: Path
) -> None:
    other = open_store(tmp_path / "other.sqlite")
    other.merge([replace(record(), peak=(1e11, 1e11))])
    other.of(INFO).note_peak(1000.0, 100.0)
    absorb(store, other, trusted=True)
    assert store.of(INFO).peak() == (1000.0, 100.0)


def test_the_history_has_every_success_and_no_failure(store: Store) -> None:
    mine = store.of(INFO)
    for item_m, measurement in ((1, timed(2.0)), (2, WRONG), (3, timed(1.0))):
        mine.record(SQUARE, variant(item_m=item_m), measurement)
    assert sorted(one.ms for one in store.history()) == [1.0, 2.0]


def test_a_claim_that_is_invalid_here_hides_nothing(store: Store) -> None:
    """It came first, and the next best of its tuning serves, then what is measured here."""
    wide = record(config=variant(local_m=64, local_n=64).to_json(), samples=(0.1,))
    store.merge([wide, claim(2, 1.0), claim(3, 2.0)])
    choice = Chooser(store, INFO, LIMITS).choose(SQUARE)
    assert (choice.source, choice.variant.config.item_m) == ("exact, unverified", 2)
    store.of(INFO).record(SQUARE, variant(item_m=1), timed(3.0))
    assert Chooser(store, INFO, LIMITS).choose(SQUARE).source == "exact"


def test_a_false_claim_serves_nowhere_where_the_peak_is_known(store: Store) -> None:
    store.of(INFO).note_peak(100.0, 10.0)
    store.merge([claim(2, 1e-6)])
    chooser = Chooser(store, INFO, LIMITS)
    assert chooser.choose(SQUARE).rung in ("shipped", "guess", "default")
    assert any("the device's peak is 100" in reason for reason in chooser.skipped)


def test_a_faster_claim_is_verified_and_then_wins(store: Store) -> None:
    mine = store.of(INFO)
    mine.record(SQUARE, variant(item_m=1), timed(3.0))
    store.merge([claim(2, 1.0)])
    chooser = Chooser(store, INFO, LIMITS)
    (one,) = chooser.unverified()
    mine.record(one.problem, one.variant, timed(2.0))
    chooser.refresh()
    assert (chooser.choose(SQUARE).variant.config.item_m, chooser.unverified()) == (2, [])
