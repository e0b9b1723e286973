"""What is worth trying for `winograd_staged`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.winograd.winograd_geometry import geometry, slices_of
from oclgen.families.winograd.winograd_products import best_tilings
from oclgen.families.winograd.winograd_staged import gemm_problem
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import Values
from search_spaces.winograd.products import products

OF_PRODUCTS = 3
"""Tilings, the best ones, whose products are tried."""


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_staged`."""
    tilings = best_tilings(problem)
    gemms = [
        text
        for tiling in tilings[:OF_PRODUCTS]
        for geo in [geometry(problem, *tiling)]
        for text in products(gemm_problem(geo), limits, slices_of(geo))
    ]
    if limits.kind == "cpu":
        width = limits.native_float_width
        return {
            "out_tile": tuple(dict.fromkeys(one.out_tile for one in tilings)),
            "taps": tuple(dict.fromkeys(one.taps for one in tilings)),
            "vec_t": (1, width),
            "local_t": (1, 4),
            "vec_k": (1, width),
            "local_k": (1,),
            "gemm": tuple(dict.fromkeys(gemms)),
        }
    return {
        "out_tile": tuple(dict.fromkeys(one.out_tile for one in tilings)),
        # blocks of a large filter multiply less than the whole
        "taps": tuple(dict.fromkeys(one.taps for one in tilings)),
        # neighbouring work-items have neighbouring tiles, so that every point is read in one go
        "vec_t": (1, 2),
        "local_t": (32, 64, 128, 256),
        "vec_k": (1,),
        "local_k": (32, 64),
        "gemm": tuple(dict.fromkeys(gemms)),
    }
