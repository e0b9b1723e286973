"""What is worth trying for `gemm_dot`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm import gemm_dot
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.blocking import splits
from search_spaces.values import Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_dot`."""
    on_cpu = limits.kind == "cpu"
    return {
        # each row of A is used item_n times from registers, each column of B item_m times
        "item_m": up_to(problem.m, 1, 2, 4, 8),
        "item_n": up_to(problem.n, 1, 2, 3, 4, 6, 8) if on_cpu else up_to(problem.n, 1, 2, 4, 8),
        "vec_k": (limits.native_float_width,) if on_cpu else (1, 2, 4),
        # neighbours that read neighbouring vectors are what GPUs load fast; a CPU has no use
        "local_k": (1,) if on_cpu else (8, 16, 32, 64, 128, 256),
        "local_n": (1,) if on_cpu else (1, 2, 4, 8),
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16),
    }


def seeds(problem: GemmProblem, limits: Limits) -> list[gemm_dot.Config]:
    """Return start points for `gemm_dot`, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        width = limits.native_float_width
        shapes = ((min(problem.m, 8), 3), (min(problem.m, 4), 6), (1, 8), (1, 4))
        return [
            gemm_dot.Config(item_m=m, item_n=n, vec_k=width, local_k=1, local_n=1, split_k=1)
            for m, n in dict.fromkeys(shapes)
        ]
    shapes = ((min(problem.m, 4), 4), (min(problem.m, 8), 2), (1, 4), (1, 1))
    return [
        gemm_dot.Config(item_m=m, item_n=n, vec_k=4, local_k=local_k, local_n=4, split_k=1)
        for m, n in dict.fromkeys(shapes)
        for local_k in (32, 64)
    ]
