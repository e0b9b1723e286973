"""One search serves a problem with all its epilogues: only its best variants are measured again.

Bias, activation and residual are added to finished sums. They change a time a little, and seldom
change which variant is the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from oclgen.measurement import Measurement
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.variant import Variant
from search_spaces.duel import duel
from search_spaces.progress import Best, OutOfTimeError, TuneResult

if TYPE_CHECKING:
    from search_spaces.tune import Tuner

FINALISTS = 2
"""Variants of the searched problem that meet on one with another epilogue, beside its winner."""


def core(problem: Problem) -> Problem:
    """Return the problem without bias, activation and residual."""
    if isinstance(problem, GemmProblem):
        return replace(problem, bias="none", activation="none", residual=False)
    if isinstance(problem, ConvProblem):
        return replace(problem, bias=False, activation="none", residual=False)
    return problem


def together(problems: Iterable[Problem]) -> list[list[Problem]]:
    """Return the problems in lists that differ in their epilogue alone, in the order given."""
    groups: dict[Problem, list[Problem]] = {}
    for problem in dict.fromkeys(problems):
        groups.setdefault(core(problem), []).append(problem)
    return list(groups.values())


def follow(tuner: Tuner, lead: TuneResult, problem: Problem, end: float) -> TuneResult:
    """Let the best variants of `lead` and the problem's own winner meet on `problem`.

    Args:
        tuner: measures and keeps.
        lead: the result of the same problem with another epilogue.
        problem: is served by its winner where that is faster.
        end: the tuner's clock at which all is to be over.

    Returns:
        The result of the tuning; "already done" where the lead's winner was measured on `problem`
        before.
    """
    began = tuner.clock()
    result = TuneResult(problem, "not reached", tuner.incumbent(problem))
    contenders = _contenders(tuner, lead, problem)
    tried = set(tuner.results.measured(problem))
    if contenders and contenders[0].variant in tried:
        result.status = "already done"
    elif contenders and tuner.fits(len(contenders), end):
        _meet(tuner, result, contenders, tried, end)
    result.seconds = tuner.clock() - began
    return result


def _contenders(tuner: Tuner, lead: TuneResult, problem: Problem) -> list[Best]:
    """Return the lead's winner, its next best and the problem's own winner, each once."""
    if lead.best is None:
        return []
    known = tuner.results.measured(lead.problem)
    ranked = sorted((one for one in known if known[one] < inf), key=known.__getitem__)
    best = [lead.best.variant, *(one for one in ranked if one != lead.best.variant)]
    valid = [one for one in best if one.why_not(problem, tuner.limits) is None][:FINALISTS]
    own = tuner.incumbent(problem)
    variants = dict.fromkeys([*valid, own.variant] if valid and own else valid)
    return [Best(one, inf) for one in variants]


def _meet(
    tuner: Tuner, result: TuneResult, contenders: list[Best], tried: set[Variant], end: float
) -> None:
    """Measure the contenders in turns, keep what is new, and promote the fastest."""
    problem = result.problem

    def measure(one: Best) -> Measurement:
        measurement = tuner.measure(problem, one.variant, inf)
        if one.variant not in tried:
            tried.add(one.variant)
            tuner.results.record(problem, one.variant, measurement)
            result.outcomes[measurement.invalidity] += 1
            result.reason = result.reason or measurement.reason
        return measurement

    try:
        go_on = partial(tuner.fits, len(contenders), end)
        won = duel(contenders, measure, go_on, tuner.own_times)
        if won is not None:
            best, measurement = won
            tuner.results.promote(problem, best.variant, measurement)
        result.status = "no variant" if won is None else "tuned"
    except OutOfTimeError:
        result.status = "tuned" if result.trials else "not reached"
    except KeyboardInterrupt:
        result.status = "interrupted"
    result.best = tuner.incumbent(problem)
