"""What is worth trying for `conv_mma`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.conv import conv_mma
from oclgen.families.conv.conv_mma_operands import product
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import DTYPES, ConvProblem
from search_spaces.values import Value

MOST_TILES = 32
"""Tiles of 64 x 64 per compute unit up to which the reduction is worth splitting."""
WANTED = {"fwd": 1, "bwd_data": 1, "bwd_weights": 4}
"""Work-groups per compute unit to begin with: planes are small where weights are the result."""
MIN_SLICE = 256
"""Steps of the reduction below which no plane of its own pays."""
SEEDS = 12
SHAPES = (
    ("wgmma", 128, 128, 64, 4, 1, 2, 0), ("wgmma", 128, 128, 32, 4, 1, 5, 1),
    ("wgmma", 128, 64, 64, 4, 1, 3, 0), ("wgmma", 64, 128, 64, 4, 1, 3, 0),
    ("wgmma", 64, 256, 32, 4, 1, 4, 1), ("wgmma", 128, 64, 32, 4, 1, 6, 1),
    ("wgmma", 64, 64, 64, 4, 1, 5, 1), ("wgmma", 128, 192, 32, 4, 1, 4, 1),
    ("mma", 128, 128, 64, 2, 2, 2, 0), ("mma", 128, 64, 64, 2, 2, 3, 0),
    ("mma", 64, 128, 64, 2, 2, 3, 0), ("mma", 64, 64, 64, 2, 2, 4, 0),
    ("mma", 64, 64, 32, 2, 2, 4, 0), ("wgmma", 64, 64, 128, 4, 1, 2, 0),
    ("mma", 64, 64, 128, 2, 2, 2, 0),
)  # fmt: skip
"""unit, tile_m, tile_n, bytes of k, warps_m, warps_n, stages, pending: 48 KiB of local memory hold
two or three steps of 64 bytes, or twice as many of 32."""


def values(problem: ConvProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `conv_mma`.

    None but the default where the device showed no matrix instruction.
    """
    units = tuple(sorted({"mma", "wgmma"} & limits.instructions))
    if not units:
        return {}
    whole = product(problem)
    return {
        "unit": units,
        "tile_m": _tiles(whole.m, 64, 128),
        "tile_n": _tiles(whole.n, 64, 128, 192, 256),
        # of a gradient of weights rows lie across k, and a longer step has fewer barriers
        "tile_k": tuple(width // DTYPES[problem.dtype] for width in (32, 64, 128)),
        "warps_m": (1, 2, 4, 8),
        "warps_n": (1, 2, 4),
        "stages": (2, 3, 4, 5, 6),
        "pending": (0, 1) if "wgmma" in units else (0,),
        "split_k": _splits(problem, limits),
        "group_m": (1, 4, 16),
    }


def seeds(problem: ConvProblem, limits: Limits) -> list[conv_mma.Config]:
    """Return start points for `conv_mma`, best guess first; some may not be valid."""
    whole, size = product(problem), DTYPES[problem.dtype]
    most = max(_splits(problem, limits))
    found = []
    for unit, tile_m, tile_n, width, warps_m, warps_n, stages, pending in SHAPES:
        if tile_m > max(whole.m, 64) or tile_n > max(whole.n, 64):
            continue
        tiles = ceil_div(whole.m, tile_m) * ceil_div(whole.n, tile_n)
        groups = ceil_div(WANTED[problem.direction] * limits.compute_units, tiles)
        split = min(1 << (groups - 1).bit_length(), most)
        found.append(
            conv_mma.Config(
                unit=unit, tile_m=tile_m, tile_n=tile_n, tile_k=width // size, warps_m=warps_m,
                warps_n=warps_n, stages=stages, pending=pending, split_k=split, group_m=4,
            )
        )  # fmt: skip
    fits = [config for config in found if config.why_not(problem, limits) is None]
    return fits[:SEEDS]


def _tiles(extent: int, *sizes: int) -> tuple[int, ...]:
    """Return the sizes up to the first that covers the extent."""
    count = sum(size < extent for size in sizes) + 1
    return sizes[:count]


def _splits(problem: ConvProblem, limits: Limits) -> tuple[int, ...]:
    """Return powers of two up to what fills the device several times with its smallest tiles."""
    whole = product(problem)
    tiles = ceil_div(whole.m, 64) * ceil_div(whole.n, 64)
    most = min(MOST_TILES * limits.compute_units // tiles, whole.k // MIN_SLICE, 512)
    return tuple(1 << place for place in range(max(most, 1).bit_length()))
