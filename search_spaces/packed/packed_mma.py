"""What is worth trying for `packed_mma`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.packed.packed_mma_tiles import ROWS
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.plan import ceil_div
from search_spaces.values import Values, up_to


def values(problem: PackedProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `packed_mma`."""
    return {
        "blocks_m": up_to(ceil_div(problem.m, ROWS), 1, 2, 4),
        # x is read and cut into pieces once for all outputs of a group
        "blocks_n": (1, 2, 4),
        # a tile is what one copy after the other brings: longer rows, or more warps that fit
        "tile_k": (64, 128, 256, 512, 1024),
        "warps": (2, 4, 8, 16),
        # 1: straight to registers, where lanes have eight neighbouring bytes each
        "stages": (1, 2, 3),
        "unroll": (1, 2),
        # a group for each row of tiles, or as many as compute units have at a time
        "groups": (0, limits.compute_units, 2 * limits.compute_units),
        # few outputs leave compute units without work-groups, a long k has some for several
        "split_k": (1, 2, 4, 8),
        # warps that share a bulk copy: the longer, the fewer copies there are
        "bulk": (0, 2, 4, 8, 16),
    }
