"""Tuning: what is measured, kept, skipped, promoted, and when it stops; with made-up times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, log2
from pathlib import Path
from typing import Any

import pytest

from oclgen.families.gemm import gemm_register, gemm_staged
from oclgen.keys import parse_conv, parse_gemm
from oclgen.limits import DeviceInfo, Limits
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem, Problem
from oclgen.variant import Variant
from search_spaces import space
from search_spaces.progress import Budget, OutOfTimeError, Progress, Results, shortage
from search_spaces.tune import Tuner, tune
from tests.search_spaces.synthetic import Clock, Memory
from tuned_db import open_store

GPU = Limits("gpu", 47 * 1024, 1024, (1024, 1024, 64), 2**34, 2**36, 132, 1)
PROBLEM = parse_gemm("512x512x512")
OTHER = parse_gemm("64x1000x2048:nt")
REGISTER, STAGED = gemm_register.NAME, gemm_staged.NAME


def fake_ms(variant: Variant) -> float:
    """The register family has its optimum at 4 x 8 and is twice as slow as the staged one."""
    config = variant.config
    if variant.family == REGISTER:
        return 2 + abs(log2(config.item_m / 4)) + abs(log2(config.item_n / 8))
    return 1 + abs(log2(config.tile_m / 64)) + abs(log2(config.tile_n / 64))


@dataclass
class Lab:
    """A measure that takes a second of a clock that only it moves, and remembers its calls."""

    clock: Clock = field(default_factory=Clock)
    calls: list[tuple[Problem, Variant, float]] = field(default_factory=list)
    spell: dict[int, Exception | BaseException | Measurement] = field(default_factory=dict)
    """What happens at the call of that number instead."""

    def measure(self, problem: Problem, variant: Variant, best_ms: float) -> Measurement:
        self.calls.append((problem, variant, best_ms))
        self.clock.now += 1
        event = self.spell.get(len(self.calls))
        if isinstance(event, BaseException):
            raise event
        return event or Measurement((fake_ms(variant),), error=1e-7)

    def variants(self, problem: Problem = PROBLEM) -> list[Variant]:
        return [variant for asked, variant, _ in self.calls if asked == problem]


@pytest.fixture(autouse=True)
def two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two families serve, whatever others there are by now, with some hundred configs."""
    serving = (gemm_register, gemm_staged)
    monkeypatch.setattr("search_spaces.tune.families_for", lambda problem: serving)
    tiles, flags = (16, 32, 64, 128), (False, True)
    few = {"tile_m": tiles, "tile_n": tiles, "tile_k": (8, 16, 32), "double_buffer": flags}
    few |= {"vec_m": (2, 4), "vec_n": (2, 4), "local_m": (8, 16), "local_n": (8, 16)}
    monkeypatch.setitem(space.SPACES, STAGED, lambda p, li: few)


def only_these(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, tuple[int, ...]]) -> None:
    """Let `gemm_register` have these values, and no guess but its `DEFAULT`."""
    monkeypatch.setitem(space.SPACES, REGISTER, lambda p, li: values)
    monkeypatch.setattr(gemm_register, "guesses", lambda p, li: [])


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.fixture
def memory() -> Memory:
    return Memory()


def tuner(lab: Lab, memory: Results, budget: Budget, **more: Any) -> Tuner:
    return Tuner(GPU, lab.measure, memory, budget, clock=lab.clock, **more)


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


def test_what_serves_now_is_tried_first_wherever_it_lies(
    lab: Lab, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time says what the tuning gains."""
    only_these(monkeypatch, {"item_m": (1, 2, 4, 8)})
    default = gemm_register.DEFAULT
    starts = [Variant(REGISTER, replace(default, item_m=m)) for m in (3, 5, 6)]
    tune(tuner(lab, memory, Budget(6), starts=lambda _: starts), [PROBLEM])
    assert lab.variants()[0] == starts[0]
    mine = [one for one in lab.variants()[:6] if one.family == REGISTER]
    assert mine[:3] == [starts[0], Variant(REGISTER, default), starts[1]]
    assert starts[2] not in lab.variants()


def test_on_a_processor_a_family_that_stages_in_local_memory_comes_last(
    lab: Lab, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "search_spaces.tune.families_for", lambda problem: (gemm_staged, gemm_register)
    )
    for limits, first in ((replace(GPU, kind="cpu"), REGISTER), (GPU, STAGED)):
        other = Lab()
        tune(Tuner(limits, other.measure, Memory(), Budget(2), clock=other.clock), [PROBLEM])
        assert other.variants()[0].family == first


@dataclass
class Slower(Lab):
    """A machine with other work: everything takes `factor` times as long."""

    factor: float = 1.0

    def measure(self, problem: Problem, variant: Variant, best_ms: float) -> Measurement:
        measurement = super().measure(problem, variant, best_ms)
        return replace(measurement, samples=tuple(self.factor * ms for ms in measurement.samples))


def test_a_resumed_tuning_compares_no_times_of_different_load(memory: Memory) -> None:
    """What the second run finds is better, and the third one knows it, though it took longer."""
    lab = Slower()
    for trials, factor in ((12, 1.0), (40, 1.5), (41, 3.0)):
        lab.factor, begun = factor, len(lab.calls)
        before = memory.winners.get(PROBLEM)
        (result,) = tune(tuner(lab, memory, Budget(trials)), [PROBLEM])
        if before:
            assert lab.calls[begun][1] == before[0]
    assert result.best is not None
    tried = {variant for _, variant, _ in memory.asked}
    assert fake_ms(result.best.variant) == min(map(fake_ms, tried))
    known = memory.measured(PROBLEM)
    assert all(ms == pytest.approx(fake_ms(variant)) for variant, ms in known.items())


def test_one_tuning_serves_all_epilogues(
    lab: Lab, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others' variants are those that the first one's search found best."""
    one, two = GemmProblem(512, 512, 512), GemmProblem(512, 512, 512, bias="n", activation="relu")
    first, other, second = tune(tuner(lab, memory, Budget(30)), [one, OTHER, two])
    assert (first.trials, second.trials) == (30, 2)
    assert second.status == "tuned"
    assert first.best is not None
    assert second.best is not None
    assert second.best.variant == first.best.variant
    assert other.trials == 30
    again = tune(tuner(lab, memory, Budget(30)), [one, two])
    assert [result.status for result in again] == ["already done"] * 2


def vars_of(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


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
    assert lab.clock.now <= 120 + 9
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
    assert lab.clock.now <= 40 + 3


def test_problems_beyond_the_time_are_not_reached(lab: Lab, memory: Memory) -> None:
    problems = [parse_gemm(f"{size}x8x8") for size in range(1, 8)]
    results = tune(tuner(lab, memory, Budget(trials=50, seconds=3)), problems)
    assert lab.clock.now <= 3 + 1
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


class Drifting(Lab):
    """A machine on which everything gets slower with time, and one variant was lucky once."""

    def measure(self, problem: Problem, variant: Variant, best_ms: float) -> Measurement:
        measurement = super().measure(problem, variant, best_ms)
        lucky = 0.93 if len(self.calls) == 4 else 1.0
        ms = measurement.ms * lucky * (1 + 0.001 * len(self.calls))
        return Measurement((ms,), error=1e-7)


def test_the_winner_is_decided_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    lab, memory = Drifting(), Memory()
    monkeypatch.setattr(f"{__name__}.fake_ms", lambda one: 1.0 + 0.01 * one.config.item_m)
    values = {"item_m": (1, 2, 4, 8)}
    only_these(monkeypatch, values)
    seeds = [
        Variant(REGISTER, gemm_register.Config(**{**vars_of(gemm_register.DEFAULT), "item_m": m}))
        for m in (1, 2, 4, 8)
    ]
    only = tuner(lab, memory, Budget(4), families=frozenset({REGISTER}), starts=lambda _: seeds)
    (result,) = tune(only, [PROBLEM])
    assert memory.asked[-1][2].ms == min(one[2].ms for one in memory.asked)  # the lucky one
    (promoted,) = memory.promoted
    assert promoted[0].config.item_m == 1
    assert len(promoted[1].samples) == 3
    assert result.best is not None
    assert result.best.variant.config.item_m == 1


def test_an_incumbent_that_is_still_faster_keeps_its_place(lab: Lab, memory: Memory) -> None:
    best = gemm_register.Config(**{**vars_of(gemm_register.DEFAULT), "item_m": 4, "item_n": 8})
    assert best.why_not(PROBLEM, GPU) is None
    memory.winners[PROBLEM] = (Variant(REGISTER, best), 1.9)
    (result,) = tune(tuner(lab, memory, Budget(3), families=frozenset({REGISTER})), [PROBLEM])
    assert Variant(REGISTER, best) in lab.variants()[3:]
    assert result.best is not None
    assert result.best.variant.config == best


def test_a_variant_that_fails_when_it_is_measured_again_cannot_win(
    lab: Lab, memory: Memory
) -> None:
    tune(tuner(lab, memory, Budget(60)), [PROBLEM])
    again = len(lab.calls) - 60
    assert again >= 2
    other = Lab(spell={61: Measurement(invalidity="runtime", reason="lost the device")})
    fresh = Memory()
    tune(tuner(other, fresh, Budget(60)), [PROBLEM])
    failed = other.variants()[60]
    assert fresh.promoted[0][0] != failed


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
