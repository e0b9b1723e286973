"""What is tried first, what a resumed tuning compares, what epilogues share, and who wins."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from oclgen.families.gemm import gemm_register, gemm_staged
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem, Problem
from oclgen.variant import Variant
from search_spaces.progress import Budget
from search_spaces.tune import Tuner, tune
from tests.search_spaces.lab import (
    GPU,
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

pytestmark = pytest.mark.usefixtures("two_families")


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


class Drifting(Lab):
    """A machine on which everything gets slower with time, and one variant was lucky once."""

    def measure(self, problem: Problem, variant: Variant, best_ms: float) -> Measurement:
        measurement = super().measure(problem, variant, best_ms)
        lucky = 0.93 if len(self.calls) == 4 else 1.0
        ms = measurement.ms * lucky * (1 + 0.001 * len(self.calls))
        return Measurement((ms,), error=1e-7)


def test_the_winner_is_decided_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    lab, memory = Drifting(), Memory()
    monkeypatch.setattr(
        "tests.search_spaces.lab.fake_ms", lambda one: 1.0 + 0.01 * one.config.item_m
    )
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
