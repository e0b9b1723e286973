"""What is worth trying for `conv_pairs`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.conv.conv_register_plan import even_cuts, largest, sharing
from oclgen.families.conv.lanes import VECS
from oclgen.families.gemm.gemm_pairs import INSTRUCTION
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter.

    None but the default where the device did not show the instruction.
    """
    if INSTRUCTION not in limits.instructions:
        return {}
    return {
        # images share weights, which pays where a row has few results
        "images": sharing(problem),
        "item_x": even_cuts(largest(problem).cols.results, limits),
        "vecs": VECS,
        "unroll": (1, 2),
        "taps_outer": BOTH,
        # weights that outgrow the second cache want positions fastest, large images channels
        "channels_fastest": BOTH,
    }
