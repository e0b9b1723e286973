"""What is worth trying for `gemm_async`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.parts.blocking import splits, tiles
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.values import BOTH, Value, up_to


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
        # as many groups as run at once, so that no unit waits for a last tile; registers limit them
        "groups": (0, units, 2 * units) if few else (0, units, 2 * units, 4 * units),
        "local_k": (1, 2, 4, 8, 16) if few else (1,),
        "group_m": (8,) if few else (4, 8, 16),
        # which is faster depends on the registers that the compiler allocates, unknown here
        "order": ("m",) if few else ("m", "n"),
    }
