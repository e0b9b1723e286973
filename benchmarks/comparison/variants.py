"""Finds the variant of ours that a benchmark times: what the records know, or a search's best.

It stores no result; `oclgen tune` fills the database.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from oclgen.families import families_for
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import BuildError, Device, LaunchError, PreparedPlan
from oclgen.problem import Problem
from oclgen.variant import Variant
from search_spaces.contest import contest
from search_spaces.search import Search
from search_spaces.space import seeds_of, space_of
from tuned_db.choosing.chooser import Chooser


class Sourced(NamedTuple):
    """A variant, and where the choice of it comes from: a rung, or the search."""

    variant: Variant
    source: str


def known(chooser: Chooser, device: Device, problem: Problem, buffers: Any) -> PreparedVariant:
    """Return what dispatch would run: the best record whose variant builds and runs here.

    Args:
        chooser: of the device.
        device: an opened one.
        problem: what is computed.
        buffers: `pyopencl.Buffer`s by role.

    Raises:
        NoVariantError: nothing computes the problem on this device.
    """
    choice = chooser.choose(problem)
    while True:
        chosen = Sourced(choice.variant, choice.source)
        try:
            prepared = ready(device, problem, chosen, buffers)
            prepared.plan.run()
            return prepared
        except (BuildError, LaunchError):
            choice = chooser.reject(choice)


class PreparedVariant(NamedTuple):
    """A variant whose plan is built and has its buffers."""

    chosen: Sourced
    plan: PreparedPlan


def ready(device: Device, problem: Problem, chosen: Sourced, buffers: Any) -> PreparedVariant:
    """Return a variant prepared to compute on `buffers`, by role.

    Args:
        device: an opened one.
        problem: what is computed.
        chosen: the variant and where it comes from.
        buffers: `pyopencl.Buffer`s by role.

    Raises:
        BuildError: the compiler refused a program.
        LaunchError: there is no room for a workspace.
    """
    plan = chosen.variant.plan(problem)
    return PreparedVariant(chosen, device.prepare(plan, buffers))


def searched(bench: Bench, trials: int, families: tuple[str, ...]) -> Sourced:
    """Return the fastest right variant of `trials`; `families` are all that serve if there is none.

    Args:
        bench: of the problem on its device.
        trials: variants to measure.
        families: the kernel families to try; all that serve if empty.

    Raises:
        RuntimeError: no variant works; the message has the last one's reason.
    """
    problem, limits = bench.problem, bench.device.limits
    names = [f.NAME for f in families_for(problem) if not families or f.NAME in families]
    searches = {
        name: Search(space_of(name, problem, limits), seeds_of(name, problem, limits))
        for name in names
    }
    best_ms, best, reason = inf, None, "no family serves it"
    for name in contest(searches, trials, lambda: inf):
        variant = Variant(name, searches[name].ask())
        measurement = bench.measure(variant.plan(problem), best_ms)
        searches[name].tell(variant.config, measurement.ms)
        reason = measurement.reason or reason
        if measurement.ms < best_ms:
            best_ms, best = measurement.ms, Sourced(variant, f"{trials} trials")
    if best is None:
        raise RuntimeError(f"none of {trials} variants of {problem.key()} works: {reason[:200]}")
    return best
