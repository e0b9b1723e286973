"""What is worth trying for `gemm_tall`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.limits import Limits
from oclgen.plan import ceil_div, round_up
from oclgen.problem import GemmProblem
from search_spaces.values import Value


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_tall`.

    On a CPU none but the default: rows of a register tile need no local memory.
    """
    if limits.kind == "cpu":
        return {}
    across = (1, 2, 4, 8)
    shares = {round_up(ceil_div(problem.n, count), 4) for count in across[1:]}
    return {
        "item_m": (1, 2, 4),
        "item_n": (problem.n, *sorted(shares - {problem.n})),
        "local_m": (16, 32, 64, 128, 256),
        "local_n": across,
    }
