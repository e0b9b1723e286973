"""What is worth trying for the GEMM families, and why, with configs to begin with.

It says nothing about what is valid; that is each family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from oclgen.families.gemm import gemm_mma, gemm_register, gemm_staged, gemm_tma
from oclgen.families.gemm import gemm_parts as parts
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import DTYPES, GemmProblem

Value = int | bool | str
BOTH = (False, True)

GROUPS_PER_UNIT = 2
"""Work-groups a GPU's compute unit wants in flight; with fewer the reduction is worth splitting."""


def register_values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_register`."""
    if limits.kind == "cpu":
        return _register_on_cpu(problem, limits)
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


def _register_on_cpu(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
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


def register_seeds(problem: GemmProblem, limits: Limits) -> list[gemm_register.Config]:
    """Return start points for `gemm_register`, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return _register_cpu_seeds(problem, limits)
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


def _register_cpu_seeds(problem: GemmProblem, limits: Limits) -> list[gemm_register.Config]:
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


def staged_values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
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
        "prefetch": BOTH,
        "unroll_k": (4, 8, 16),
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16),
        "group_m": (1, 8),
    }
    # skinny problems want splits more than they want every shape of a tile
    while prod(len(each) for each in values.values()) > 100_000:
        longest = max(("tile_n", "tile_m", "unroll_k"), key=lambda name: len(values[name]))
        values[longest] = values[longest][1:]
    return values


def staged_seeds(problem: GemmProblem, limits: Limits) -> list[gemm_staged.Config]:
    """Return start points for `gemm_staged`, best guess first; some may not be valid.

    128 x 128 with 8 x 8 per work-item reads 16 words of local memory for 64 multiply-adds, which
    keeps current GPUs busy; smaller tiles are for problems that leave compute units idle.
    """
    if limits.kind == "cpu":
        return []
    shapes = (
        (128, 128, 16, 16, 16), (128, 128, 8, 16, 16), (128, 256, 8, 16, 16),
        (128, 64, 16, 16, 8), (64, 64, 16, 8, 8), (64, 64, 16, 16, 16), (32, 64, 16, 8, 8),
        (32, 32, 32, 8, 8), (16, 64, 32, 4, 16),
    )  # fmt: skip
    units = limits.compute_units
    fills = [s for s in shapes if tiles(problem, s[0], s[1]) >= units] or list(shapes[4:])
    return [
        gemm_staged.Config(
            tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, local_m=local_m, local_n=local_n,
            vec_m=4, vec_n=4, stage_a=True, stage_b=True,
            pad_a=0 if problem.trans_a else 4, pad_b=4 if problem.trans_b else 0,
            double_buffer=True, prefetch=True, unroll_k=min(tile_k, 16),
            split_k=fill(problem, limits, tile_m, tile_n), group_m=8,
        )
        for tile_m, tile_n, tile_k, local_m, local_n in fills
    ]  # fmt: skip


def mma_values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
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


def mma_seeds(problem: GemmProblem, limits: Limits) -> list[gemm_mma.Config]:
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


def tma_values(problem: GemmProblem, limits: Limits) -> Mapping[str, tuple[Value, ...]]:
    """Return the values worth trying for each parameter of `gemm_tma`.

    None but the default where the device did not show the instructions.
    """
    if not {"wgmma", "tma"} <= limits.instructions:
        return {}
    return {
        "tile_m": up_to(problem.m, 64, 128, 256)[-2:],
        "tile_n": up_to(problem.n, 64, 128, 192)[-2:],
        "groups": (1, 2),
        # a round has to last as long as memory takes to answer
        "ahead": (1, 2, 3, 4),
        "stages": (3, 4, 5, 8, 10),
        "split_k": splits(problem, limits, 1, 2, 4, 8, 16),
        "group_m": (4, 8, 16),
        # what it serves unpacked is not worth packing
        "pack_a": (_packs_a(problem),),
        "pack_b": (_packs_b(problem),),
    }


def tma_seeds(problem: GemmProblem, limits: Limits) -> list[gemm_tma.Config]:
    """Return start points for `gemm_tma`, best guess first; some may not be valid.

    The larger the tile, the less of the cache's bandwidth it needs, which is what runs out first.
    """
    shapes = (
        (256, 128, 2, 2, 5), (128, 128, 1, 2, 5), (128, 64, 1, 2, 8), (64, 128, 1, 2, 5),
        (64, 64, 1, 2, 8),
    )  # fmt: skip
    step = gemm_tma.STEP_BYTES // DTYPES[problem.dtype]
    return [
        gemm_tma.Config(
            tile_m=tile_m, tile_n=tile_n, groups=groups, ahead=ahead, stages=stages,
            split_k=_none_empty(problem, fill(problem, limits, tile_m, tile_n, 1), ahead * step),
            group_m=8, pack_a=_packs_a(problem), pack_b=_packs_b(problem),
        )
        for tile_m, tile_n, groups, ahead, stages in shapes
        if tile_m < 2 * problem.m or tile_m == 64
    ]  # fmt: skip


def _none_empty(problem: GemmProblem, split: int, multiple: int) -> int:
    while parts.empty_slice(problem.k, split, multiple):
        split //= 2
    return split


def _packs_a(problem: GemmProblem) -> bool:
    """Say whether `gemm_tma` reads A fast only when it is packed: across k, or not aligned."""
    return problem.trans_a or problem.k * DTYPES[problem.dtype] % 16 != 0


def _packs_b(problem: GemmProblem) -> bool:
    """Say the same of B; tf32 is read along k alone."""
    row = problem.k if problem.trans_b else problem.n
    across = problem.dtype == "tf32" and not problem.trans_b
    return across or row * DTYPES[problem.dtype] % 16 != 0


def _width(problem: GemmProblem, limits: Limits) -> int:
    """Return the device's vector width, or less where n has fewer columns."""
    width = limits.native_float_width
    while width > 1 and width >= 2 * problem.n:
        width //= 2
    return width


def up_to(extent: int, *values: int) -> tuple[int, ...]:
    """Return the ascending values that are not larger than `extent`, and one more to cover it."""
    below = [value for value in values if value < extent]
    return (*below, *values[len(below) : len(below) + 1])


def tiles(problem: GemmProblem, tile_m: int, tile_n: int) -> int:
    """Return the tiles of C, those of all batch items."""
    return problem.batch * ceil_div(problem.m, tile_m) * ceil_div(problem.n, tile_n)


def fill(
    problem: GemmProblem, limits: Limits, tile_m: int, tile_n: int, groups: int = GROUPS_PER_UNIT
) -> int:
    """Return the power of two by which k has to be split for each compute unit to have `groups`."""
    wanted, split = max(groups, 1) * limits.compute_units, 1
    # three quarters of the units at work are better than planes
    while 4 * split * tiles(problem, tile_m, tile_n) < 3 * wanted and problem.k >= 128 * split:
        split *= 2
    return split


def splits(problem: GemmProblem, limits: Limits, *values: int) -> tuple[int, ...]:
    """Return the splits that leave slices of 64 steps, only one where C has enough tiles."""
    if tiles(problem, 64, 64) >= 4 * limits.compute_units and problem.k < 4096:
        return (1,)
    return tuple(value for value in values if value == 1 or problem.k >= 64 * value)
