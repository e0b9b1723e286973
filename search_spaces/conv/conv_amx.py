"""What is worth trying for `conv_amx`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.conv.conv_amx import MOST_LOOPS
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter.

    None but the default where the device did not show the instruction.
    """
    if PRODUCTS[problem.dtype] not in limits.instructions:
        return {}
    return {
        # 2 x 2 tiles of sums load least; 1 x 3 fit channels that are three tiles
        "strips": (1, 2, 3),
        "vecs": (1, 2, 3),
        # weights stay in the nearest cache while a work-item goes through rows
        "loop_m": tuple(1 << n for n in range(MOST_LOOPS.bit_length())),
        # weights that outgrow the second cache want positions fastest, large images channels
        "channels_fastest": BOTH,
    }
