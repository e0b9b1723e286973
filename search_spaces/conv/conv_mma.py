"""What is worth trying for `conv_mma`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.conv.conv_mma import NARROW, splits
from oclgen.families.conv.conv_mma_operands import product
from oclgen.limits import Limits
from oclgen.problem import DTYPES, ConvProblem
from search_spaces.values import Value


def values(problem: ConvProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `conv_mma`.

    None but the default where the device showed no matrix instruction.
    """
    units = tuple(sorted({"mma", "wgmma"} & limits.instructions))
    if not units:
        return {}
    whole, wide = product(problem), limits.declared_local_bytes > 0
    return {
        "unit": units,
        "tile_m": _tiles(whole.m, 64, 128, *((256,) if wide else ())),
        "tile_n": _tiles(whole.n, 64, 128, 192, 256) if whole.n > NARROW else (NARROW, 64),
        # of a gradient of weights rows lie across k, and a longer step has fewer barriers
        "tile_k": tuple(width // DTYPES[problem.dtype] for width in (32, 64, 128)),
        "warps_m": (1, 2, 4, 8),
        "warps_n": (1, 2, 4),
        "stages": (2, 3, 4, 5, 6, 8) if wide else (2, 3, 4, 5, 6),
        "pending": (0, 1) if "wgmma" in units else (0,),
        "split_k": splits(problem, limits),
        "group_m": (1, 4, 16),
    }


def _tiles(extent: int, *sizes: int) -> tuple[int, ...]:
    """Return the sizes up to the first that covers the extent."""
    count = sum(size < extent for size in sizes) + 1
    return sizes[:count]
