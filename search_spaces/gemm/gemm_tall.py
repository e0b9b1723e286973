"""What is worth trying for `gemm_tall`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm.gemm_tall import ACROSS, share
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.values import Value


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_tall`.

    On a CPU none but the default: rows of a register tile need no local memory.
    """
    if limits.kind == "cpu":
        return {}
    return {
        "item_m": (1, 2, 4),
        "item_n": tuple(dict.fromkeys(share(problem.n, count) for count in ACROSS)),
        "local_m": (16, 32, 64, 128, 256),
        "local_n": ACROSS,
    }
