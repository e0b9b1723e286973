"""The choice looks at kernels' digests, at caches and at claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oclgen.families.gemm import gemm_register
from oclgen.keys import parse_key
from oclgen.problem import GemmProblem, Problem
from oclgen.variant import Variant
from tests.tuned_db.shelves import Shelf, chooser, with_item_m
from tests.tuned_db.tuned_samples import INFO, LIMITS, SQUARE, config, record, variant
from tuned_db import Chooser, Record
from tuned_db.choosing import pools
from tuned_db.choosing.plausible import why_implausible
from tuned_db.records.digests import digest_of
from tuned_db.records.shipped import shipped_records

pytestmark = pytest.mark.usefixtures("shipped")


def claim(item_m: int, ms: float, **changes: Any) -> Record:
    return with_item_m(item_m, samples=(ms,), origin="import", **changes)


def test_other_kernels_under_the_same_number_are_stale() -> None:
    """The generator's number did not change, the text did."""
    changed = with_item_m(1, digest="0123456789abcdef")
    assert chooser(changed).choose(SQUARE).rung == "stale"
    assert chooser(with_item_m(1, digest=None)).choose(SQUARE).rung == "stale"
    renumbered = replace(with_item_m(1), generator="0")
    assert chooser(renumbered).choose(SQUARE).rung == "exact"


def test_digests_are_taken_of_what_would_serve_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Problem] = []

    def counted(problem: Problem, variant: Variant) -> str | None:
        asked.append(problem)
        return digest_of(problem, variant)

    monkeypatch.setattr(pools, "digest_of", counted)
    got = chooser(*(record(GemmProblem(64, 64, size)) for size in (64, 65, 66)))
    assert asked == []
    for _ in range(3):
        got.choose(SQUARE)
    assert set(asked) == {SQUARE}


@pytest.mark.usefixtures("alike")
def test_few_texts_are_generated_where_all_that_was_measured_is_of_other_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Problem] = []

    def counted(problem: Problem, variant: Variant) -> str | None:
        asked.append(problem)
        return digest_of(problem, variant)

    monkeypatch.setattr(pools, "digest_of", counted)
    shelf = Shelf(with_item_m(1, digest="0" * 16))
    shelf.others = [with_item_m(one, digest=None) for one in range(2, 33)]
    shelf.others += [with_item_m(one, digest="0" * 16) for one in range(33, 65)]
    near = [record(GemmProblem(64, 64, size), digest="0" * 16) for size in range(65, 128)]
    shelf.records += near
    assert Chooser(shelf, INFO, LIMITS).choose(SQUARE).rung == "stale"
    assert len(asked) == 1 + pools.MOST_OUTDATED
    shelf.others[31] = with_item_m(33)
    assert Chooser(shelf, INFO, LIMITS).choose(SQUARE).variant.config.item_m == 33
    asked.clear()
    assert Chooser(shelf, INFO, LIMITS).choose(GemmProblem(64, 60, 96)).rung == "nearest"
    assert asked == []


def test_cold_times_serve_where_there_are_no_warm_ones_and_it_is_said() -> None:
    cold = with_item_m(1, samples=(0.1,), cache="cold")
    choice = chooser(cold).choose(SQUARE)
    assert (choice.variant.config.item_m, choice.source) == (1, "exact, cold")
    choice = chooser(cold, with_item_m(2)).choose(SQUARE)
    assert (choice.variant.config.item_m, choice.source) == (2, "exact")


def test_a_winner_that_cannot_serve_gives_way_to_the_next_of_its_tuning() -> None:
    wide = variant(local_m=64, local_n=64).to_json()
    assert config(local_m=64, local_n=64).why_not(SQUARE, LIMITS)
    shelf = Shelf(record(config=wide, samples=(0.1,), origin="import"))
    shelf.others = [with_item_m(2, samples=(0.5,)), claim(3, 0.2)]
    choice = Chooser(shelf, INFO, LIMITS).choose(SQUARE)
    assert (choice.rung, choice.variant.config.item_m, choice.verified) == ("exact", 2, True)


def test_a_rule_that_fails_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `split_k: 0` made families divide by zero, and every product failed."""

    def broken(self: Any, problem: Any, limits: Any) -> str | None:
        if self.item_m == 1:
            raise ZeroDivisionError("integer division or modulo by zero")
        return None

    monkeypatch.setattr(gemm_register.Config, "why_not", broken)
    choice = chooser(with_item_m(1, samples=(0.1,)), with_item_m(2)).choose(SQUARE)
    assert choice.variant.config.item_m == 2


def test_a_claim_above_the_peak_does_not_serve_and_it_is_said() -> None:
    peak = (100.0, 10.0)
    got = chooser(claim(1, 1e-6, peak=peak), claim(2, 0.1, peak=peak))
    assert got.choose(SQUARE).variant.config.item_m == 2
    (reason,) = got.skipped
    assert "claims 5.243e+05 GFLOP/s in 1e-06 ms (import); the device's peak is 100" in reason
    here = chooser(replace(claim(1, 1e-6, peak=peak), origin=""))
    assert here.choose(SQUARE).variant.config.item_m == 1


def test_what_the_package_ships_is_plausible() -> None:
    for one in shipped_records():
        if one.digest is not None:
            said = why_implausible(replace(one, origin="import"), parse_key(one.problem))
            assert said is None


def test_a_claim_that_promises_more_than_the_winner_is_to_be_checked() -> None:
    shelf = Shelf(with_item_m(1, samples=(1.0,)))
    shelf.others = [claim(2, 0.5), claim(3, 0.4), claim(4, 2.0)]
    got = Chooser(shelf, INFO, LIMITS)
    assert got.choose(SQUARE).variant.config.item_m == 1
    assert [one.variant.config.item_m for one in got.unverified()] == [3]
    shelf.others = [claim(4, 2.0)]
    got.refresh()
    assert got.unverified() == []
