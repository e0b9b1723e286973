"""What is worth trying for `gemm_dot`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.parts.blocking import splits
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
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
