"""What is worth trying for `winograd_blocked`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Iterator

from oclgen.families.winograd import winograd_blocked
from oclgen.families.winograd.winograd_common import Geometry, geometry
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Values

REGISTERS = 28
"""Vectors of accumulators that leave room for operands in a file of 32."""
BLOCK = 16
"""Tiles that are enough for a block."""


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_blocked`; none on GPUs."""
    if limits.kind == "gpu":
        return {}
    width, units = limits.native_float_width, limits.compute_units
    rows = geometry(problem, 2).batch * geometry(problem, 2).tiles_h
    return {
        # 6 multiplies least, but its transforms cost more and its error is three times that of 4
        "out_tile": (2, 4, 6),
        # a block's V should stay in the second cache; whole images where they are small
        "tile_rows": tuple(r for r in (1, 2, 3, 4, 6, 8, 16) if r <= rows),
        # 7 and 14 divide the tiles of 14, 28, 56, ... pixels; the others fill the registers
        "item_t": (2, 4, 6, 7, 8, 12, 14, 16),
        "item_k": tuple(width * vectors for vectors in (1, 2, 3, 4)),
        "vec_k": (width,),
        "unroll_c": (1, 2, 4),
        # one per core wastes no cache; several even out what other work takes from a core
        "workers": tuple(dict.fromkeys((1, units, 2 * units, 4 * units))),
        # for images so small that their tiles do not make a block for every core
        "split_k": tuple(dict.fromkeys((1, units, 2 * units))),
        "filters_inside": BOTH,
    }


def seeds(problem: ConvProblem, limits: Limits) -> list[winograd_blocked.Config]:
    """Return start points for `winograd_blocked`, best guess first; some may not be valid."""
    if limits.kind == "gpu":
        return []
    return [seed for out_tile in (4, 2) for seed in _seeds(geometry(problem, out_tile), limits)]


def _seeds(geo: Geometry, limits: Limits) -> Iterator[winograd_blocked.Config]:
    """Yield blocks of some 16 tiles and of one row, with one and two vectors of filters.

    Fewer tiles read U more often than they use it; more of them push V out of the cache.
    """
    width, units = limits.native_float_width, limits.compute_units
    rows = geo.batch * geo.tiles_h
    usual = min(max(round(BLOCK / geo.tiles_w), 1), rows)
    # where all tiles make one block, the cores share the filters and transform their own once
    few = ceil_div(rows, usual) < 2 * units and rows * geo.tiles_w <= 4 * BLOCK
    for tile_rows in dict.fromkeys((rows if few else usual, usual, 1)):
        for vectors in (1, 2):
            yield winograd_blocked.Config(
                out_tile=geo.out_tile, tile_rows=tile_rows,
                item_t=_item_t(tile_rows * geo.tiles_w, REGISTERS // vectors),
                item_k=vectors * width, vec_k=width, unroll_c=1,
                workers=1 if few else units, split_k=units if few else 1,
                filters_inside=few,
            )  # fmt: skip


def _item_t(block: int, most: int) -> int:
    """Return the tried size that leaves the fewest tiles to a smaller register tile."""
    sizes = [size for size in (16, 14, 12, 8, 7, 6, 4, 2) if size <= most]
    return min(sizes, key=lambda size: (block % size > 0, block % size, -size))
