"""A claim's plan is checked once on a device before it serves, and what the check said is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from oclgen.measurement import Measurement
from tests.tuned_db.shelves import Shelf
from tests.tuned_db.tuned_samples import INFO, LIMITS, SQUARE, record, timed, variant
from tuned_db import Choice, Chooser, Store, open_store
from tuned_db.records.digests import digest_of
from tuned_db.storage.upkeep import Prune, prune
from tuned_db.trust.verify import verify

FALSE, RIGHT = variant(item_m=2), variant(item_m=3)


@pytest.fixture
def claims(store: Store) -> Store:
    """A false claim and a right one, which claims less."""
    for ms, claimed in ((1.0, FALSE), (2.0, RIGHT)):
        store.merge([record(config=claimed.to_json(), samples=(ms,))], origin="push by bob")
    return store


def test_a_claim_that_fails_gives_way_and_is_not_asked_again(claims: Store) -> None:
    asked: list[Choice] = []

    def check(choice: Choice) -> str:
        asked.append(choice)
        reason = "" if choice.variant == RIGHT else "wrong"
        claims.note_check(INFO, str(digest_of(SQUARE, choice.variant)), reason)
        return reason

    chooser = Chooser(claims, INFO, LIMITS, check)
    choice = chooser.choose(SQUARE)
    assert (choice.variant, choice.source, choice.origin) == (
        RIGHT,
        "exact, checked",
        "push by bob",
    )
    assert [one.variant for one in asked] == [FALSE, RIGHT]
    assert any("wrong" in reason for reason in chooser.skipped)
    another = Chooser(claims, INFO, LIMITS, check)
    assert (another.choose(SQUARE), len(asked)) == (choice, 2)
    unasked = Chooser(claims, INFO, LIMITS)
    assert next(unasked.candidates(SQUARE)).source == "exact, checked"
    assert FALSE not in [one.variant for one in unasked.candidates(SQUARE)]
    (first,) = unasked.unverified()  # measuring settles it, whatever the check said
    assert first.variant == FALSE


def test_what_was_measured_here_or_shipped_is_not_checked() -> None:
    def check(choice: Choice) -> str:
        raise AssertionError(choice)

    assert Chooser(Shelf(record()), INFO, LIMITS, check).choose(SQUARE).source == "exact"
    assert Chooser(None, INFO, LIMITS, check).choose(SQUARE).verified


def test_checks_go_with_their_device(claims: Store) -> None:
    claims.note_check(INFO, "0" * 16, "wrong")
    claims.note_check(INFO, "0" * 16, "")
    assert claims.checks(INFO) == {"0" * 16: ""}
    prune(claims, Prune(claims=True))
    assert claims.checks(INFO) == {}


@pytest.mark.parametrize(
    ("claimed_here", "kinds", "winner"),
    [
        (timed(1.2), ["verified"], FALSE),
        (timed(9.0), ["slower", "verified"], RIGHT),
        (Measurement(invalidity="correctness", reason="0.7"), ["wrong", "verified"], RIGHT),
        (Measurement(invalidity="compile", reason="no"), ["failed", "verified"], RIGHT),
    ],
)
def test_verdicts_name_what_came_of_a_claim(
    claims: Store, claimed_here: Measurement, kinds: list[str], winner: object
) -> None:
    chooser = Chooser(claims, INFO, LIMITS)
    here = {FALSE: claimed_here, RIGHT: timed(2.0)}
    found = verify(chooser, claims.of(INFO), chooser.unverified(), lambda _, one: here[one])
    assert [one.kind for one in found] == kinds
    assert chooser.choose(SQUARE).variant == winner


def test_a_slow_claim_is_compared_with_what_would_serve_without_it(tmp_path: Path) -> None:
    store = open_store(tmp_path / "claims.sqlite")
    store.merge([record(config=FALSE.to_json(), samples=(1.0,))])
    chooser = Chooser(store, INFO, LIMITS)

    def measure(_: object, one: object) -> Measurement:
        return timed(435.0) if one == FALSE else timed(0.8)

    found = list(verify(chooser, store.of(INFO), chooser.unverified(), measure))
    assert [one.kind for one in found] == ["slower", "compared"]
    assert chooser.choose(SQUARE).ms == 0.8
