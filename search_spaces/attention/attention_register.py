"""What is worth trying for `attention_register`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.attention.attention_parts import rows_of
from oclgen.limits import Limits
from oclgen.problem import AttentionProblem
from search_spaces.values import Values, up_to


def values(problem: AttentionProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `attention_register`."""
    rows = rows_of(problem)
    if limits.kind == "cpu":
        # a work-item is a core's: registers hold item_m x item_v vectors of sums
        return {
            "local_m": (1,),
            "local_n": (1,),
            "item_m": up_to(rows, 1, 2, 4, 6, 8),
            "item_v": (1, 2, 4),
            "vec": (limits.native_float_width, 16),
            "loop_m": up_to(rows, 1, 2, 4, 8, 16),
            "chunks": (1, 2, 4),
        }
    return {
        # a GPU's work-items share tiles; 8 x 8 sums each are what registers and reads allow
        "local_m": (4, 8, 16),
        "local_n": (4, 8, 16),
        "item_m": up_to(rows, 1, 2, 4, 8),
        "item_v": (1, 2),
        "vec": (4,),
        "chunks": (1, 2),
        "unroll_k": (1, 4),
        "pad": (0, 4),
        # else arrays lie in memory there
        "unrolled": (limits.has_few_registers,),
    }
