"""What is worth trying for `winograd_fused`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_fused`; none on CPUs."""
    del problem
    if limits.kind == "cpu":
        return {}
    return {
        # tiles of 6 have 64 points: their blocks are too small to share anything
        "out_tile": (2, 4),
        "tile_t": (16, 32, 64),
        "tile_k": (16, 32, 64),
        "tile_c": (2, 4, 8),
        "item_t": (4, 8, 16),
        "item_k": (4, 8),
        "vec": (2, 4),
        # U is the same for every block of tiles: the cache may serve it as fast
        "stage_u": BOTH,
        "pad_v": (0, 4),
        "pad_u": (0, 4),
        "pad_m": (0, 1),
        "pass_k": (1, 2, 4),
    }
