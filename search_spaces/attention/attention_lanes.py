"""What is worth trying for `attention_lanes`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.attention.attention_lanes import FOLDS, rows_of
from oclgen.limits import Limits
from oclgen.problem import AttentionProblem
from search_spaces.values import Values, up_to


def values(problem: AttentionProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `attention_lanes`."""
    wide = max(4, limits.native_float_width)
    folds = FOLDS if problem.direction == "fwd" and rows_of(problem) <= 16 else (1,)
    return {
        "vec": tuple(sorted({16, *(max(4, wide // fold) for fold in folds)})),
        # items of a row side by side, if rows alone do not fill a vector
        "fold": folds,
        # sums x vectors sums are in registers: 32 of them, or 16
        "vectors": (1, 2, 3, 4),
        "sums": (4, 6, 8, 12, 16, 24),
        # tiles and own rows share the first and second level of cache
        "tile": (16, 24, 32, 48, 64, 96),
        "blocks": up_to(rows_of(problem), 1, 2, 3, 4),
    }
