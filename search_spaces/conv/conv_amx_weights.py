"""What is worth trying for `conv_amx_weights`, and why."""
from __future__ import annotations
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    return {}
