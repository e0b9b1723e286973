"""What is worth trying for `attention_mma`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.limits import Limits
from oclgen.problem import AttentionProblem
from search_spaces.values import BOTH, Values


def values(problem: AttentionProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `attention_mma`.

    None but the default where the device showed no matrix instruction.
    """
    units = tuple(sorted({"mma", "wgmma"} & limits.instructions))
    if not units:
        return {}
    return {
        # a fragment of the other side is read once for all blocks_m, and costs as much as a product
        "warps": (2, 4, 8),
        "blocks_m": (1, 2),
        "tile_n": (16, 32, 64, 96, 128),
        "stages": (1, 2),
        "keep": BOTH,
        "unit": units,
        # sums of wide rows fill the registers of one warp
        "split_d": (1, 2, 4),
    }
