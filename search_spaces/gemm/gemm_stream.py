"""What is worth trying for `gemm_stream`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm.gemm_stream import MOST_ROWS
from oclgen.families.parts.blocking import splits
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.values import Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_stream`.

    None but the default on a GPU, and for many rows: their sums would leave a core's caches.
    """
    if limits.kind != "cpu" or problem.m > MOST_ROWS:
        return {}
    return {
        "item_m": up_to(problem.m, *range(1, MOST_ROWS + 1)),
        "tile_n": (512, 1024, 2048, 4096, 8192),
        "vec_n": (limits.native_float_width,),
        # streams of memory that caches follow
        "unroll_k": (2, 4, 8, 16),
        "split_k": splits(problem, limits, 1, 2, 4, 8),
    }
