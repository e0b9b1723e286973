"""What is worth trying for `gemm_fragments`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm.gemm_fragments import units_for
from oclgen.families.parts.blocking import splits
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.values import BOTH, Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_fragments`.

    None but the default where the device showed no such unit for the problem's dtype.
    """
    units = units_for(problem, limits)
    if not units:
        return {}
    return {
        "unit": units,
        # operands are packed by 64 rows
        "tile_m": up_to(problem.m, 64, 128, 256),
        "tile_n": up_to(problem.n, 64, 128, 256),
        "subs_m": (1, 2, 4, 8),
        "subs_n": (1, 2, 4, 8),
        # loads that are under way during the products, in more registers
        "ahead": BOTH,
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16),
        "group_m": (4, 8, 16),
    }
