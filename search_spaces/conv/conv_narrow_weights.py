"""What is worth trying for `conv_narrow_weights`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.conv.conv_narrow_weights import sizes_tried
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter: those of guesses; one config on CPUs."""
    return {} if limits.kind == "cpu" else sizes_tried(problem, limits)
