"""Spreads the problems of a network, or of many devices, over the processes that measure: in turns.

A turn is a few trials of one problem on one device, by `search_spaces.tune`. The next problem
is chosen by `search_spaces.scheduler`, and a `Crew` takes the turn: this process, or many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

from oclgen.problem import Problem
from search_spaces.epilogues import together
from search_spaces.progress import FEW, TRIAL_S, Budget, Progress, TuneResult
from search_spaces.scheduler import Task, choose
from search_spaces.timing import Durations
from search_spaces.tune import Tuner, tune

LOST = 6
"""Turns of one problem in a row that are lost with their process until it is given up; it rests
in between, for 1, 2, 4, 8 and 16 seconds, since a database or a node may come back."""
FIRST_TRIALS = 3
"""Trials that a first turn has time for at least: what serves now, what the model ranks first, and
the duel of both. Where the seconds do not reach for all problems, the heaviest have them."""
LOOK = 1.0
"""Seconds after which the crew is asked again how many devices it has."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a crew is asked for: at most `slice` trials of a problem on one kind of device.

    `problems` differ only in their epilogue: the first is searched. The budget's trials are for it
    and all runs, its seconds for this turn. `report` is called with each trial of this process.
    """

    kind: str
    problems: tuple[Problem, ...]
    budget: Budget
    slice: int
    report: Callable[[Progress], None]

    def take(self, tuner: Tuner) -> list[TuneResult]:
        """Tune with `tuner`, whose budget and report are replaced by the turn's.

        Returns:
            The result of each of the problems, in their order.
        """
        lead = self.problems[0]
        trials = min(tuner.tried(lead) + self.slice, self.budget.trials)
        budget = replace(self.budget, trials=trials)
        own = replace(tuner, budget=budget, report=self.report)
        results = tune(own, self.problems)
        results[0].tried = tuner.tried(lead)
        return results


class Crew(Protocol):
    """Devices, by kind, and processes that measure on them; devices of a kind are alike."""

    def devices(self) -> Mapping[str, int]:
        """Return how many devices there are of each kind now."""
        ...

    def submit(self, asked: Turn, /) -> Future[list[TuneResult]]:
        """Let a free device take the turn; the future fails if its process is lost."""
        ...


@dataclass
class Lot:
    """The problems of one kind of device: tasks and their results, in the same order.

    A task is a problem with all its epilogues; `results` are of the one that is searched,
    `followers` and `followed` the others' problems and results.
    """

    kind: str
    problems: Sequence[Problem]
    followers: Sequence[tuple[Problem, ...]]
    tasks: list[Task]
    results: list[TuneResult]
    followed: list[list[TuneResult]]
    lost: list[int]
    rests_until: list[float]

    @staticmethod
    def of(kind: str, calls: Mapping[Problem, int]) -> Lot:
        """Return a lot with the most operations per run first, so that they have their turn."""
        order = sorted(calls, key=lambda problem: -calls[problem] * problem.flops)
        groups = [tuple(group) for group in together(order)]
        groups.sort(key=lambda group: -sum(calls[one] * one.flops for one in group))
        count = len(groups)
        results = [[TuneResult(one, "not reached") for one in group] for group in groups]
        return Lot(
            kind,
            problems=[lead for lead, *_ in groups],
            followers=[group[1:] for group in groups],
            tasks=[Task(sum(calls[one] for one in group)) for group in groups],
            results=[lead for lead, *_ in results],
            followed=[others for _, *others in results],
            lost=[0] * count,
            rests_until=[0.0] * count,
        )

    @property
    def all_results(self) -> list[TuneResult]:
        """The result of every problem: each task's, the most operations per run first."""
        pairs = zip(self.results, self.followed, strict=True)
        return [result for lead, others in pairs for result in (lead, *others)]

    @property
    def waiting(self) -> bool:
        """Whether a task will go on after a rest."""
        return any(until > 0 for until in self.rests_until)


@dataclass
class Spread:
    """A tuning of `lots` by a crew; seconds of the budget are for all, trials per problem.

    `slice` is the number of trials of a turn. `report` is called with each trial of this process,
    `told` with each turn. While problems wait for their first turn, each has an equal part of the
    seconds, but as much as `FIRST_TRIALS` take: thousands of parts without a trial help none.
    """

    crew: Crew
    lots: Sequence[Lot]
    budget: Budget
    slice: int = FEW
    clock: Callable[[], float] = time.monotonic
    report: Callable[[Progress], None] = lambda _: None
    told: Callable[[str, TuneResult], None] = lambda _kind, _result: None
    _turns: dict[Future[list[TuneResult]], tuple[Lot, int]] = field(
        default_factory=dict, init=False
    )
    _took: Durations = field(default_factory=Durations, init=False)

    def run(self) -> None:
        """Give turns until every task is done, seconds are spent or Ctrl-C interrupts.

        The result is in the lots. A turn that is lost with its process is given again.
        """
        end = self.clock() + self.budget.seconds
        while True:
            self._fill(end)
            if not self._turns and (self.clock() >= end or not any(a.waiting for a in self.lots)):
                return
            ready = self._ended()
            for turn in ready:
                lot, index = self._turns.pop(turn)
                if self._take(lot, index, turn) == "interrupted":
                    return

    def _ended(self) -> Collection[Future[list[TuneResult]]]:
        """Return the turns that ended, after at most `LOOK` seconds."""
        if not self._turns:
            time.sleep(LOOK)
            return ()
        return wait(self._turns, timeout=LOOK, return_when=FIRST_COMPLETED).done

    def _fill(self, end: float) -> None:
        """Give every free device a turn."""
        devices = self.crew.devices()
        for lot in self.lots:
            self._wake(lot)
            busy = sum(task.busy for task in lot.tasks)
            for _ in range(devices.get(lot.kind, 0) - busy):
                left, index = end - self.clock(), choose(lot.tasks)
                if left <= 0 or index is None:
                    break
                least = FIRST_TRIALS * (self._took.expected or TRIAL_S)
                self._submit(lot, index, _share(lot, left, devices[lot.kind], least))

    def _wake(self, lot: Lot) -> None:
        for index, until in enumerate(lot.rests_until):
            if 0 < until <= self.clock():
                lot.rests_until[index], lot.tasks[index].busy = 0.0, False

    def _submit(self, lot: Lot, index: int, seconds: float) -> None:
        budget = replace(self.budget, seconds=seconds)

        def report(progress: Progress) -> None:
            count, trials = len(lot.tasks), self.budget.trials
            self.report(replace(progress, index=index, count=count, trials=trials))

        lot.tasks[index].busy = True
        problems = (lot.problems[index], *lot.followers[index])
        turn = Turn(lot.kind, problems, budget, self.slice, report)
        self._turns[self.crew.submit(turn)] = lot, index

    def _take(self, lot: Lot, index: int, turn: Future[list[TuneResult]]) -> str:
        """Take in the result of a turn; return a problem's status, "interrupted" if any is."""
        task = lot.tasks[index]
        task.busy = False
        error = turn.exception()
        if error is not None:
            return self._lose(lot, index, error)
        lot.lost[index] = 0
        result, *others = turn.result()
        if result.trials:
            self._took.note(result.seconds / result.trials)
        task.best.append(result.best.ms if result.best else inf)
        is_exhausted = result.trials == 0 and result.status != "not reached"
        task.done = is_exhausted or result.tried >= self.budget.trials
        lot.results[index] = _together(lot.results[index], result)
        followed = zip(lot.followed[index], others, strict=True)
        lot.followed[index] = [_together(before, other) for before, other in followed]
        for one in (result, *others):
            self.told(lot.kind, one)
        statuses = {one.status for one in (result, *others)}
        return "interrupted" if "interrupted" in statuses else result.status

    def _lose(self, lot: Lot, index: int, error: BaseException) -> str:
        lot.lost[index] += 1
        task, result = lot.tasks[index], lot.results[index]
        task.done = lot.lost[index] >= LOST
        if not task.done:
            task.busy = True
            lot.rests_until[index] = self.clock() + 2.0 ** (lot.lost[index] - 1)
        result.reason = f"{lot.lost[index]} turns lost in a row: {type(error).__name__}: {error}"
        if task.done and not result.trials:
            result.status = "no variant"
        return result.status


@dataclass(frozen=True)
class Alone:
    """A crew of this process and one device."""

    kind: str
    tuner: Tuner

    def devices(self) -> Mapping[str, int]:
        """Return the one device."""
        return {self.kind: 1}

    def submit(self, asked: Turn, /) -> Future[list[TuneResult]]:
        """Tune at once."""
        taken: Future[list[TuneResult]] = Future()
        taken.set_result(asked.take(self.tuner))
        return taken


def tune_network(tuner: Tuner, calls: Mapping[Problem, int]) -> list[TuneResult]:
    """Tune the problems that a network asks for `calls` times per run, on one device.

    Returns one result per problem, those with the most operations per run first, each with its
    other epilogues after it. Trials count per problem and over all runs, seconds over all; a run
    that was stopped goes on where it ended.
    """
    lot = Lot.of("", calls)
    for result in lot.all_results:
        result.best = tuner.incumbent(result.problem)
    Spread(
        Alone(lot.kind, tuner),
        [lot],
        tuner.budget,
        clock=tuner.clock,
        report=tuner.report,
    ).run()
    return lot.all_results


def _share(lot: Lot, left: float, devices: int, least: float) -> float:
    """Return the seconds of the next turn, at most those that are left.

    Each task that waits for its first turn keeps its part, if that is at least `least` seconds.
    """
    first = sum(not (task.best or task.done or task.busy) for task in lot.tasks)
    return min(max(left * devices / first, least), left) if first > devices else left


def _together(before: TuneResult, turn: TuneResult) -> TuneResult:
    """Return the result of all turns of a problem."""
    goes_on = before.trials and turn.status in ("already done", "not reached")
    return TuneResult(
        turn.problem,
        before.status if goes_on else turn.status,
        turn.best,
        before.outcomes + turn.outcomes,
        before.seconds + turn.seconds,
        before.reason or turn.reason,
        turn.tried,
        before.notice or turn.notice,
        before.skipped | turn.skipped,
    )
