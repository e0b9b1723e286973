"""What is worth trying for `gemm_long`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm.gemm_long import ITEMS
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import GemmProblem
from search_spaces.values import Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_long`.

    On a CPU none but the default: its caches hold C while rows of A and B pass by.
    """
    if limits.kind == "cpu":
        return {}
    units = limits.compute_units
    return {
        "item_m": ITEMS,
        "item_n": ITEMS,
        # all of C is one work-group's
        "local_m": tuple(dict.fromkeys(ceil_div(problem.m, item) for item in ITEMS)),
        "local_n": tuple(dict.fromkeys(ceil_div(problem.n, item) for item in ITEMS)),
        "local_k": (1, 2, 4, 8, 16, 32, 64, 128, 256),
        "tile_k": (16, 32, 64, 128, 256, 512),
        "split_k": up_to(problem.k // 64, 1, units // 2, units, 2 * units, 4 * units),
    }
