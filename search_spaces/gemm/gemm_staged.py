"""What is worth trying for `gemm_staged`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from oclgen.families.gemm import gemm_staged
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.blocking import fill, splits, tiles
from search_spaces.values import BOTH, Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_staged`.

    On a CPU none but the default: its local memory is ordinary memory.
    """
    if limits.kind == "cpu":
        return {}
    tiles_m = up_to(problem.m, 16, 32, 64, 128)
    tiles_n = up_to(problem.n, 16, 32, 64, 128)
    values: dict[str, tuple[Value, ...]] = {
        "tile_m": tiles_m[-3:],
        "tile_n": (*tiles_n[-3:], 256) if problem.n >= 1024 else tiles_n[-3:],
        "tile_k": up_to(problem.k, 8, 16, 32),
        "local_m": (8, 16),
        "local_n": (8, 16),
        # 128 bits is the widest read of local memory; half of that has fewer registers in flight
        "vec_m": (2, 4),
        "vec_n": (2, 4),
        # an operand whose rows are broadcast may come straight through the cache
        "stage_a": BOTH,
        "stage_b": (True,),
        # only a copy that transposes meets bank conflicts
        "pad_a": (0,) if problem.trans_a else (0, 4),
        "pad_b": (0, 4) if problem.trans_b else (0,),
        "double_buffer": BOTH,
        "prefetch": BOTH,
        "unroll_k": (4, 8, 16),
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16),
        "group_m": (1, 8),
    }
    # skinny problems want splits more than they want every shape of a tile
    while prod(len(each) for each in values.values()) > 100_000:
        longest = max(("tile_n", "tile_m", "unroll_k"), key=lambda name: len(values[name]))
        values[longest] = values[longest][1:]
    return values


def seeds(problem: GemmProblem, limits: Limits) -> list[gemm_staged.Config]:
    """Return start points for `gemm_staged`, best guess first; some may not be valid.

    128 x 128 with 8 x 8 per work-item reads 16 words of local memory for 64 multiply-adds, which
    keeps current GPUs busy; smaller tiles are for problems that leave compute units idle.
    """
    if limits.kind == "cpu":
        return []
    shapes = (
        (128, 128, 16, 16, 16), (128, 128, 8, 16, 16), (128, 256, 8, 16, 16),
        (128, 64, 16, 16, 8), (64, 64, 16, 8, 8), (64, 64, 16, 16, 16), (32, 64, 16, 8, 8),
        (32, 32, 32, 8, 8), (16, 64, 32, 4, 16),
    )  # fmt: skip
    units = limits.compute_units
    fills = [s for s in shapes if tiles(problem, s[0], s[1]) >= units] or list(shapes[4:])
    return [
        gemm_staged.Config(
            tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, local_m=local_m, local_n=local_n,
            vec_m=4, vec_n=4, stage_a=True, stage_b=True,
            pad_a=0 if problem.trans_a else 4, pad_b=4 if problem.trans_b else 0,
            double_buffer=True, prefetch=True, unroll_k=min(tile_k, 16),
            split_k=fill(problem, limits, tile_m, tile_n), group_m=8,
        )
        for tile_m, tile_n, tile_k, local_m, local_n in fills
    ]  # fmt: skip
