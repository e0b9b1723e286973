"""What is worth trying for `gemm_dot_pairs`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm import gemm_pairs
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.values import Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter.

    None but the default where the device did not show the instruction.
    """
    if gemm_pairs.INSTRUCTION not in limits.instructions:
        return {}
    return {
        # each row of A is used item_n times from registers, each column of B item_m times
        "item_m": up_to(problem.m, *range(1, 15)),
        "item_n": up_to(problem.n, 1, 2, 4, 8),
        "split_k": gemm_pairs.splits(problem, limits),
    }
