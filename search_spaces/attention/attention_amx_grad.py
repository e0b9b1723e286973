"""What is worth trying for `attention_amx_grad`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.attention.attention_amx import has_tiles
from oclgen.limits import Limits
from oclgen.problem import AttentionProblem
from search_spaces.values import Values


def values(problem: AttentionProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter.

    None but the default where the device did not show the instruction.
    """
    if not has_tiles(problem, limits):
        return {}
    return {
        # sums of keys pass through memory once a chunk; what it holds stays in the second cache
        "chunk": (64, 128, 256, 512),
        # sums of queries do so once a block
        "block": (64, 128, 256, 512),
    }
