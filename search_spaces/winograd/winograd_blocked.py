"""What is worth trying for `winograd_blocked`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.winograd.winograd_geometry import geometry
from oclgen.families.winograd.winograd_products import best_tilings
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_blocked`; none on GPUs."""
    if limits.kind == "gpu":
        return {}
    width, units = limits.native_float_width, limits.compute_units
    tilings = best_tilings(problem)
    sizes = geometry(problem, *(tilings[-1] if tilings else (2,)))
    rows = sizes.batch * sizes.tiles_h
    return {
        # 6 multiplies least, but its transforms cost more and its error is three times that of 4
        "out_tile": tuple(dict.fromkeys(one.out_tile for one in tilings)),
        # of a filter of seven rows and more blocks multiply less than the whole
        "taps": tuple(dict.fromkeys(one.taps for one in tilings)),
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
