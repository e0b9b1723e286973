"""First guesses of `packed_mma` for untuned problems, from what H200s measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from oclgen.families.packed.packed_mma_config import COLUMNS, MOST_SLICES, Config, tile
from oclgen.families.packed.packed_mma_tiles import ROWS
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.plan import ceil_div
from oclgen.problem import DTYPES

LONG_ROW = 8192
"""Weights of a row from which 16 warps share it."""
RESIDENT = 4096
"""Weights of a row, in tiles of all groups together, that a compute unit works on at a time."""
MOST_SHARING = 8
"""Warps of a work-group beside other work-groups for the same outputs."""
SLICE_WARPS = 12
"""The same at most where a unit has one work-group, which computes several blocks of outputs."""
SHORT_K = 3072
"""Weights of a row up to which one work-group multiplies all."""
FEW_BYTES = 1 << 23
"""Weights of int8 below which a launch is over before groups have computed several blocks."""
MOST_WARPS = 16
"""Warps of a work-group that keep x and find registers enough for what they wait for."""
MOST_IDLE = 0.125
"""Part of the work that a guess lets warps wait for longer rows' sake."""


def guesses(problem: PackedProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if "mma" not in limits.instructions:
        return []
    return [
        *_of_slices(problem, limits),
        *_of_kept_slices(problem, limits),
        *_of_kept_x(problem, limits),
        *_of_rounds(problem, limits),
    ]


def _of_slices(problem: PackedProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs whose work-groups share k, where half of the units would have no outputs.

    Each unit gets two work-groups. A warp has one tile, or two where a slice would need more than
    `MOST_SHARING` warps. To pass sums takes longer than a short k does in one work-group (H200, us:
    2x768x2304 of q4_0 8.2 and 5.8, 6x976x2816 of q4_k 8.3 and 6.6).
    """
    blocks = ceil_div(problem.n, COLUMNS)
    if problem.m > ROWS or problem.free or 2 * blocks > limits.compute_units:
        return
    if problem.k <= SHORT_K and problem.format != "int8":
        return
    slices = min(MOST_SLICES, 2 * limits.compute_units // blocks)
    for tile_k in (256, 512):
        tiles = ceil_div(problem.k, tile_k)
        if tiles <= MOST_SHARING * slices and tiles > MOST_SHARING // 2:
            warps = ceil_div(tiles, min(slices, tiles))
            one = Config(1, 1, tile_k, warps, stages=2, unroll=1)
            yield replace(one, split_k=ceil_div(tiles, warps))
    one = Config(1, 1, 256, MOST_SHARING // 2, stages=2, unroll=2, split_k=slices)
    if problem.k > 256 * one.shares:
        yield one


def _of_kept_slices(problem: PackedProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs whose work-groups keep x of a slice of k for several blocks of outputs.

    A row is longer than what the warps of one work-group keep. Each unit has a work-group, whose
    sums of all blocks pass to the others at once: 1.3 times as fast as warps that take several
    tiles of a row (H200, ten problems, 0.95 to 1.55). Rows of int8 gain where x is wide.
    """
    if problem.m > ROWS or problem.free or problem.k <= 256 * MOST_WARPS:
        return
    is_wide = DTYPES[problem.dtype] == 4
    if problem.format == "int8" and not (is_wide and problem.m > ROWS // 2):
        return
    # warps with tiles of 512 keep half as much x in 16 bits
    if not (is_wide or tile(problem, 256).is_skewed) and problem.k <= 512 * MOST_WARPS:
        return
    blocks, tiles = ceil_div(problem.n, COLUMNS), ceil_div(problem.k, 256)

    def cut(warps: int) -> tuple[int, int]:
        slices = ceil_div(tiles, warps)
        return slices, max(1, limits.compute_units // slices)

    def tiles_of_unit(warps: int) -> int:
        return ceil_div(blocks, cut(warps)[1]) * warps

    fewest = max(SLICE_WARPS // 2, ceil_div(tiles, MOST_SLICES))
    warps = min(range(max(fewest, SLICE_WARPS), fewest - 1, -1), key=tiles_of_unit)
    slices, groups = cut(ceil_div(tiles, cut(warps)[0]))
    one = Config(1, 1, 256, ceil_div(tiles, slices), stages=2, unroll=1, split_k=slices)
    yield replace(one, groups=groups if blocks > groups else 0)


def _of_kept_x(problem: PackedProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs whose warps have one tile of each row, for as many groups as units hold.

    Warps with tiles of 256 are faster than half as many with 512 (H200, by turns, parts of the
    read rate: 4x14336x4096 of int4_128z 0.74 and 0.63, 4x2872x3328 of q4_0 0.62 and 0.58), but not
    those of a long k whose scales lie in the blocks (1x14336x4096 of q4_0 0.65 and 0.69), nor more
    than 16 (1x7736x6144 in fp32 0.21 and 0.63). A work-group that computes two blocks of outputs
    is faster than two work-groups (0.55 and 0.49, 6x9632x768 of q6_k; 11.9 and 13.6 us,
    4x7208x1280). Rows of int8 take as long by several tiles a warp, which need less local memory,
    except for short ones of many outputs (14.0 and 11.8 us, 3x23128x1024).
    """
    blocks, units = ceil_div(problem.n, COLUMNS), limits.compute_units
    is_long = problem.k > SHORT_K or blocks < 3 * units or problem.n * problem.k < FEW_BYTES
    if problem.m > ROWS or (problem.format == "int8" and is_long):
        return
    packing, is_short = problem.packing, problem.k < RESIDENT or DTYPES[problem.dtype] == 4
    lengths = (256, 512, 1024)
    if not (is_short or packing.group or tile(problem, 256).is_skewed):
        lengths = (512, 256, 1024)
    # bytes in blocks: fewer warps wait for as many, if each has several blocks of outputs
    is_bytewise = packing.block_bytes >= packing.block and packing.group is None
    if is_bytewise and blocks > units and not (is_short and DTYPES[problem.dtype] == 4):
        lengths = (1024, 512, 256)
    if is_bytewise and DTYPES[problem.dtype] == 4 and problem.k >= RESIDENT:
        lengths = (512, 1024, 256) if problem.m > 1 else (1024, 512, 256)
    for tile_k in sorted(
        lengths,
        key=lambda tile_k: (
            ceil_div(problem.k, tile_k) > MOST_WARPS,
            _idle(problem.k, tile_k) > MOST_IDLE,
        ),
    ):
        warps = ceil_div(problem.k, tile_k)
        most = min(4 if blocks > 8 * units else 3, max(1, RESIDENT // (tile_k * warps)))
        # the fewest groups that need no more turns
        turns = ceil_div(blocks, most * units)
        groups = units * min(most, ceil_div(blocks, turns * units))
        yield Config(1, 1, tile_k, warps, 2, 1, groups if blocks > groups else 0)


def _of_rounds(problem: PackedProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs whose warps take several tiles of a row, one after the other."""
    blocks_m = min(4, ceil_div(problem.m, ROWS))
    # a unit with few tiles of its own is filled by warps that share them
    few = problem.n < 6 * COLUMNS * limits.compute_units
    counts = (4, 2)
    # some 4 KiB for a warp to wait for; x in pieces is cut for more outputs
    tiles: tuple[tuple[int, int], ...]
    if 8 * problem.packing.block_bytes <= 5 * problem.packing.block:
        tiles = ((2, 128), (1, 256), (1, 128))
        if problem.dtype == "fp32":
            tiles = ((2, 128), (4, 256), (2, 256), (1, 256))
    elif problem.dtype == "fp32":
        tiles = ((2, 128), (2, 64), (1, 128), (1, 256))
        if tile(problem, 256).is_skewed and not few:
            tiles, counts = ((2, 256), (1, 256)), (2, 4)
    else:
        tiles = ((1, 128), (1, 256), (1, 64))
    if problem.dtype == "fp32" and not few:
        tiles = ((4, 128), *tiles)
    tiles = tuple(sorted(tiles, key=lambda one: tile(problem, one[1]).is_skewed))
    bytewise = problem.packing.block_bytes >= problem.packing.block
    shared = (8, 4, 2) if bytewise or problem.k < LONG_ROW else (16, 8, 4, 2)
    pairs = [(warps, one) for warps in (shared if few else counts) for one in tiles]
    if problem.k >= RESIDENT:
        pairs.sort(key=lambda pair: _idle(problem.k, pair[0] * pair[1][1]) > MOST_IDLE)
    for warps, (blocks_n, tile_k) in pairs:
        one = Config(blocks_m, blocks_n, tile_k, warps, stages=2, unroll=1)
        # fewer blocks of outputs than units: slices of k, as long as each has two rounds
        slices = limits.compute_units // prod(one.blocks(problem)) if not problem.free else 1
        slices = max(1, min(MOST_SLICES, slices, one.rounds(problem) // 2))
        if slices > 1 and warps > MOST_SHARING:
            continue
        one = replace(one, split_k=slices)
        longer = tile_k > 64 and one.rounds(problem) > 1
        yield replace(one, unroll=2) if longer else one


def _idle(k: int, step: int) -> float:
    """Return the time of warps, as part of their work, that wait while others have a tile."""
    return ceil_div(k, step) * step / k - 1
