"""What is worth trying for `winograd_staged`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.winograd.winograd_common import geometry
from oclgen.families.winograd.winograd_products import out_tiles
from oclgen.families.winograd.winograd_staged import gemm_problem
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import Values
from search_spaces.winograd.products import products


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_staged`."""
    gemms = [
        text
        for out_tile in (4, 2)
        for text in products(gemm_problem(geometry(problem, out_tile)), limits)
    ]
    if limits.kind == "cpu":
        width = limits.native_float_width
        return {
            "out_tile": (2, 4, 6),
            "vec_t": (1, width),
            "local_t": (1, 4),
            "vec_k": (1, width),
            "local_k": (1,),
            "gemm": tuple(dict.fromkeys(gemms)),
        }
    return {
        "out_tile": tuple(out_tiles(problem)),
        # neighbouring work-items have neighbouring tiles, so that every point is read in one go
        "vec_t": (1, 2),
        "local_t": (32, 64, 128, 256),
        "vec_k": (1,),
        "local_k": (32, 64),
        "gemm": tuple(dict.fromkeys(gemms)),
    }
