"""A network's problems share trials and seconds by what they promise; turns add up."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import pytest
from synthetic import Clock, Memory

from oclgen.keys import parse_gemm
from oclgen.limits import Limits
from oclgen.problem import Problem
from search_spaces import network
from search_spaces.network import SLICE, tune_network
from search_spaces.progress import Best, Budget, Status, TuneResult
from search_spaces.tune import Tuner

CPU = Limits("cpu", 2**15, 1024, (1024, 1024, 64), 2**34, 2**36, 2, 16)
LARGE, MIDDLE, SMALL = (parse_gemm(f"{n}x{n}x{n}") for n in (256, 128, 64))
MS = {LARGE: 8.0, MIDDLE: 1.0, SMALL: 0.1}


class Bench:
    """Stands in for `tune`: a turn takes a second and finds times that fall to half of `MS`."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turns: list[Problem] = []
        self.statuses: dict[int, Status] = {}
        self.memory = Memory()
        self.trials: Counter[Problem] = Counter()

    def tune(self, tuner: Tuner, problems: list[Problem]) -> list[TuneResult]:
        (problem,) = problems
        self.turns.append(problem)
        self.clock.now += 1
        made = tuner.budget.trials - self.trials[problem]
        self.trials[problem] += made
        ms = MS[problem] * (0.5 + 0.5 / self.turns.count(problem))
        status = self.statuses.get(len(self.turns), "tuned")
        counts = Counter({"none": made})
        return [TuneResult(problem, status, Best("f", None, ms), counts, 1.0)]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    monkeypatch.setattr(network, "tune", bench.tune)
    monkeypatch.setattr(Tuner, "tried", lambda self, problem: bench.trials[problem])
    return bench


def run(bench: Bench, calls: dict[Problem, int], trials: int, seconds: float = inf) -> Any:
    never: Any = None  # `tune` is replaced, so nothing is measured
    tuner = Tuner(CPU, never, bench.memory, Budget(trials, seconds), clock=bench.clock)
    return tune_network(tuner, calls)


def test_the_heaviest_has_its_turn_first_whatever_the_order_given(bench: Bench) -> None:
    results = run(bench, {SMALL: 1, MIDDLE: 1, LARGE: 1}, trials=1000, seconds=3)
    assert bench.turns == [LARGE, MIDDLE, SMALL] == [result.problem for result in results]


def test_seconds_go_where_the_time_goes(bench: Bench) -> None:
    run(bench, {SMALL: 1, MIDDLE: 1, LARGE: 1}, trials=10**6, seconds=60)
    count = Counter(bench.turns)
    assert count[LARGE] > 2 * count[MIDDLE] > 4 * count[SMALL]


def test_trials_are_bounded_and_turns_add_up(bench: Bench) -> None:
    results = run(bench, {LARGE: 3, SMALL: 1}, trials=2 * SLICE + 3)
    assert [result.trials for result in results] == [2 * SLICE + 3] * 2
    assert [result.seconds for result in results] == [3.0] * 2
    assert {result.status for result in results} == {"tuned"}


def test_what_was_not_reached_says_so(bench: Bench) -> None:
    first, second = run(bench, {LARGE: 1, SMALL: 1}, trials=100, seconds=1)
    assert (first.status, second.status) == ("tuned", "not reached")


def test_an_interrupt_ends_all(bench: Bench) -> None:
    bench.statuses[2] = "interrupted"
    first, second = run(bench, {LARGE: 1, SMALL: 1}, trials=100)
    assert (first.status, second.status) == ("tuned", "interrupted")
    assert len(bench.turns) == 2


def test_a_problem_that_is_done_stays_done(bench: Bench) -> None:
    bench.trials[SMALL] = 16
    bench.statuses[2] = "already done"
    first, second = run(bench, {LARGE: 1, SMALL: 1}, trials=16)
    assert (first.status, second.status) == ("tuned", "already done")
    assert bench.turns == [LARGE, SMALL, LARGE]
