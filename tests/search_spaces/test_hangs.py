"""Families whose variants hang: what a search learns from timeouts; with made-up times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from oclgen.limits import DeviceInfo
from oclgen.measurement import Measurement
from oclgen.problem import Problem
from oclgen.variant import Variant
from search_spaces.hangs import MOST_TIMEOUTS, Hangs
from search_spaces.progress import Budget
from search_spaces.spread import tune_network
from search_spaces.tune import tune
from tests.search_spaces.lab import OTHER, PROBLEM, REGISTER, STAGED, Lab, tuner
from tests.search_spaces.synthetic import Memory
from tuned_db import open_store

pytestmark = pytest.mark.usefixtures("two_families")

LATE = Measurement(invalidity="timeout", reason="running took longer than 60 s")


@dataclass
class Hanging(Lab):
    """A lab in which some variants hang, each for a minute of the clock."""

    hangs: Callable[[Variant], bool] = lambda _: False
    late: list[Variant] = field(default_factory=list)

    def measure(self, problem: Problem, variant: Variant, best_ms: float) -> Measurement:
        if self.hangs(variant) and problem == PROBLEM:
            self.clock.now += 60
            self.late.append(variant)
            return LATE
        return super().measure(problem, variant, best_ms)


@pytest.fixture
def staged_hang() -> Hanging:
    return Hanging(hangs=lambda variant: variant.family == STAGED)


def test_a_family_that_hangs_is_given_up_and_the_others_have_its_trials(
    staged_hang: Hanging, memory: Memory
) -> None:
    (result,) = tune(tuner(staged_hang, memory, Budget(trials=20)), [PROBLEM])
    assert result.outcomes == {"timeout": MOST_TIMEOUTS, "none": 20 - MOST_TIMEOUTS}
    assert {one.family for one in staged_hang.variants()} == {REGISTER}
    assert result.skipped == {
        STAGED: "2 variants timed out, 0 were timed; running took longer than 60 s"
    }
    assert str(result).endswith(f"; {STAGED} was given up: {result.skipped[STAGED]}")


def test_what_was_asked_for_ahead_is_dropped(staged_hang: Hanging, memory: Memory) -> None:
    begun: list[Variant] = []
    dropped: list[Variant] = []
    ahead = tuner(
        staged_hang,
        memory,
        Budget(trials=20),
        ahead=6,
        build_ahead=lambda _, one: begun.append(one),
        drop_ahead=lambda _, one: dropped.append(one),
    )
    tune(ahead, [PROBLEM])
    assert dropped
    assert {one.family for one in dropped} == {STAGED}
    assert len(staged_hang.late) == MOST_TIMEOUTS
    assert set(begun) == {*staged_hang.late, *dropped, *staged_hang.variants()}


def test_a_later_search_of_the_problem_does_not_try_it_either(
    staged_hang: Hanging, memory: Memory
) -> None:
    tune(tuner(staged_hang, memory, Budget(trials=10)), [PROBLEM])
    (again,) = tune(tuner(staged_hang, memory, Budget(trials=16)), [PROBLEM])
    assert len(staged_hang.late) == MOST_TIMEOUTS
    assert again.outcomes == {"none": 6}
    assert again.skipped == {STAGED: "2 variants timed out, 0 were timed"}


def test_turns_of_a_network_remember_it(staged_hang: Hanging, memory: Memory) -> None:
    alone = tuner(staged_hang, memory, Budget(trials=30))
    first, second = tune_network(alone, {PROBLEM: 1, OTHER: 1})
    results = {first.problem: first, second.problem: second}
    assert len(staged_hang.late) == MOST_TIMEOUTS
    assert [*results[PROBLEM].skipped] == [STAGED]
    assert results[OTHER].skipped == {}  # another problem's variants may be right
    assert STAGED in {one.family for one in staged_hang.variants(OTHER)}


def test_a_search_in_which_all_families_hang_ends(memory: Memory) -> None:
    lab = Hanging(hangs=lambda _: True)
    (result,) = tune(tuner(lab, memory, Budget(trials=50)), [PROBLEM])
    assert (result.status, len(lab.late)) == ("no variant", 2 * MOST_TIMEOUTS)
    assert set(result.skipped) == {REGISTER, STAGED}


def test_a_family_that_serves_is_searched_although_some_of_its_configs_hang(
    memory: Memory,
) -> None:
    lab = Hanging()
    lab.hangs = lambda one: len(lab.calls) >= 10 and one.family == STAGED and one.config.tile_k == 8
    (result,) = tune(tuner(lab, memory, Budget(trials=40)), [PROBLEM])
    assert len(lab.late) >= MOST_TIMEOUTS
    assert result.skipped == {}
    assert result.best is not None
    assert result.best.variant.family == STAGED


def test_other_failures_give_no_family_up() -> None:
    hangs = Hangs({}, ())
    variant = Variant(REGISTER, None)
    for _ in range(5):
        hangs.note(variant, Measurement(invalidity="compile", reason="refused"))
    assert hangs.why_skipped(REGISTER) == ""


def test_a_database_knows_what_timed_out(staged_hang: Hanging, tmp_path: Path) -> None:
    info = DeviceInfo("None", "Imaginary", "gpu", "imaginary 1", "OpenCL", "3.0", "1.0", 132)
    results = open_store(tmp_path / "tuned.sqlite").of(info)
    tune(tuner(staged_hang, results, Budget(trials=8)), [PROBLEM])
    assert results.timeouts(PROBLEM) == set(staged_hang.late)
    assert results.timeouts(OTHER) == set()
