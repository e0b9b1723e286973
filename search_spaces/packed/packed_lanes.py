"""What is worth trying for `packed_lanes`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from search_spaces.values import Values, up_to


def values(problem: PackedProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `packed_lanes`."""
    on_cpu = limits.kind == "cpu"
    return {
        # items of x are loaded once for item_n groups of rows
        "item_n": (1, 2, 3) if on_cpu else (1, 2),
        # a register of the device, and half of it
        "lanes": (8, 16) if on_cpu else (4, 8),
        # few work-items cost little, many end together
        "loop_n": up_to(problem.n, 1, 2, 4, 8, 16) if on_cpu else (1,),
        # GPUs have other work-items that run while one waits
        "ahead": (0, 1024, 4096) if on_cpu else (0,),
    }
