"""What is worth trying for `attention_rows`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.limits import Limits
from oclgen.problem import AttentionProblem
from search_spaces.values import Values, up_to


def values(problem: AttentionProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `attention_rows`."""
    return {
        # rows share what they read, and have sums of their own in registers
        "rows": up_to(problem.queries * problem.shared_by, 1, 2, 3, 4),
        "vec": (4, 8, 16),
        # what a core asks for itself ends with each page of memory
        "ahead": (0,) if problem.is_gradient else (0, 16, 32, 64),
    }
