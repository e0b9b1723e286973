"""What is worth trying for `packed_gemm`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.packed.packed_gemm import guesses
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from search_spaces.values import Values


def values(problem: PackedProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `packed_gemm`."""
    on_cpu = limits.kind == "cpu"
    return {
        "width": (16,) if on_cpu else (4, 8, 16),
        # a row is a processor's piece of work, neighbours are a GPU's
        "steps": (64,) if on_cpu else (1, 2, 4),
        "local_t": (1,) if on_cpu else (32, 64, 128),
        "gemm": tuple(dict.fromkeys(guess.gemm for guess in guesses(problem, limits))),
    }
