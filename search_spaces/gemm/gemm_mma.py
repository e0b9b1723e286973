"""What is worth trying for `gemm_mma`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from oclgen.families.gemm import gemm_mma
from oclgen.limits import Limits
from oclgen.problem import DTYPES, GemmProblem
from search_spaces.blocking import fill, splits
from search_spaces.values import BOTH, Value, up_to


def values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_mma`.

    None but the default where the device showed no matrix instruction.
    """
    units = tuple(sorted({"mma", "wgmma"} & limits.instructions))
    if not units:
        return {}
    tiles_n = up_to(problem.n, 64, 128, 192, 256)
    # packing reads and writes an operand once more: rows of C have to use it often
    pays_a, pays_b = problem.n >= 1024, problem.m >= 1024
    values: dict[str, tuple[Value, ...]] = {
        "unit": units,
        "tile_m": up_to(max(problem.m, 64), 32, 64, 128)[-2:],
        "tile_n": tiles_n[-3:],
        # rows of 32 bytes leave room for stages, rows of 64 make fewer, larger reads
        "tile_k": tuple(width // DTYPES[problem.dtype] for width in (32, 64)),
        "warps_m": (1, 2, 4),
        "warps_n": (1, 2, 4),
        "stages": (2, 3, 4, 5),
        "pending": (0, 1) if "wgmma" in units else (0,),
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16),
        "group_m": (4, 8, 16),
        "pack_a": BOTH if pays_a else (False,),
        "pack_b": BOTH if pays_b else (False,),
    }
    while prod(len(each) for each in values.values()) > 100_000:
        longest = max(("tile_n", "split_k", "group_m"), key=lambda name: len(values[name]))
        values[longest] = values[longest][1:]
    return values


def seeds(problem: GemmProblem, limits: Limits) -> list[gemm_mma.Config]:
    """Return start points for `gemm_mma`, best guess first; some may not be valid.

    48 KiB of local memory hold few stages: narrow steps of packed operands are copied in the
    largest pieces; unpacked, rows of 64 bytes are.
    """
    size = DTYPES[problem.dtype]
    # unit, tile_m, tile_n, bytes of k, warps_m, warps_n, stages, pending, packed
    shapes = (
        ("wgmma", 128, 128, 32, 4, 1, 5, 1, "ab"), ("wgmma", 128, 192, 32, 4, 1, 4, 0, "ab"),
        ("wgmma", 128, 128, 64, 4, 1, 2, 0, ""), ("wgmma", 128, 128, 32, 4, 1, 5, 1, "a"),
        ("wgmma", 128, 64, 64, 4, 1, 3, 0, ""), ("wgmma", 64, 64, 64, 4, 1, 5, 0, ""),
        ("mma", 128, 128, 64, 2, 2, 2, 0, "ab"), ("mma", 128, 128, 64, 2, 2, 2, 0, ""),
        ("mma", 128, 64, 64, 2, 2, 3, 0, ""), ("mma", 64, 64, 64, 2, 2, 4, 0, ""),
        ("mma", 32, 64, 64, 1, 2, 4, 0, ""),
    )  # fmt: skip
    return [
        gemm_mma.Config(
            unit=unit, tile_m=tile_m, tile_n=tile_n, tile_k=width // size, warps_m=warps_m,
            warps_n=warps_n, stages=stages, pending=pending,
            # planes cost more than a unit that waits for half of its work
            split_k=fill(problem, limits, tile_m, tile_n, 1), group_m=8,
            pack_a="a" in packed, pack_b="b" in packed,
        )
        for unit, tile_m, tile_n, width, warps_m, warps_n, stages, pending, packed in shapes
        if not packed or min(problem.m, problem.n) >= 1024
    ]  # fmt: skip
