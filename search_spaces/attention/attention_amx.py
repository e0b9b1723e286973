"""What is worth trying for `attention_amx`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.attention.attention_amx import has_tiles, rows_of
from oclgen.limits import Limits
from oclgen.problem import AttentionProblem
from search_spaces.values import BOTH, Values, up_to


def values(problem: AttentionProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter.

    None but the default where the device did not show the instruction.
    """
    if not has_tiles(problem, limits):
        return {}
    return {
        # two blocks load each tile of keys and values once for both
        "vectors": up_to(rows_of(problem), 1, 2),
        # scores stay in the first or second level of cache; sums pass through memory between chunks
        "chunk": (128, 256, 512, 1024),
        # for few rows, packing reads and writes more than all else
        "pack": BOTH,
    }
