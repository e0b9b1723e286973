"""What is worth trying for `conv_gemm`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.conv.conv_gemm import has_few_rows
from oclgen.families.conv.conv_gemm_operands import along_k
from oclgen.families.conv.conv_gemm_tiles import product_of, splits_of, tap_orders
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_gemm`; one config on CPUs."""
    if limits.kind == "cpu":
        return {}
    m, n, _ = product_of(problem)
    few = has_few_rows(problem)
    return {
        "tile_m": (8, 16) if few else tuple(t for t in (16, 32, 64, 128) if t == 16 or t < 2 * m),
        "tile_n": (128, 256) if few else tuple(t for t in (32, 64, 128) if t == 32 or t < 2 * n),
        "tile_k": (8, 16),
        "local_m": (1, 2, 4) if few else (4, 8, 16),
        "local_n": (16, 32, 64) if few else (8, 16),
        # 128 bits is the widest read of local memory
        "vec_m": (2, 4),
        "vec_n": (2, 4),
        # tiles that are filled along k meet bank conflicts; a pad of 4 keeps vectors aligned
        "pad": (0, 4) if along_k(problem) else (0,),
        "buffers": (1, 2),
        # Intel's compiler (22.43) crashes on some kernels that prefetch; others spill
        "prefetch": (False,) if limits.has_few_registers else BOTH,
        "unroll_k": (8,),
        "taps_outer": tap_orders(problem),
        "split_k": splits_of(problem, limits, 64, 64),
        "m_fastest": BOTH,
    }
