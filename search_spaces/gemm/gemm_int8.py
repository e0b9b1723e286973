"""What is worth trying for `gemm_int8`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.limits import Limits
from oclgen.opencl.byte_dots import IN_C, INSTRUCTIONS, PLAIN
from oclgen.problem import GemmProblem
from search_spaces.values import Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_int8`."""
    on_cpu = limits.kind == "cpu"
    units = tuple(unit for unit in INSTRUCTIONS if unit in limits.instructions)
    return {
        # what a GPU has beyond OpenCL C does four multiply-adds at once; a processor's compiler
        # makes slow code of `khr_dot` (Intel's runtime: 12 to 25 times the time of `plain`)
        "unit": tuple(IN_C) if on_cpu else units or (PLAIN,),
        # each row of A is used item_n times from registers, each column of B item_m times
        "item_m": up_to(problem.m, 1, 2, 3, 4, 6, 8) if on_cpu else up_to(problem.m, 1, 2, 4, 8),
        "item_n": up_to(problem.n, 1, 2, 3, 4, 6, 8) if on_cpu else up_to(problem.n, 1, 2, 4, 8),
        # neighbours on a processor are one thread's
        "local_m": (1, 8) if on_cpu else (1, 2, 4, 8, 16, 32),
        "local_n": (1, 8, 32) if on_cpu else (8, 16, 32, 64),
        "vec_k": (8, 16) if on_cpu else (4, 8, 16),
        "tile_k": (0, 64) if on_cpu else (0, 16, 32, 64),
    }
