"""What is worth trying for `gemm_tma`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm import gemm_tma
from oclgen.limits import Limits
from oclgen.problem import DTYPES, GemmProblem
from search_spaces.blocking import fill, splits
from search_spaces.values import Value, up_to


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
        "pack_a": (_packs_a(problem),),
        "pack_b": (_packs_b(problem),),
    }


def seeds(problem: GemmProblem, limits: Limits) -> list[gemm_tma.Config]:
    """Return start points for `gemm_tma`, best guess first; some may not be valid.

    The larger the tile, the less of the cache's bandwidth it needs, which is what runs out first.
    """
    shapes = (
        (256, 128, 2, 2, 5), (128, 128, 1, 2, 5), (128, 64, 1, 2, 8), (64, 128, 1, 2, 5),
        (64, 64, 1, 2, 8),
    )  # fmt: skip
    step = gemm_tma.STEP_BYTES // DTYPES[problem.dtype]
    return [
        gemm_tma.Config(
            tile_m=tile_m, tile_n=tile_n, groups=groups, ahead=ahead, stages=stages,
            split_k=_none_empty(problem, fill(problem, limits, tile_m, tile_n, 1), ahead * step),
            group_m=8, pack_a=_packs_a(problem), pack_b=_packs_b(problem),
        )
        for tile_m, tile_n, groups, ahead, stages in shapes
        if tile_m < 2 * problem.m or tile_m == 64
    ]  # fmt: skip


def _none_empty(problem: GemmProblem, split: int, multiple: int) -> int:
    while parts.empty_slice(problem.k, split, multiple):
        split //= 2
    return split


def _packs_a(problem: GemmProblem) -> bool:
    """Say whether `gemm_tma` reads A fast only when it is packed: across k, or not aligned."""
    return problem.trans_a or problem.k * DTYPES[problem.dtype] % 16 != 0


def _packs_b(problem: GemmProblem) -> bool:
    """Say the same of B; tf32 is read along k alone."""
    row = problem.k if problem.trans_b else problem.n
    across = problem.dtype == "tf32" and not problem.trans_b
    return across or row * DTYPES[problem.dtype] % 16 != 0
