"""Tunes the problems of one network: trials go where its time goes.

Which problem is next, `search_spaces.scheduler` says; how one is tuned, `search_spaces.tune`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from oclgen.problem import Problem
from search_spaces.progress import Progress, TuneResult
from search_spaces.scheduler import Task, choose
from search_spaces.tune import Tuner, tune

SLICE = 8
"""Trials of one turn: enough for every family that serves a problem to show a first time."""


def tune_network(tuner: Tuner, calls: Mapping[Problem, int]) -> list[TuneResult]:
    """Tune the problems that a network asks for `calls` times per run, most promising first.

    Returns one result per problem, those with the most operations per run first: they have their
    turn even if seconds are short. Trials count per problem and over all runs, seconds over all; a
    run that was stopped goes on where it ended.
    """
    end = tuner.clock() + tuner.budget.seconds
    problems = sorted(calls, key=lambda problem: -calls[problem] * problem.flops)
    tasks = [Task(calls[problem]) for problem in problems]
    results = [TuneResult(problem, "not reached", tuner.incumbent(problem)) for problem in problems]
    while (index := choose(tasks)) is not None and tuner.clock() < end:
        turn = _turn(tuner, problems[index], index, len(problems), end - tuner.clock())
        tasks[index].best.append(turn.best.ms if turn.best else inf)
        tasks[index].done = _is_done(tuner, turn)
        results[index] = _together(results[index], turn)
        if turn.status == "interrupted":
            break
    return results


def _turn(tuner: Tuner, problem: Problem, index: int, count: int, seconds: float) -> TuneResult:
    """Give one problem its next trials."""

    def report(progress: Progress) -> None:
        tuner.report(replace(progress, index=index, count=count, trials=tuner.budget.trials))

    trials = min(tuner.tried(problem) + SLICE, tuner.budget.trials)
    budget = replace(tuner.budget, trials=trials, seconds=seconds)
    return tune(replace(tuner, budget=budget, report=report), [problem])[0]


def _is_done(tuner: Tuner, turn: TuneResult) -> bool:
    """Say whether a problem has had its trials, or has nothing left to try."""
    return turn.trials == 0 or tuner.tried(turn.problem) >= tuner.budget.trials


def _together(before: TuneResult, turn: TuneResult) -> TuneResult:
    """Return what came of all turns of a problem."""
    status = before.status if turn.status == "already done" and before.trials else turn.status
    return TuneResult(
        turn.problem,
        status,
        turn.best,
        before.outcomes + turn.outcomes,
        before.seconds + turn.seconds,
        before.reason or turn.reason,
    )
