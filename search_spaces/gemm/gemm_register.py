"""What is worth trying for `gemm_register`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm import gemm_register
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import GemmProblem
from search_spaces.blocking import fill, splits
from search_spaces.values import BOTH, Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_register`."""
    if limits.kind == "cpu":
        return _on_cpu(problem, limits)
    return {
        "item_m": up_to(problem.m, 1, 2, 4, 8),
        "item_n": up_to(problem.n, 1, 2, 4, 8),
        "vec_n": up_to(problem.n, 1, 2, 4),
        "local_m": up_to(problem.m, 1, 4, 8, 16),
        "local_n": (8, 16, 32, 64),
        "unroll_k": (1, 4, 8),
        # panels suit a cache that one core has to itself; on GPUs they cost coalescing
        "pack_a": (False,),
        "pack_b": (False,),
        "loop_m": (1,),
        # neighbouring work-items have to read neighbouring columns of B
        "order": ("n",),
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16, 32),
    }


def _on_cpu(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    width = _width(problem, limits)
    return {
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
        "split_k": splits(problem, limits, 1, 2, 4, 8),
    }


def seeds(problem: GemmProblem, limits: Limits) -> list[gemm_register.Config]:
    """Return start points for `gemm_register`, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return _cpu_seeds(problem, limits)
    split = fill(problem, limits, 8, 256)
    shapes = ((min(problem.m, 8), 4, 4), (1, 4, 4), (min(problem.m, 4), 1, 1))
    return [
        gemm_register.Config(
            item_m=item_m, item_n=item_n, vec_n=vec_n, local_m=1, local_n=64, unroll_k=4,
            pack_a=False, pack_b=False, loop_m=1, order="n", split_k=split_k,
        )
        for item_m, item_n, vec_n in shapes
        for split_k in dict.fromkeys((split, max(split // 2, 1)))
    ]  # fmt: skip


def _cpu_seeds(problem: GemmProblem, limits: Limits) -> list[gemm_register.Config]:
    width = _width(problem, limits)
    # 6 x 4 asks for the fewest loads per multiply-add, 12 x 2 for the shortest rows of B; 8 x 2 is
    # for register files of 16 vectors and for m that only 8 divides
    shapes = ((6, 4), (12, 2), (8, 2)) if problem.m > 4 else ((problem.m, 4), (problem.m, 2))
    packs = ((False, problem.trans_b), (False, True), (True, True))
    narrow = problem.m < 64 and problem.k >= 1024
    return [
        gemm_register.Config(
            item_m=item_m, item_n=vectors * width, vec_n=width, local_m=1, local_n=1, unroll_k=1,
            pack_a=pack_a, pack_b=pack_b, loop_m=8 if problem.m >= 16 * item_m else 1, order="m",
            split_k=2 * limits.compute_units if narrow and problem.n <= 1024 else 1,
        )
        for pack_a, pack_b in dict.fromkeys(packs)
        for item_m, vectors in shapes
    ]  # fmt: skip


def _width(problem: GemmProblem, limits: Limits) -> int:
    """Return the device's vector width, or less where n has fewer columns."""
    width = limits.native_float_width
    while width > 1 and width >= 2 * problem.n:
        width //= 2
    return width
