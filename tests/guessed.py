"""Every family's variants for an untuned problem, in the order of preference."""

from __future__ import annotations

from collections.abc import Iterator

from oclgen.families import preferred, valid_configs
from oclgen.limits import Limits
from oclgen.problem import Problem
from oclgen.variant import Variant


def valid_guesses(problem: Problem, limits: Limits) -> Iterator[Variant]:
    """Yield variants that can serve an untuned problem, best guess first.

    They are the `valid_configs` of the `preferred` families, one family after the other.
    """
    for family in preferred(problem, limits):
        for config in valid_configs(family, problem, limits):
            yield Variant(family.NAME, config)
