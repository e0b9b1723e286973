"""What is worth trying for `attention_lanes`, and why.

It says neither what is valid nor where to begin: that is the family's, `why_not` and `guesses`.
"""

from __future__ import annotations

from oclgen.limits import Limits
from oclgen.problem import AttentionProblem
from search_spaces.values import Values


def values(problem: AttentionProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `attention_lanes`.

    None but the default where the device showed no such instructions.
    """
    if "cp_async" not in limits.instructions:
        return {}
    return {
        "work_items": (64, 128, 256),
        # rows of a work-item share what it reads of the other side, lanes share a row's registers
        "lanes": (1, 2, 4, 8),
        "rows": (1, 2, 4),
        "chunk": (1, 2, 4, 8),
        "tile_n": (8, 16, 32),
    }
