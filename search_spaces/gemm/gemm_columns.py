"""What is worth trying for `gemm_columns`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm import gemm_columns
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.blocking import splits
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


def seeds(problem: GemmProblem, limits: Limits) -> list[gemm_columns.Config]:
    """Return start points for `gemm_columns`, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return []
    rows = next(width for width in (1, 2, 4, 8, 16) if width >= min(problem.m, 16))
    return [
        gemm_columns.Config(
            item_m=rows, vec_n=4, unroll_k=4, local_n=local_n, local_k=local_k, split_k=split_k
        )
        for local_n, local_k, split_k in ((8, 128 if rows < 16 else 64, 1), (16, 16, 2))
    ]
