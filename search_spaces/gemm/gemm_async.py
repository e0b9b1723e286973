"""What is worth trying for `gemm_async`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oclgen.families.gemm import gemm_async
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.blocking import fill, splits, tiles
from search_spaces.values import BOTH, Value, up_to

SHARING_SEEDS = 2
"""Configs of `gemm_async` that are also begun with where work-groups share all tiles."""


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_async`.

    None but the default where the device did not show `cp.async`.
    """
    if "cp_async" not in limits.instructions:
        return {}
    units = limits.compute_units
    few = tiles(problem, 64, 64) < 4 * units
    return {
        "tile_m": up_to(problem.m, 16, 32, 64, 128, 256)[-3:],
        "tile_n": up_to(problem.n, 32, 64, 128, 256)[-3:],
        # more steps are more text than a GPU's cache of instructions holds
        "tile_k": (8, 16, 32, 64) if few else (8, 16),
        "local_m": (4, 8, 16) if problem.m < 64 else (8, 16),
        "local_n": (4, 8, 16) if problem.n < 64 else (8, 16),
        # the squarer a warp's block, the fewer words it reads
        "warp_m": (4, 8),
        # only a copy that transposes meets bank conflicts
        "pad_a": (0,) if problem.trans_a else (0, 4),
        "pad_b": (0, 4) if problem.trans_b else (0,),
        # turned once, an operand is read once for each tile across: few do not pay a launch
        "pack_a": BOTH if not problem.trans_a and problem.n >= 1024 and not few else (False,),
        "pack_b": BOTH if problem.trans_b and problem.m >= 1024 and not few else (False,),
        "stages": (2, 3, 4),
        # few tiles leave units idle: slices of k in a group cost no traffic, others need no room
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16) if few else (1,),
        # as many as run at once, which is the registers' to say: no unit waits for a last tile
        "groups": (0, units, 2 * units) if few else (0, units, 2 * units, 4 * units),
        "local_k": (1, 2, 4, 8, 16) if few else (1,),
        "group_m": (8,) if few else (4, 8, 16),
        # which is faster depends on the registers that the compiler allocates, unknown here
        "order": ("m",) if few else ("m", "n"),
    }


def seeds(problem: GemmProblem, limits: Limits) -> list[gemm_async.Config]:
    """Return start points for `gemm_async`, best guess first; some may not be valid.

    8 x 16 per work-item asks local memory for the fewest words; slices of k are for products with
    a tile or less for each compute unit.
    """
    # tile, local size, slices, stages
    many = (
        (128, 128, 8, 16, 8, 1, 3), (64, 128, 8, 8, 8, 1, 4), (128, 128, 16, 16, 16, 1, 2),
        (128, 256, 8, 16, 16, 1, 3),
    )  # fmt: skip
    few = (
        (64, 128, 8, 8, 16, 2, 4), (64, 128, 16, 8, 8, 4, 3), (128, 256, 8, 16, 16, 1, 3),
        (64, 64, 16, 8, 8, 4, 3), (128, 128, 8, 16, 8, 1, 4), (16, 128, 16, 4, 16, 4, 3),
        (16, 128, 16, 4, 8, 4, 4),
    )  # fmt: skip
    filled = tiles(problem, 64, 128) >= 2 * limits.compute_units
    shapes = many if filled else [s for s in few if s[0] < 2 * max(problem.m, 16)]
    packs = (True, False) if filled and problem.k >= 512 else (False,)
    whole = [
        gemm_async.Config(
            tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, local_m=local_m, local_n=local_n, warp_m=4,
            pad_a=0 if problem.trans_a or pack else 4, pad_b=4 if problem.trans_b > pack else 0,
            stages=stages, group_m=8,
            # 256 work-items for each compute unit, by as few planes as that takes
            split_k=fill(problem, limits, tile_m, tile_n, 256 // (local_m * local_n * local_k)),
            pack_a=pack and not problem.trans_a, pack_b=pack and problem.trans_b,
            local_k=local_k,
        )
        for tile_m, tile_n, tile_k, local_m, local_n, local_k, stages in shapes
        for pack in packs
    ]  # fmt: skip
    return [*whole, *(_sharing(config, limits) for config in whole[:SHARING_SEEDS])]


def _sharing(config: gemm_async.Config, limits: Limits) -> gemm_async.Config:
    """Return a config whose tiles are shared by as many work-groups as registers let run."""
    per_unit = max(gemm_async.REGISTERS // (256 * config.work_items), 1)
    return replace(config, split_k=1, groups=per_unit * limits.compute_units)
