"""What is worth trying for `gemm_mma`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from oclgen.families.gemm import gemm_mma
from oclgen.families.parts.blocking import splits
from oclgen.limits import Limits
from oclgen.problem import DTYPES, GemmProblem
from search_spaces.values import BOTH, Value, tails, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_mma`.

    None but the default where the device showed no matrix instruction.
    """
    units = tuple(sorted({"mma", "wgmma"} & limits.instructions))
    if not units:
        return {}
    tiles_n = up_to(problem.n, 64, 128, 192, 256)
    is_wide = limits.declared_local_bytes > 0
    tiles_m, widths = ((64, 128, 256), (32, 64, 128)) if is_wide else ((32, 64, 128), (32, 64))
    # packing reads and writes an operand once more: rows of C have to use it often
    pays_a, pays_b = problem.n >= 1024, problem.m >= 1024
    values: dict[str, tuple[Value, ...]] = {
        "unit": units,
        "tile_m": up_to(max(problem.m, 64), *tiles_m)[-2:],
        "tile_n": tiles_n[-3:],
        # rows of 32 bytes leave room for stages, wider rows make fewer, larger reads
        "tile_k": tuple(width // DTYPES[problem.dtype] for width in widths),
        "warps_m": (1, 2, 4, 8) if is_wide else (1, 2, 4),
        "warps_n": (1, 2, 4),
        "stages": (2, 3, 4, 5, 6, 8) if is_wide else (2, 3, 4, 5),
        "pending": (0, 1) if "wgmma" in units else (0,),
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16),
        "group_m": (4, 8, 16),
        "pack_a": BOTH if pays_a else (False,),
        "pack_b": BOTH if pays_b else (False,),
    }
    while prod(len(each) for each in values.values()) > 100_000:
        longest = max(("tile_n", "split_k", "group_m"), key=lambda name: len(values[name]))
        values[longest] = values[longest][1:]
    return values | tails(gemm_mma.guesses(problem, limits))
