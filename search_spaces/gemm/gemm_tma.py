"""What is worth trying for `gemm_tma`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm import gemm_tma
from oclgen.families.parts.blocking import splits
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.values import Value, tails, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_tma`.

    None but the default where the device did not show the instructions.
    """
    if not {"wgmma", "tma"} <= limits.instructions:
        return {}
    return {
        "tile_m": up_to(problem.m, 64, 128, 256)[-2:],
        "tile_n": up_to(problem.n, 64, 128, 192)[-2:],
        "groups": (1, 2),
        # a round has to last as long as memory takes to answer
        "ahead": (1, 2, 3, 4),
        "stages": (3, 4, 5, 8, 10),
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16),
        "group_m": (4, 8, 16),
        # what it serves unpacked is not worth packing
        "pack_a": (gemm_tma.packs_a(problem),),
        "pack_b": (gemm_tma.packs_b(problem),),
        **tails(gemm_tma.guesses(problem, limits)),
    }
