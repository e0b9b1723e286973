"""Winners of races: when they serve, what goes before them, and what they leave as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oclgen.limits import Limits
from oclgen.problem import GemmProblem, Problem
from oclgen.variant import Variant
from tests.tuned_db.shelves import Shelf, chooser, with_item_m
from tests.tuned_db.tuned_samples import INFO, LIMITS, SQUARE, timed, variant
from tuned_db import Choice, Chooser, Record, Store
from tuned_db.choosing.raced import RACED, record_of, rivals

pytestmark = pytest.mark.usefixtures("shipped")

NEAR = GemmProblem(64, 64, 256)


@pytest.fixture(autouse=True)
def expected(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What the model expects of a family's variants, in ms: each a little more than the last."""
    ms = {"gemm_staged": 1.0, "gemm_register": 1.5}

    def times(_: Problem, variants: list[Variant], __: Limits) -> list[float]:
        return [ms.get(one.family, 9.0) + 0.01 * n for n, one in enumerate(variants)]

    monkeypatch.setattr("tuned_db.choosing.chooser.predict", times)
    return ms


def race(problem: Problem = SQUARE, ms: float = 0.25, **changes: Any) -> Record:
    """The record of a race that the second of the model's choices has won."""
    served = chooser().choose(problem)
    (winner, *_) = rivals(chooser(), served, 2)
    return replace(record_of(INFO, winner, [ms], 3), **changes)


def test_rivals_are_what_the_model_expects_most_of() -> None:
    got = chooser()
    served = got.choose(SQUARE)
    found = rivals(got, served, 2)
    assert served.variant not in {one.variant for one in found}
    times = [served.predicted_ms, *(one.predicted_ms for one in found)]
    assert len(found) == 2
    assert times == sorted(times, key=lambda ms: ms or 0.0)
    assert len({one.variant for one in rivals(got, served, 99)}) == len(rivals(got, served, 99))


def all_rivals(known: Chooser) -> list[Variant]:
    return [one.variant for one in rivals(known, known.choose(SQUARE), 99)]


def test_nothing_hopeless_and_nothing_unchecked_is_a_rival(expected: dict[str, float]) -> None:
    tuned, claim = with_item_m(3, NEAR), with_item_m(3, NEAR, origin="import")
    assert tuned.variant in all_rivals(chooser(tuned))
    assert tuned.variant not in all_rivals(chooser(claim))
    assert "gemm_register" in {one.family for one in all_rivals(chooser())}
    expected["gemm_register"] = 2.5
    assert {one.family for one in all_rivals(chooser())} == {"gemm_staged"}


def test_what_was_measured_has_no_rivals() -> None:
    for known in (chooser(with_item_m(1)), chooser(race())):
        assert rivals(known, known.choose(SQUARE), 2) == []


def test_a_winner_serves_in_place_of_what_the_model_chose() -> None:
    model, raced = chooser().choose(SQUARE), chooser(race()).choose(SQUARE)
    assert (raced.rung, raced.source, raced.ms) == ("raced", "raced", 0.25)
    assert raced.variant == race().variant != model.variant
    assert raced.predicted_ms is not None
    assert raced.beaten is not None
    assert (raced.beaten.variant, raced.beaten.order) == (model.variant, model.order)


def test_what_was_tuned_goes_before_and_what_is_predicted_behind() -> None:
    alike = with_item_m(2, replace(SQUARE, bias="n"))
    elsewhere = with_item_m(4, device=replace(INFO, driver_version="9.9"))
    assert chooser(race(), with_item_m(3)).choose(SQUARE).rung == "exact"
    assert chooser(race(), elsewhere).choose(SQUARE).rung == "stale"
    assert chooser(alike).choose(SQUARE).rung == "nearest"
    assert chooser(race(), alike).choose(SQUARE).rung == "raced"


@pytest.mark.parametrize(
    "changes", [{"digest": "0" * 16}, {"device": replace(INFO, driver_version="9.9")}]
)
def test_races_of_other_kernels_and_drivers_are_run_again(changes: dict[str, Any]) -> None:
    known = chooser(race(**changes))
    assert known.choose(SQUARE).rung == "guess"
    assert rivals(known, known.choose(SQUARE), 2)


def test_winners_do_not_serve_where_that_is_switched_off() -> None:
    known = chooser(race())
    known.serves_raced = False
    assert known.choose(SQUARE).rung == "guess"


def test_a_race_is_no_evidence_for_other_problems() -> None:
    """It was won by few times against few others."""
    tuned, raced = with_item_m(3), with_item_m(3, origin=RACED)
    assert tuned.variant in {one.variant for one in chooser(tuned).candidates(NEAR)}
    assert tuned.variant not in {one.variant for one in chooser(raced).candidates(NEAR)}


def test_a_race_that_was_just_run_serves() -> None:
    known = chooser()
    assert known.choose(SQUARE).rung == "guess"
    known.note_race(race())
    assert known.choose(SQUARE).rung == "raced"


def test_a_winner_that_fails_gives_way() -> None:
    known = chooser(race())
    assert known.reject(known.choose(SQUARE)).rung == "guess"


def serving(store: Store) -> Choice:
    return Chooser(store, INFO, LIMITS).choose(SQUARE)


def test_a_database_keeps_the_last_race_until_something_is_tuned(store: Store) -> None:
    store.note_race(race(ms=0.25))
    store.note_race(race(ms=0.5))
    assert (serving(store).source, serving(store).ms) == ("raced", 0.5)
    assert [one.origin for one in store.history()] == [RACED]
    store.of(INFO).record(SQUARE, variant(item_m=1), timed(3.0))
    assert (serving(store).source, serving(store).ms) == ("exact", 3.0)
    store.note_race(race(ms=0.1))
    assert serving(store).source == "exact"


def test_a_faster_claim_goes_before_a_race(store: Store) -> None:
    store.note_race(race(ms=0.25))
    store.merge([with_item_m(3, samples=(0.125,))])
    assert serving(store).source == "exact, unverified"


def test_races_read_as_they_were_kept() -> None:
    record = race()
    assert record.digest is not None
    assert (record.origin, record.trials, record.samples) == (RACED, 3, (0.25,))
    assert Chooser(Shelf(record), INFO, LIMITS).choose(SQUARE).variant == record.variant
