"""What is worth trying for `winograd_staged`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from oclgen.families.winograd import winograd_staged
from oclgen.families.winograd.winograd_common import geometry
from oclgen.families.winograd.winograd_staged import gemm_problem
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import Values
from search_spaces.winograd.products import SEEDED_GEMMS, out_tiles, products, seeded_products


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


def seeds(problem: ConvProblem, limits: Limits) -> list[winograd_staged.Config]:
    """Return start points for `winograd_staged`, best guess first; some may not be valid."""
    on_cpu = limits.kind == "cpu"
    return [
        winograd_staged.Config(
            out_tile=out_tile,
            vec_t=limits.native_float_width if on_cpu else 1,
            local_t=1 if on_cpu else 128,
            vec_k=1,
            local_k=1 if on_cpu else 32,
            gemm=texts[rank],
        )
        for rank in range(SEEDED_GEMMS)
        for out_tile in out_tiles(problem)
        if rank < len(texts := seeded_products(gemm_problem(geometry(problem, out_tile)), limits))
    ]
