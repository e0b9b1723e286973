"""What is worth trying for `conv_async`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from oclgen.families.conv import conv_async
from oclgen.families.conv.conv_gemm_operands import along_k
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.conv.conv_gemm import SEEDS, Shape, fitting, product_of, splits_of, tap_orders
from search_spaces.values import Values

SHAPES: tuple[Shape, ...] = (
    (128, 96, 8, 16, 8, 3), (128, 128, 8, 16, 8, 3), (128, 128, 16, 16, 16, 2),
    (64, 96, 8, 8, 8, 3), (64, 128, 8, 8, 8, 4), (64, 256, 8, 8, 16, 3), (128, 64, 8, 16, 8, 3),
    (64, 64, 8, 8, 8, 4),
)  # fmt: skip
"""What to begin with: 64 to 128 accumulators."""


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


def seeds(problem: ConvProblem, limits: Limits) -> list[conv_async.Config]:
    """Return start points for `conv_async`, best guess first; some may not be valid.

    They are ranked as those of `conv_gemm`.
    """
    if "cp_async" not in limits.instructions:
        return []
    pad = 4 if along_k(problem) else 0
    return [
        conv_async.Config(
            tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, local_m=local_m, local_n=local_n,
            warp_m=4, pad=pad, stages=stages, taps_outer=tap_orders(problem)[0], split_k=split_k,
            group_m=8, order="m",
        )
        for (tile_m, tile_n, tile_k, local_m, local_n, stages), split_k in fitting(
            problem, limits, SHAPES
        )[:SEEDS]
    ]  # fmt: skip
