"""What is worth trying for `gemm_register`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm import gemm_register
from oclgen.families.gemm.gemm_register_tiles import AHEAD
from oclgen.families.parts.blocking import splits
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import GemmProblem
from search_spaces.values import BOTH, Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_register`."""
    if limits.kind == "cpu":
        return _on_cpu(problem, limits)
    sharing = gemm_register.sharing(limits)
    return {
        # lanes that share A hold less of it
        "item_m": up_to(problem.m, 1, 2, 4, 8, *((16,) if sharing else ())),
        "item_n": up_to(problem.n, 1, 2, 4, 8),
        "vec_n": up_to(problem.n, 1, 2, 4),
        "local_m": up_to(problem.m, 1, 4, 8, 16),
        "local_n": (8, 16, 32, 64),
        "unroll_k": (1, 4, 8, *((16,) if sharing else ())),
        # panels suit a cache that one core has to itself; on GPUs they cost coalescing
        "pack_a": (False,),
        "pack_b": (False,),
        "loop_m": (1,),
        # neighbouring work-items have to read neighbouring columns of B
        "order": ("n",),
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16, 32),
        # the lanes of a sub-group hand A round, or each work-item loads it
        "share": (gemm_register.ALONE, *sharing),
    }


def _on_cpu(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    width = gemm_register.width_of(problem, limits)
    values: dict[str, tuple[Value, ...]] = {
        # 16 to 28 vectors of accumulators fill the register file and hide its latency
        "item_m": up_to(problem.m, 1, 2, 4, 6, 8, 12, 14),
        "item_n": up_to(problem.n, *(width * count for count in (1, 2, 3, 4))),
        "vec_n": (width,),
        # a work-group of one: neighbours would only compete for the same registers
        "local_m": (1,),
        "local_n": (1,),
        "unroll_k": (1, 2, 4),
        # packing pays where rows lie apart by a multiple of the cache's size, and for nt
        "pack_a": BOTH,
        "pack_b": BOTH,
        # a work-group costs some 0.2 us to start: several blocks of a short k share it
        "loop_m": up_to(ceil_div(problem.m, 4), 1, 4, 8, 16),
        "order": ("m", "n"),
        # slices of a transposed A stay in the cache
        "split_k": splits(problem, limits, 1, 2, 4, 8, *((16, 32, 64) if problem.trans_a else ())),
        "share": (gemm_register.ALONE,),
        # rows of a wide B lie on a page each, at whose end a processor stops to read ahead
        "ahead": (0, *AHEAD),
    }
    # tiles of first guesses are counted out for the product's edges: any size may be best there
    for guess in gemm_register.guesses(problem, limits)[:1]:
        for name in ("item_m", "item_n", "loop_m", "split_k"):
            values[name] = tuple(sorted({*values[name], getattr(guess, name)}))
    return values
