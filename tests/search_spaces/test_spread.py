"""Problems share trials, seconds and devices by what they promise; lost turns are given again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from typing import Any

import pytest

from oclgen.keys import parse_gemm
from oclgen.limits import Limits
from oclgen.problem import ConvProblem, Problem
from oclgen.variant import Variant
from search_spaces import spread
from search_spaces.progress import FEW, TRIAL_S, Best, Budget, Status, TuneResult
from search_spaces.spread import FIRST_TRIALS, LOST, Lot, Spread, Turn, tune_network
from search_spaces.tune import Tuner
from tests.search_spaces.synthetic import Clock, Memory

CPU = Limits("cpu", 2**15, 1024, (1024, 1024, 64), 2**34, 2**36, 2, 16)
LARGE, MIDDLE, SMALL = (parse_gemm(f"{n}x{n}x{n}") for n in (256, 128, 64))
MS: dict[Problem, float] = {LARGE: 8.0, MIDDLE: 1.0, SMALL: 0.1}


@dataclass
class Bench:
    """Stands in for `tune`: a turn takes a second and finds times that fall to half of `MS`."""

    clock: Clock = field(default_factory=Clock)
    turns: list[Problem] = field(default_factory=list)
    statuses: dict[int, Status] = field(default_factory=dict)
    trials: Counter[Problem] = field(default_factory=Counter)
    fruitless: set[int] = field(default_factory=set)
    """Turns that end before their first trial."""

    def tune(self, tuner: Tuner, problems: list[Problem]) -> list[TuneResult]:
        problem, *others = problems
        self.turns.append(problem)
        self.clock.now += 1
        made = tuner.budget.trials - self.trials[problem]
        if len(self.turns) in self.fruitless:
            made = 0
        self.trials[problem] += made
        ms = MS[problem] * (0.5 + 0.5 / self.turns.count(problem))
        status = self.statuses.get(len(self.turns), "tuned")
        counts = Counter({"none": made})
        best = Best(Variant("f", None), ms)
        followed = [TuneResult(other, "tuned", best) for other in others]
        return [TuneResult(problem, status, best, counts, 1.0), *followed]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    monkeypatch.setattr(spread, "tune", bench.tune)
    monkeypatch.setattr(Tuner, "tried", lambda self, problem: bench.trials[problem])
    return bench


def run(bench: Bench, calls: dict[Problem, int], trials: int, seconds: float = inf) -> Any:
    never: Any = None  # `tune` is replaced, so nothing is measured
    tuner = Tuner(CPU, never, Memory(), Budget(trials, seconds), clock=bench.clock)
    return tune_network(tuner, calls)


def test_the_heaviest_has_its_turn_first_whatever_the_order_given(bench: Bench) -> None:
    results = run(bench, {SMALL: 1, MIDDLE: 1, LARGE: 1}, trials=1000, seconds=3)
    assert bench.turns == [LARGE, MIDDLE, SMALL] == [result.problem for result in results]


def test_seconds_go_where_the_time_goes(bench: Bench) -> None:
    run(bench, {SMALL: 1, MIDDLE: 1, LARGE: 1}, trials=10**6, seconds=60)
    turns = Counter(bench.turns)
    assert turns[LARGE] > 2 * turns[MIDDLE] > 4 * turns[SMALL]


def test_a_problem_and_its_epilogues_are_one_task(bench: Bench) -> None:
    plain = ConvProblem(8, 64, 56, 56, 64, 3, 3, pad_h=1, pad_w=1)
    relu = replace(plain, activation="relu")
    MS.update({plain: 4.0, relu: 4.0})
    results = run(bench, {plain: 1, LARGE: 1, relu: 3}, trials=FEW)
    assert bench.turns == [relu, LARGE]
    assert [result.problem for result in results] == [relu, plain, LARGE]
    assert [result.status for result in results] == ["tuned"] * 3


def test_trials_are_bounded_and_turns_add_up(bench: Bench) -> None:
    results = run(bench, {LARGE: 3, SMALL: 1}, trials=2 * FEW + 3)
    assert [result.trials for result in results] == [2 * FEW + 3] * 2
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


@dataclass
class Team:
    """A crew whose turns end when the test says so, or are lost."""

    size: dict[str, int]
    open: list[tuple[Turn, Future[list[TuneResult]]]] = field(default_factory=list)
    most: Counter[str] = field(default_factory=Counter)
    lose: set[int] = field(default_factory=set)
    begun: int = 0
    seconds: list[float] = field(default_factory=list)

    def devices(self) -> Mapping[str, int]:
        """Return all devices; the caller has filled them before, so the oldest turn ends now."""
        if self.open:
            turn, future = self.open.pop(0)
            made = Counter({"none": turn.slice})
            best = Best(Variant("f", None), 1.0)
            done = TuneResult(turn.problems[0], "tuned", best, made, tried=turn.slice)
            future.set_result([done])
        return self.size

    def submit(self, asked: Turn) -> Future[list[TuneResult]]:
        self.begun += 1
        self.seconds.append(asked.budget.seconds)
        future: Future[list[TuneResult]] = Future()
        if self.begun in self.lose:
            future.set_exception(ConnectionError("killed"))
            return future
        self.open.append((asked, future))
        here = sum(turn.kind == asked.kind for turn, _ in self.open)
        self.most[asked.kind] = max(self.most[asked.kind], here)
        assert len({turn.problems for turn, _ in self.open if turn.kind == asked.kind}) == here
        return future


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "LOOK", 0.0)


def test_every_device_is_used_and_none_by_two() -> None:
    team = Team({"fast": 2, "slow": 1})
    lots = [Lot.of(kind, {LARGE: 1, MIDDLE: 1, SMALL: 1}) for kind in ("fast", "slow")]
    Spread(team, lots, Budget(5), slice=5).run()
    assert team.most == {"fast": 2, "slow": 1}
    assert team.begun == 6
    assert all(result.status == "tuned" for lot in lots for result in lot.results)


def test_a_lost_turn_is_given_again() -> None:
    team = Team({"fast": 1}, lose={1, 2})
    lot = Lot.of("fast", {LARGE: 1})
    ticks = count()
    Spread(team, [lot], Budget(5), slice=5, clock=lambda: next(ticks)).run()
    assert team.begun == 3
    assert (lot.results[0].status, lot.results[0].trials) == ("tuned", 5)


def test_a_problem_that_is_always_lost_is_given_up_with_its_reason() -> None:
    team = Team({"fast": 1}, lose=set(range(1, 100)))
    lot = Lot.of("fast", {LARGE: 1})
    ticks = count()
    Spread(team, [lot], Budget(5), slice=5, clock=lambda: next(ticks)).run()
    assert team.begun == LOST
    assert lot.results[0].status == "no variant"
    assert lot.results[0].reason == f"{LOST} turns lost in a row: ConnectionError: killed"


@dataclass
class LateTeam(Team):
    """A crew whose fast device is there from the second time on that it is asked."""

    late: bool = True

    def devices(self) -> Mapping[str, int]:
        size, late, self.late = super().devices(), self.late, False
        return {"slow": size["slow"]} if late else size


def test_devices_that_appear_later_are_used() -> None:
    team = LateTeam({"slow": 1, "fast": 1})
    lots = [Lot.of("fast", {LARGE: 1}), Lot.of("slow", {LARGE: 1})]
    Spread(team, lots, Budget(5), slice=5).run()
    assert [lot.results[0].status for lot in lots] == ["tuned", "tuned"]


def test_each_problem_keeps_its_part_of_the_seconds_until_its_first_turn() -> None:
    team = Team({"fast": 1})
    lot = Lot.of("fast", {LARGE: 1, MIDDLE: 1, SMALL: 1})
    Spread(team, [lot], Budget(FEW, 60), clock=lambda: 0.0).run()
    assert team.seconds[:3] == [20, 30, 60]
    assert all(result.status == "tuned" for result in lot.results)


def test_the_heaviest_have_the_seconds_that_do_not_reach_for_all() -> None:
    """A part of a thousandth was too short for a trial, so that no problem had one."""
    team = Team({"fast": 1})
    many = [parse_gemm(f"{n}x64x64") for n in range(1000, 0, -1)]
    lot = Lot.of("fast", dict.fromkeys(many, 1))
    times = count()
    Spread(team, [lot], Budget(FEW, 60), clock=lambda: next(times)).run()
    assert team.seconds[0] == FIRST_TRIALS * TRIAL_S
    tuned = [index for index, one in enumerate(lot.results) if one.status == "tuned"]
    assert tuned == list(range(len(tuned)))
    assert 0 < len(tuned) < 60


def test_a_problem_that_was_not_reached_has_another_turn(bench: Bench) -> None:
    bench.statuses = {1: "not reached"}
    bench.fruitless = {1}
    first, second = run(bench, {LARGE: 1, SMALL: 1}, trials=FEW, seconds=100)
    assert bench.turns == [LARGE, SMALL, LARGE]
    assert (first.status, second.status) == ("tuned", "tuned")
