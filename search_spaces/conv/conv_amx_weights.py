"""What is worth trying for `conv_amx_weights`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.conv.conv_amx_weights import guesses, spreads
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
    guessed = guesses(problem, limits)
    return {
        # 2 x 2 tiles of sums load least; 1 x 3 fit an odd number of taps
        "item_m": (16, 32, 48),
        "item_n": (16, 32, 48),
        # more channels and columns read the other operand less often, and leave cores less to share
        "loop_m": tuple(sorted({1, 2, 4, *(one.loop_m for one in guessed)})),
        "inputs": tuple(sorted({1, 2, 4, *(one.inputs for one in guessed)})),
        # operands of few steps stay near for all taps, sums of many are moved less often
        "steps": (16, 32, 64, 128),
        "rows_together": BOTH if problem.kernel_h > 1 else (True,),
        # it copies elements once for each tap of a row
        "spread": BOTH if spreads(problem) else (False,),
        # more planes balance the units, and have to be added
        "split": (1, 2, 4, 8, 16, 32),
    }
