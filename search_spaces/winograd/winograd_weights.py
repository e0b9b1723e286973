"""What is worth trying for `winograd_weights`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.winograd.winograd_geometry import geometry
from oclgen.families.winograd.winograd_products import best_tilings
from oclgen.families.winograd.winograd_weights import SLICES, full_slice, gemm_problem, slice_of
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import Values
from search_spaces.winograd.products import products


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_weights`; none on CPUs."""
    if limits.kind == "cpu":
        return {}
    tilings = best_tilings(problem)
    geometries = [geometry(problem, *tiling) for tiling in tilings]
    gemms = [
        text
        for geo in geometries
        for text in products(gemm_problem(geo, full_slice(geo, limits)), limits)
    ]
    return {
        "out_tile": tuple(dict.fromkeys(one.out_tile for one in tilings)),
        # blocks of a large filter multiply less than the whole
        "taps": tuple(dict.fromkeys(one.taps for one in tilings)),
        # more slices fill the device, fewer leave less to sum
        "slice_t": tuple(slice_of(geo, count) for geo in geometries for count in SLICES),
        "local_t": (32, 64, 128, 256),
        "local_c": (32, 64),
        "gemm": tuple(dict.fromkeys(gemms)),
    }
