"""What is worth trying for `packed_rows`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from search_spaces.values import Values, up_to


def values(problem: PackedProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `packed_rows`."""
    on_cpu = limits.kind == "cpu"
    return {
        # weights are unpacked once for item_m rows, items of x are loaded once for item_n
        "item_m": up_to(problem.m, 1, 2, 4, 8),
        "item_n": up_to(problem.n, 1, 2, 3, 4, 6, 8) if on_cpu else up_to(problem.n, 1, 2, 4),
        # narrow stripes of neighbours are what GPUs load fast, wide ones fill CPUs' vectors
        "width": (8, 16) if on_cpu else (4, 8, 16),
        "lanes": (4, 8, 16) if on_cpu else (1, 2, 4),
        "local_k": (1,) if on_cpu else (16, 32, 64, 128),
        "local_n": (1,) if on_cpu else (1, 2, 4, 8),
        "unroll": (1, 2, 4, 8),
        # one stream of addresses that rise is what processors load ahead
        "loop_n": up_to(problem.n, 1, 4, 16, 64) if on_cpu else (1,),
        # GPUs have other work-items that run while one waits
        "ahead": (0, 1024, 4096, 8192) if on_cpu else (0,),
    }
