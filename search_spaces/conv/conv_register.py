"""What is worth trying for `conv_register`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.conv.conv_register_plan import even_cuts, largest, sharing
from oclgen.families.conv.lanes import VECS, vector_widths
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_register`; none on GPUs."""
    if limits.kind == "gpu":
        return {}
    part = largest(problem)
    return {
        # images share weights, which pays where a row has few results
        "images": sharing(problem),
        "item_x": even_cuts(part.cols.results, limits),
        "vec": vector_widths(part.channels, limits),
        "vecs": VECS,
        "unroll": (1, 2),
        "taps_outer": BOTH,
        # weights that outgrow the second cache want positions fastest, large images channels
        "channels_fastest": BOTH,
    }
