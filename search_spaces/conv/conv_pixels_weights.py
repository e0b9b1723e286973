"""What is worth trying for `conv_pixels_weights`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.conv.conv_pixels_weights import guesses, items
from oclgen.families.conv.correlation import strung_windows
from oclgen.families.conv.lanes import VECS, vector_widths
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_pixels_weights`."""
    if limits.kind == "gpu":
        return {}
    part = strung_windows(problem)
    found = guesses(problem, limits)
    return {
        "item_k": items(problem, limits),
        "vec": vector_widths(part.depth, limits),
        "vecs": VECS,
        # few blocks keep sums in the nearest cache, many read x less often
        "loop_k": tuple(sorted({1, 4, 16, 64, *(one.loop_k for one in found)})),
        # short tiles stay in the nearest cache, long ones load and store sums less often
        "tile": tuple(sorted({32, 64, 128, 256, *(one.tile for one in found)})),
        "split": tuple(s for s in (1, 2, 4, 8, 16, 32) if s <= part.batch * part.rows.results),
    }
