"""What is worth trying for `gemm_columns`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.parts.blocking import splits
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.values import Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_columns`.

    On a CPU none but the default: one core adds up its columns without neighbours.
    """
    if limits.kind == "cpu":
        return {}
    return {
        "item_m": up_to(problem.m, 1, 2, 4, 8, 16),
        "vec_n": tuple(width for width in (1, 2, 4) if width <= problem.n),
        "unroll_k": (1, 2, 4, 8),
        # eight vectors of four are a line of cache
        "local_n": (4, 8, 16, 32),
        "local_k": (8, 16, 32, 64, 128, 256),
        "split_k": splits(problem, limits, 1, 2, 4, 8),
    }
