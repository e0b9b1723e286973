"""What is worth trying for `packed_dots`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.packed.packed_dots import UNITS
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from search_spaces.values import Values, up_to


def values(problem: PackedProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `packed_dots`."""
    return {
        # each needs an instruction of its own
        "lanes": tuple(UNITS),
        # few work-items turn x into digits less often, many end together
        "loop_n": up_to(problem.n, 1, 2, 4, 8, 16, 32, 64),
        # weights in a cache cost less without
        "ahead": (0, 2048, 4096, 8192),
    }
