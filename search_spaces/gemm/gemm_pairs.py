"""What is worth trying for `gemm_pairs`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping

from oclgen.families.gemm import gemm_pairs
from oclgen.families.gemm.gemm_tiles import lies_along_k
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import GemmProblem
from search_spaces.values import Value

MIN_SLICE = 256
"""Steps of the reduction below which no plane of its own pays."""
GROUPS_PER_UNIT = 4
"""Work-items that a core wants to share the work evenly; with fewer the reduction is split."""


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter.

    None but the default where the device did not show the instruction.
    """
    if gemm_pairs.INSTRUCTION not in limits.instructions:
        return {}
    return {
        # 16 to 28 vectors of sums fill the register file and hide its latency
        "item_m": tuple(rows for rows in (1, 2, 4, 6, 8, 12, 14) if rows <= problem.m),
        "item_n": tuple(width for width in (16, 32, 48, 64) if width < problem.n + 16),
        # a work-group costs some 0.2 us to start: several blocks of a short k share it
        "loop_m": tuple(
            blocks for blocks in (1, 4, 8, 16) if blocks == 1 or 4 * blocks < problem.m
        ),
        "order": ("m", "n"),
        # packing reads and writes an operand once more; some have no other way
        "pack_a": (False, True) if lies_along_k(problem, "a") else (True,),
        "pack_b": (True,) if lies_along_k(problem, "b") else (False, True),
        "split_k": _splits(problem, limits),
    }


def seeds(problem: GemmProblem, limits: Limits) -> list[gemm_pairs.Config]:
    """Return start points, best guess first; some may not be valid."""
    shapes = ((6, 64), (12, 32), (8, 48)) if problem.m > 4 else ((problem.m, 64), (problem.m, 32))
    few = problem.m < 32
    packs = ((False, False), (False, True)) if few else ((False, True), (True, True))
    return [
        gemm_pairs.Config(
            item_m=item_m, item_n=item_n, loop_m=8 if problem.m >= 16 * item_m else 1, order="m",
            pack_a=pack_a or not lies_along_k(problem, "a"),
            pack_b=pack_b or lies_along_k(problem, "b"),
            split_k=_splits(problem, limits)[-1],
        )
        for pack_a, pack_b in packs
        for item_m, item_n in shapes
    ]  # fmt: skip


def _splits(problem: GemmProblem, limits: Limits) -> tuple[int, ...]:
    tiles = problem.batch * ceil_div(problem.m, 32) * ceil_div(problem.n, 64)
    most = ceil_div(GROUPS_PER_UNIT * limits.compute_units, tiles)
    return tuple(
        split
        for split in (1, 2, 4, 8)
        if split == 1 or (split <= most and problem.k >= MIN_SLICE * split)
    )
