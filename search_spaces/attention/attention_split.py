"""What is worth trying for `attention_split`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.limits import Limits
from oclgen.problem import AttentionProblem
from search_spaces.values import Values, up_to


def values(problem: AttentionProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `attention_split`."""
    return {
        "work_items": (64, 128, 256),
        # short slices fill the units, long ones leave little to join
        "slice": up_to(problem.keys, 16, 32, 64, 128, 256),
        "rows": up_to(problem.queries * problem.shared_by, 1, 2, 4, 8),
        # without a second launch, but the last work-group of some rows joins all their slices
        "counted": (False, True),
    }
