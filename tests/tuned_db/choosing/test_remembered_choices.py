"""Choices that later processes need not make again, and what they must not outlive."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import oclgen
from oclgen import remembered
from oclgen.limits import DeviceInfo, Limits
from oclgen.opencl.binaries import MIB, Binaries
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.remembered import Remembered
from tests.tuned_db.opened_store import opened
from tests.tuned_db.shelves import Shelf, with_item_m
from tests.tuned_db.tuned_samples import INFO, LIMITS, SQUARE
from tuned_db import Choice, Chooser, DatabaseError
from tuned_db.choosing import remembered_choices as kept_choices
from tuned_db.choosing.raced import RACED, record_of, rivals
from tuned_db.choosing.remembered_winners import RememberedWinners

OTHER = GemmProblem(128, 64, 96)
CONV = ConvProblem(2, 16, 14, 14, 16, 3, 3, pad_h=1, pad_w=1)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Binaries:
    """Where choices are kept; each one at once."""
    kept = Binaries(tmp_path / "choices", MIB)
    monkeypatch.setattr(remembered, "IS_ON", True)
    monkeypatch.setattr(oclgen, "BEGUN", time.time() + 60)
    remembered._code.cache_clear()
    monkeypatch.setattr(kept_choices, "of_user", lambda: AtOnce(kept))
    return kept


class AtOnce(Remembered):
    """Writes what it is given before it returns."""

    def put(self, value: Any, *made_from: str) -> None:
        super().put(value, *made_from)
        self.write()


def process(
    *records: Any,
    mark: Callable[[], str | None] | None = lambda: "a state",
    info: DeviceInfo = INFO,
    limits: Limits = LIMITS,
    check: Callable[[Choice], str] | None = None,
) -> Chooser:
    """A chooser as another process has it."""
    return Chooser(Shelf(*records), info, limits, check, mark)


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """The problems whose candidates were looked at, in order."""
    asked: list[Problem] = []
    candidates = Chooser.candidates

    def noted(self: Chooser, problem: Problem) -> Any:
        asked.append(problem)
        return candidates(self, problem)

    monkeypatch.setattr(Chooser, "candidates", noted)
    return asked


@pytest.mark.parametrize("problem", [SQUARE, OTHER, CONV, replace(OTHER, free=frozenset("m"))])
def test_a_later_process_chooses_the_same_and_looks_at_no_candidate(
    problem: Problem, ranked: list[Problem]
) -> None:
    records = [with_item_m(3), with_item_m(2, replace(SQUARE, k=96))]
    first = process(*records).choose(problem)
    assert ranked == [problem]
    again = process(*records)
    assert again.choose(problem) == first
    assert again.choose(problem).origin == first.origin
    assert ranked == [problem]


def other_database() -> Chooser:
    return process(mark=lambda: "another state")


def other_driver() -> Chooser:
    return process(info=replace(INFO, driver_version="1.2.4"))


def other_limits() -> Chooser:
    return process(limits=replace(LIMITS, instructions=frozenset({"mma"})))


def without_races() -> Chooser:
    known = process()
    known.serves_raced = False
    return known


def of_small_error() -> Chooser:
    known = process()
    known.bound_conv_error(1e-6)
    return known


def without_records(monkeypatch: pytest.MonkeyPatch) -> Chooser:
    monkeypatch.setattr(kept_choices, "has_shipped", lambda: False)
    return process()


def unnamed() -> Chooser:
    return process(mark=lambda: None)


def without_mark() -> Chooser:
    return process(mark=None)


@pytest.mark.parametrize(
    "other",
    [
        other_database, other_driver, other_limits, without_races, of_small_error, unnamed,
        without_mark,
    ],
)  # fmt: skip
def test_what_rests_on_anything_else_is_chosen_anew(
    other: Callable[[], Chooser], ranked: list[Problem]
) -> None:
    process().choose(CONV)
    other().choose(CONV)
    assert ranked == [CONV, CONV]


def test_records_that_a_profile_hides_are_part_of_the_name(
    ranked: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    process().choose(CONV)
    without_records(monkeypatch).choose(CONV)
    assert ranked == [CONV, CONV]


@pytest.mark.parametrize("mark", [None, lambda: None])
def test_nothing_is_kept_of_what_has_no_name(
    kept: Binaries, mark: Callable[[], str | None] | None
) -> None:
    process(mark=mark).choose(SQUARE)
    assert not kept.folder.exists()


def test_nothing_is_kept_where_the_database_changes_while_it_is_read(kept: Binaries) -> None:
    names = iter(["of the winners", "of the checks"])
    process(mark=lambda: next(names)).choose(SQUARE)
    assert not kept.folder.exists()


def test_nothing_is_kept_of_what_was_read_beyond_the_winners(kept: Binaries) -> None:
    class Deep(Shelf):
        def runners_up(self, info: DeviceInfo, problem: Problem) -> Any:
            return [with_item_m(2)]

    outdated = with_item_m(3, digest="0" * 16)
    chooser = Chooser(Deep(outdated), INFO, LIMITS, None, lambda: "a state")
    assert chooser.choose(SQUARE).variant == with_item_m(2).variant
    assert not kept.folder.exists()
    chooser.choose(OTHER)
    assert kept.folder.exists()


def test_nothing_is_kept_of_claims_and_behind_their_checks(kept: Binaries) -> None:
    claim = with_item_m(3, origin="a friend")
    assert process(claim).choose(SQUARE).variant == claim.variant
    refusing = process(claim, check=lambda choice: "it is wrong")
    assert refusing.choose(SQUARE).variant != claim.variant
    refusing.choose(OTHER)
    assert not kept.folder.exists()


def test_nothing_is_kept_behind_a_variant_that_failed(kept: Binaries) -> None:
    first = process(mark=None).choose(SQUARE)
    failing = process()
    failing.reject(first)
    failing.refresh()
    failing.choose(OTHER)
    assert not kept.folder.exists()


def test_a_race_renames_the_choice_for_its_own_problem_alone(ranked: list[Problem]) -> None:
    """What wins a race while a network is met is no reason to choose all else again."""
    racing = process()
    slow = racing.choose(SQUARE)
    rival = rivals(racing, slow, 1)[0]
    record = replace(record_of(INFO, rival, [0.5], 2), origin=RACED)
    racing.note_race(record)
    raced = racing.choose(SQUARE)
    assert (raced.rung, raced.variant) == ("raced", rival.variant)
    racing.choose(OTHER)
    asked = [*ranked]
    again = process(record)
    assert again.choose(SQUARE) == raced
    assert again.choose(OTHER) == racing.choose(OTHER)
    assert process().choose(SQUARE) == slow
    assert ranked == asked


def test_nothing_is_kept_where_the_database_could_not_be_asked(kept: Binaries) -> None:
    class Failing(Shelf):
        def runners_up(self, info: DeviceInfo, problem: Problem) -> Any:
            raise DatabaseError("it is locked")

    outdated = with_item_m(3, digest="0" * 16)
    Chooser(Failing(outdated), INFO, LIMITS, None, lambda: "a state").choose(SQUARE)
    assert not kept.folder.exists()


def test_a_choice_is_the_same_behind_json() -> None:
    served = process(mark=None).choose(OTHER)
    choices = [served, *rivals(process(mark=None), served, 3)]
    choices.append(process(with_item_m(3), mark=None).choose(SQUARE))
    choices.append(
        replace(choices[-1], rung="raced", beaten=choices[-1], origin="raced", cost=float("inf"))
    )
    for one in choices:
        again = Choice.from_json(one.problem, json.loads(json.dumps(one.to_json())))
        assert again == one
        assert (again.origin, again.beaten) == (one.origin, one.beaten)


def test_a_database_is_named_by_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCLGEN_DB", str(tmp_path / "tuned.sqlite"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with opened() as store:
        store.merge([with_item_m(3)])
    read = RememberedWinners(INFO)
    assert read.mark() is None, "nothing was read"
    read.relatives(INFO)
    assert read.mark() is not None
    again = RememberedWinners(INFO)
    assert again.mark() == read.mark(), "what was read is recalled"
    with opened() as store:
        store.note_race(replace(with_item_m(2, replace(SQUARE, k=96)), origin=RACED))
    assert len(again.relatives(INFO)) == 2
    assert again.mark() == read.mark(), "a race speaks for its own problem alone"
    with opened() as store:
        store.merge([with_item_m(4, OTHER)])
    again.relatives(INFO)
    assert again.mark() not in (None, read.mark())
    with opened() as store:
        store.note_check(INFO, "0123456789abcdef", "it is wrong")
    before = again.mark()
    again.relatives(INFO)
    assert again.mark() not in (None, before)
