"""What is worth trying for `conv_lines_weights`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.conv.conv_lines_weights import guesses
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_lines_weights`."""
    found = guesses(problem, limits)
    if not found:
        return {}
    return {
        "item_k": tuple(k for k in range(1, 9) if k <= problem.out_channels),
        "item_c": tuple(c for c in range(1, 9) if c <= problem.in_channels),
        "vec": tuple(vec for vec in (16, 8, 4) if vec <= limits.native_float_width),
        # few blocks keep sums in the nearest cache, many read x and y less often
        "loop_k": tuple(sorted({1, 4, 16, *(one.loop_k for one in found)})),
        "loop_c": tuple(sorted({1, 4, 16, *(one.loop_c for one in found)})),
        # short tiles stay in the nearest cache, long ones load and store sums less often
        "tile": tuple(sorted({128, 256, 512, 1024, *(one.tile for one in found)})),
        "split": tuple(s for s in (1, 2, 4, 8, 16, 32) if s <= problem.batch),
    }
