"""What is worth trying for `gemm_staged`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from oclgen.families.parts.blocking import splits
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
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
        # Intel's compiler (22.43) crashes on some kernels that prefetch; others spill
        "prefetch": (False,) if limits.has_few_registers else BOTH,
        "unroll_k": (4, 8, 16),
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16),
        "group_m": (1, 8),
    }
    # skinny problems want splits more than they want every shape of a tile
    while prod(len(each) for each in values.values()) > 100_000:
        longest = max(("tile_n", "tile_m", "unroll_k"), key=lambda name: len(values[name]))
        values[longest] = values[longest][1:]
    return values
