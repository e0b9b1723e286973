"""What is worth trying for `gemm_pairs`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm import gemm_pairs
from oclgen.families.gemm.gemm_tiles import lies_along_k
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.values import Value


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter.

    None but the default where the device did not show the instruction.
    """
    if gemm_pairs.INSTRUCTION not in limits.instructions:
        return {}
    return {
        # 16 to 28 vectors of sums fill the register file and hide its latency
        "item_m": tuple(rows for rows in (1, 2, 4, 6, 8, 12, 14) if rows <= problem.m),
        "item_n": tuple(width for width in (16, 32, 48, 64) if width < problem.n + 16),
        # a work-group costs some 0.2 us to start: several blocks of a short k share it
        "loop_m": tuple(
            blocks for blocks in (1, 4, 8, 16) if blocks == 1 or 4 * blocks < problem.m
        ),
        "order": ("m", "n"),
        # packing reads and writes an operand once more; some have no other way
        "pack_a": (False, True) if lies_along_k(problem, "a") else (True,),
        "pack_b": (True,) if lies_along_k(problem, "b") else (False, True),
        "split_k": gemm_pairs.splits(problem, limits),
    }
