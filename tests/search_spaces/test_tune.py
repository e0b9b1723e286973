"""Tuning: what is measured, kept, skipped, promoted, and when it stops; with made-up times."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from oclgen.families.gemm import gemm_register, gemm_staged
from oclgen.keys import parse_conv, parse_gemm
from oclgen.limits import DeviceInfo
from oclgen.measurement import Measurement
from oclgen.variant import Variant
from search_spaces import space
from search_spaces.progress import Budget, OutOfTimeError, Progress, shortage
from search_spaces.tune import tune
from tests.search_spaces.lab import (
    OTHER,
    PROBLEM,
    REGISTER,
    STAGED,
    Lab,
    fake_ms,
    only_these,
    tuner,
    vars_of,
)
from tests.search_spaces.synthetic import Memory
from tuned_db import open_store

pytestmark = pytest.mark.usefixtures("two_families")


def test_the_budget_is_spent_on_distinct_variants_and_the_best_wins(
    lab: Lab, memory: Memory
) -> None:
    (result,) = tune(tuner(lab, memory, Budget(trials=60)), [PROBLEM])
    tried = lab.variants()[:60]
    assert len(set(tried)) == 60 == result.trials
    assert (result.status, result.outcomes) == ("tuned", Counter({"none": 60}))
    assert result.best is not None
    assert (result.best.variant.family, result.best.ms) == (STAGED, 1.0)
    assert memory.winners[PROBLEM] == (result.best.variant, 1.0)
    assert len(memory.asked) == 60
    # the rest were measured again, side by side
    assert set(lab.variants()[60:]) <= set(tried)


def test_more_trials_go_to_the_faster_family(lab: Lab, memory: Memory) -> None:
    tune(tuner(lab, memory, Budget(trials=60)), [PROBLEM])
    counts = Counter(one.family for one in lab.variants()[:60])
    assert counts == {REGISTER: 15, STAGED: 45}


def test_measure_hears_the_best_time_so_far(lab: Lab, memory: Memory) -> None:
    tune(tuner(lab, memory, Budget(trials=20)), [PROBLEM])
    best = inf
    for _, variant, heard in lab.calls[:20]:
        assert heard == best
        best = min(best, fake_ms(variant))
    assert {heard for *_, heard in lab.calls[20:]} <= {inf}


def test_the_same_seed_tries_the_same() -> None:
    labs = [Lab(), Lab(), Lab()]
    for lab, seed in zip(labs, (3, 3, 4), strict=True):
        tune(tuner(lab, Memory(), Budget(trials=50, seed=seed)), [PROBLEM])
    assert labs[0].variants() == labs[1].variants() != labs[2].variants()


def test_a_second_run_finds_it_done_and_a_larger_one_goes_on(lab: Lab, memory: Memory) -> None:
    tune(tuner(lab, memory, Budget(trials=20)), [PROBLEM])
    first = len(lab.calls)
    (again,) = tune(tuner(lab, memory, Budget(trials=20)), [PROBLEM])
    assert (again.status, again.trials, len(lab.calls)) == ("already done", 0, first)
    assert again.best is not None
    (more,) = tune(tuner(lab, memory, Budget(trials=30)), [PROBLEM])
    assert (more.status, more.trials) == ("tuned", 10)
    assert len({variant for _, variant, _ in memory.asked}) == 30


def test_trials_made_elsewhere_count(lab: Lab, memory: Memory) -> None:
    memory.foreign_trials = 25
    (result,) = tune(tuner(lab, memory, Budget(trials=20)), [PROBLEM])
    assert (result.status, lab.calls) == ("already done", [])


def test_a_space_smaller_than_the_budget_is_done_when_it_is_exhausted(
    lab: Lab, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = {"item_m": (1, 2), "item_n": (4, 8)}
    only_these(monkeypatch, narrow)
    only = tuner(lab, memory, Budget(trials=50), families=frozenset({REGISTER}))
    (result,) = tune(only, [PROBLEM])
    assert (result.status, result.trials) == ("tuned", 5)  # four and the DEFAULT
    (again,) = tune(only, [PROBLEM])
    assert (again.status, again.trials) == ("already done", 0)


def test_only_the_families_asked_for_are_tried_and_counted(lab: Lab, memory: Memory) -> None:
    tune(tuner(lab, memory, Budget(trials=8), families=frozenset({STAGED})), [PROBLEM])
    assert {one.family for one in lab.variants()} == {STAGED}
    only = tuner(lab, memory, Budget(trials=8), families=frozenset({REGISTER}))
    (result,) = tune(only, [PROBLEM])
    assert (result.status, result.trials) == ("tuned", 8)
    assert result.best is not None
    assert result.best.variant.family == STAGED  # its winner, though not tried now


def test_starts_are_tried_first_where_they_fit(lab: Lab, memory: Memory) -> None:
    good = gemm_staged.DEFAULT
    bad = gemm_register.Config(**{**vars_of(gemm_register.DEFAULT), "item_m": 10**6})
    starts = [Variant(REGISTER, bad), Variant(STAGED, good), Variant("gone", good)]
    tune(tuner(lab, memory, Budget(trials=4), starts=lambda _: starts), [PROBLEM])
    assert Variant(STAGED, good) in lab.variants()[:2]
    assert all(one.config != bad for one in lab.variants())


def test_two_starts_from_outside_of_the_space_are_tried_behind_the_first_seed(
    lab: Lab, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"item_m": (1, 2, 4, 8)}
    only_these(monkeypatch, values)
    default = gemm_register.DEFAULT
    starts = [Variant(REGISTER, replace(default, item_m=m)) for m in (8, 3, 5, 6, 7)]
    only = tuner(lab, memory, Budget(4), families=frozenset({REGISTER}), starts=lambda _: starts)
    tune(only, [PROBLEM])
    first = Variant(REGISTER, default)
    assert lab.variants()[:4] == [starts[0], first, starts[1], starts[2]]
    tune(replace(only, budget=Budget(100)), [PROBLEM])
    assert {one.config.item_m for one in lab.variants()} == {1, 2, 3, 4, 5, 8}


def test_failures_are_outcomes(lab: Lab, memory: Memory) -> None:
    lab.spell = {
        1: Measurement(invalidity="compile", reason="error: no such type"),
        3: Measurement(invalidity="correctness", reason="off by 3"),
    }
    (result,) = tune(tuner(lab, memory, Budget(trials=10)), [PROBLEM])
    assert result.outcomes == {"compile": 1, "correctness": 1, "none": 8}
    assert result.reason == "error: no such type"
    assert memory.asked[0][2].invalidity == "compile"
    assert result.best is not None


def test_a_measure_that_raises_ends_the_tuning_and_blames_no_variant(
    lab: Lab, memory: Memory
) -> None:
    lab.spell = {4: OSError("the machine has no memory left")}
    with pytest.raises(OSError, match="no memory left"):
        tune(tuner(lab, memory, Budget(trials=10)), [PROBLEM])
    assert len(memory.asked) == 3
    assert PROBLEM in memory.winners
    (result,) = tune(tuner(lab, memory, Budget(trials=10)), [PROBLEM])
    assert result.trials == 7
    assert lab.variants()[3] in lab.variants()[4:]  # it is tried again


def test_a_problem_on_which_everything_fails_has_no_variant(lab: Lab, memory: Memory) -> None:
    failure = Measurement(invalidity="compile", reason="the compiler crashed")
    lab.spell = dict.fromkeys(range(1, 100), failure)
    (result,) = tune(tuner(lab, memory, Budget(trials=10)), [PROBLEM])
    assert (result.status, result.best, result.trials) == ("no variant", None, 10)
    assert result.reason == "the compiler crashed"
    assert len(lab.calls) == 10


def test_a_problem_that_no_family_serves(lab: Lab, memory: Memory) -> None:
    none = tuner(lab, memory, Budget(), families=frozenset({"gone"}))
    (result,) = tune(none, [PROBLEM])
    assert (result.status, result.trials) == ("no variant", 0)


def test_interrupted_by_hand_what_was_measured_is_kept(lab: Lab, memory: Memory) -> None:
    lab.spell = {7: KeyboardInterrupt()}
    first, second, third = tune(
        tuner(lab, memory, Budget(trials=10)), [PROBLEM, OTHER, parse_conv("1,8,9,9,8,3,3")]
    )
    assert (first.status, first.trials) == ("interrupted", 6)
    assert first.best is not None
    assert len(memory.asked) == 6
    assert second.status == third.status == "not reached"
    assert second.best is None


def test_seconds_are_dealt_out_evenly(lab: Lab, memory: Memory) -> None:
    problems = [PROBLEM, OTHER, parse_gemm("96x96x96")]
    results = tune(tuner(lab, memory, Budget(trials=1000, seconds=120)), problems)
    assert lab.clock.now <= 120
    assert [result.status for result in results] == ["tuned"] * 3
    assert all(30 <= result.trials <= 45 for result in results)
    assert all(35 <= result.seconds <= 46 for result in results)


def test_seconds_that_one_problem_leaves_go_to_the_others(
    lab: Lab, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = space.SPACES[STAGED]
    values = lambda p, li: {} if p == PROBLEM else wide(p, li)  # noqa: E731
    monkeypatch.setitem(space.SPACES, STAGED, values)
    monkeypatch.setattr(gemm_staged, "guesses", lambda p, li: [])
    only = tuner(lab, memory, Budget(1000, 40), families=frozenset({STAGED}))
    first, second = tune(only, [PROBLEM, OTHER])
    assert (first.trials, first.seconds) == (1, 1)
    assert second.trials >= 34
    assert lab.clock.now <= 40


@pytest.mark.parametrize("seconds", [35, 60, 100, 250])
def test_what_would_not_end_in_time_is_not_begun(lab: Lab, memory: Memory, seconds: float) -> None:
    """Of a slow machine the trials tell how long the next one takes, and a round of the duel."""
    lab.seconds = 10
    results = tune(tuner(lab, memory, Budget(trials=1000, seconds=seconds)), [PROBLEM, OTHER])
    assert seconds / 2 <= lab.clock.now <= seconds
    assert all(result.status == "tuned" and result.best for result in results)


def test_problems_beyond_the_time_are_not_reached(lab: Lab, memory: Memory) -> None:
    problems = [parse_gemm(f"{size}x8x8") for size in range(1, 8)]
    results = tune(tuner(lab, memory, Budget(trials=50, seconds=3)), problems)
    assert lab.clock.now <= 3
    assert [result.trials for result in results] == [1, 1, 1, 0, 0, 0, 0]
    assert results[-1].status == "not reached"
    assert results[0].status == "tuned"


def test_without_time_for_a_trial_a_problem_is_not_reached(
    lab: Lab, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done before the first trial, such as to enumerate a space, may take all the time."""

    def slow(*_: Any) -> list[Any]:
        lab.clock.now += 10
        return []

    monkeypatch.setattr("search_spaces.tune.seeds_of", slow)
    results = tune(tuner(lab, memory, Budget(8, seconds=5)), [PROBLEM, OTHER])
    assert [(one.status, one.trials) for one in results] == [("not reached", 0)] * 2
    assert lab.clock.now == 10
    assert shortage(results, 10.0) == (
        "The time budget ended before 2 of 2 problems had a trial: some 26 s would give each of "
        "them 8."
    )


def test_no_space_is_enumerated_beyond_the_end(
    lab: Lab, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside other programs to look at a hundred thousand configs takes a minute."""
    looked = 0

    def slow(*_: Any) -> None:
        nonlocal looked
        looked += 1
        lab.clock.now += 0.01

    monkeypatch.setattr(gemm_register.Config, "quick_why_not", slow)
    monkeypatch.setattr(gemm_staged.Config, "quick_why_not", slow)
    alone = tuner(lab, memory, Budget(100, seconds=100), families=frozenset({REGISTER}))
    (result,) = tune(alone, [PROBLEM])
    assert (result.status, result.best is not None) == ("tuned", True)
    assert looked > 1000  # seeds took a second each, and configs the rest of ninety
    assert 90 < lab.clock.now <= 100
    assert memory.promoted  # in the last ten the best met side by side


def test_a_short_tuning_enumerates_no_space(
    lab: Lab, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a network's thousands of problems each space would take as long as some trials."""
    monkeypatch.setattr("search_spaces.space.product", None)
    (result,) = tune(tuner(lab, memory, Budget(6), families=frozenset({REGISTER})), [PROBLEM])
    assert (result.status, result.trials) == ("tuned", 6)


def test_what_the_end_of_the_time_cut_short_is_not_held_against_a_variant(
    lab: Lab, memory: Memory
) -> None:
    lab.spell = {1: OutOfTimeError()}
    (result,) = tune(tuner(lab, memory, Budget(8, seconds=1)), [PROBLEM])
    assert (result.status, result.outcomes, memory.asked) == ("not reached", {}, [])
    lab.spell = {4: OutOfTimeError()}
    (result,) = tune(tuner(lab, memory, Budget(8, seconds=100)), [PROBLEM])
    assert (result.status, result.trials) == ("tuned", 2)
    assert result.best is not None


def test_the_duel_keeps_cache_seed_and_conditions(lab: Lab, memory: Memory) -> None:
    measured = Measurement((1.0,), error=1e-7, seed=7, cache="cold", conditions={"mhz_before": 2.0})
    lab.spell = dict.fromkeys(range(1, 100), measured)
    tune(tuner(lab, memory, Budget(4)), [PROBLEM])
    ((_, promoted),) = memory.promoted
    assert promoted == replace(measured, samples=(1.0,) * 3)


def test_progress_is_told_after_every_trial(lab: Lab, memory: Memory) -> None:
    told: list[Progress] = []
    lab.spell = {1: Measurement(invalidity="compile", reason="no")}
    tune(tuner(lab, memory, Budget(12, 100), report=told.append), [PROBLEM, OTHER])
    assert [one.trial for one in told] == [*range(1, 13)] * 2
    assert [one.index for one in told] == [0] * 12 + [1] * 12
    assert {(one.count, one.trials) for one in told} == {(2, 12)}
    assert told[0].best is None
    assert told[11].best is not None
    assert told[11].best.ms == min(map(fake_ms, lab.variants(PROBLEM)[1:12]))
    assert told[11].outcomes == {"compile": 1, "none": 11}
    assert told[0].seconds_left > told[11].seconds_left > 0


def test_the_database_serves_as_results(tmp_path: Path, lab: Lab) -> None:
    info = DeviceInfo("Imaginary", "None", "gpu", "imaginary 1", "OpenCL", "3.0", "1.0", 132)
    device = open_store(tmp_path / "tuned.sqlite").of(info)
    (result,) = tune(tuner(lab, device, Budget(6)), [PROBLEM])
    assert result.status == "tuned"
    assert device.trials(PROBLEM) == 6
    assert result.best is not None
    assert device.incumbent(PROBLEM) == (result.best.variant, result.best.ms)
    (again,) = tune(tuner(lab, device, Budget(6)), [PROBLEM])
    assert again.status == "already done"
