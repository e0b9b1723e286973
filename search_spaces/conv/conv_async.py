"""What is worth trying for `conv_async`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.conv.conv_gemm_operands import along_k
from oclgen.families.conv.conv_gemm_tiles import product_of, splits_of, tap_orders
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_async`.

    None but the default where the device did not show `cp.async`.
    """
    if "cp_async" not in limits.instructions:
        return {}
    m, n, _ = product_of(problem)
    return {
        "tile_m": tuple(tile for tile in (32, 64, 128) if tile == 32 or tile < 2 * m),
        # 96 cuts images of 14 x 14 and 7 x 7 into what 132 compute units share evenly
        "tile_n": tuple(tile for tile in (64, 96, 128, 192, 256) if tile == 64 or tile < 2 * n),
        "tile_k": (8, 16),
        "local_m": (4, 8, 16),
        "local_n": (8, 16),
        "warp_m": (4, 8),
        # only copies along k meet bank conflicts
        "pad": (4,) if along_k(problem) else (0,),
        "stages": (2, 3, 4),
        "taps_outer": tap_orders(problem),
        "split_k": splits_of(problem, limits, 64, 128),
        "group_m": (2, 8),
        "order": ("m", "n"),
    }
