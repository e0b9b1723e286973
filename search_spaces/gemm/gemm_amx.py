"""What is worth trying for `gemm_amx`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS
from oclgen.families.gemm.gemm_pairs import splits
from oclgen.limits import Limits
from oclgen.problem import GemmProblem
from search_spaces.values import BOTH, Value


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter.

    None but the default where the device did not show the instruction.
    """
    if PRODUCTS[problem.dtype] not in limits.instructions:
        return {}
    return {
        # more tiles of sums load less for each product, and leave more of an edge empty
        "item_m": tuple(rows for rows in (16, 32, 48, 64) if rows < problem.m + 16),
        "item_n": tuple(width for width in (16, 32, 48, 64) if width < problem.n + 16),
        # a work-group costs some 0.2 us to start: several blocks of a short k share it
        "blocks": (1, 2, 4, 8, 16),
        # of a large C, rows are written on and on
        "across": BOTH,
        # columns are read once if a work-item that packs them has all rows
        "within": BOTH,
        # the steps of all columns fill the nearest cache, or sums wait in memory less often
        "tile_k": tuple(k for k in (128, 256, 384, 512, 1024) if k < problem.k + 128),
        "order": ("m", "n"),
        # one operand is packed as pairs, and read and written once more for it
        "swap": BOTH,
        # where rows lie apart by a power of two, packed ones stay in the nearest cache
        "pack_rows": BOTH,
        "split_k": splits(problem, limits),
    }
