"""What is worth trying for `winograd_fused`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from oclgen.families.winograd import winograd_fused
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


def seeds(problem: ConvProblem, limits: Limits) -> list[winograd_fused.Config]:
    """Return start points for `winograd_fused`, best guess first; some may not be valid.

    Register tiles of 8 x 8 read 16 words of local memory for 64 mads; 36 points leave room for
    blocks of 32 x 32 and steps of 4 channels in 48 KiB.
    """
    del problem
    if limits.kind == "cpu":
        return []
    shapes = (
        (4, 32, 32, 4, 8, 8, 2), (4, 32, 16, 4, 8, 4, 1), (4, 32, 32, 4, 16, 8, 2),
        (2, 32, 32, 8, 8, 8, 4), (2, 32, 64, 4, 8, 8, 2), (2, 64, 32, 4, 8, 8, 2),
    )  # fmt: skip
    return [
        winograd_fused.Config(
            out_tile=out_tile, tile_t=tile_t, tile_k=tile_k, tile_c=tile_c, item_t=item_t,
            item_k=item_k, vec=4, stage_u=stage_u, pad_v=0, pad_u=0, pad_m=1, pass_k=pass_k,
        )
        for out_tile, tile_t, tile_k, tile_c, item_t, item_k, pass_k in shapes
        for stage_u in (True, False)
    ]  # fmt: skip
