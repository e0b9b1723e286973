"""What is worth trying for `conv_pairs_weights`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.conv.conv_register_weights_plan import inputs
from oclgen.families.conv.correlation import strung_windows
from oclgen.families.conv.lanes import VECS
from oclgen.families.gemm.gemm_pairs import INSTRUCTION
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter.

    None but the default where the device did not show the instruction.
    """
    if INSTRUCTION not in limits.instructions:
        return {}
    part = strung_windows(problem)
    return {
        "item_c": inputs(part, limits),
        "vecs": VECS,
        "unroll": (1, 2),
        # more planes balance the units and keep packed y in the second cache
        "split": tuple(s for s in (1, 2, 4, 8, 16, 32) if s <= part.batch * part.rows.results),
        "outputs_fastest": BOTH,
    }
