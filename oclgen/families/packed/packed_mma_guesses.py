"""First guesses of `packed_mma` for untuned problems: `packed_mma_measured` says what is best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from oclgen.families.packed.packed_mma_config import MOST_SLICES, Config, tile
from oclgen.families.packed.packed_mma_measured import (
    BULK,
    FEW_BYTES,
    LENGTHS,
    MANY_BLOCKS,
    MOST_BULK_SLICES,
    MOST_IDLE,
    MOST_SHARING,
    MOST_WARPS,
    RESIDENT,
    SHARING,
    SHORT_K,
    SLICE_WARPS,
    TILES,
    WIDE_K,
    Case,
    first,
)
from oclgen.families.packed.packed_mma_tiles import ROWS
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.plan import ceil_div


def guesses(problem: PackedProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if "mma" not in limits.instructions:
        return []
    case = Case(problem, limits.compute_units)
    slices = [_of_slices, _of_kept_slices]
    if case.is_narrow and not case.is_wide:
        slices.reverse()  # 4x1016x15104 of int4_128z: 13.5 and 10.8 us
    several = [one for rule in (*slices, _of_kept_x, _of_rounds) for one in rule(case)]
    several = [*_of_whole_units(case), *_of_registers(case, several[0]), *several]
    return [*_of_bulk(case, several[0]), *several]


def _of_bulk(case: Case, plain: Config) -> Iterator[Config]:
    """Yield configs whose warps share bulk copies: `BULK` says for which products that is faster.

    Where k is cut, it is `plain` with such copies: 1.07 to 1.24 times as fast in ten products of
    q8_0, 1.04 in 19 of q6_k (0.96 to 1.13). With more than four rows of q6_k it is 0.93 and 0.94
    times as fast where weights are read from memory, not from the cache.
    """
    problem = case.problem
    if problem.m > ROWS or problem.free:
        return
    if tile_k := first(BULK, case):
        kept = _kept(case, tile_k)
        yield replace(kept, bulk=kept.warps)
    elif not 1 < plain.split_k <= MOST_BULK_SLICES:
        return
    elif problem.format == "q8_0" or (problem.format == "q6_k" and problem.m <= ROWS // 2):
        yield replace(plain, bulk=plain.warps)


def _of_whole_units(case: Case) -> Iterator[Config]:
    """Yield configs with one work-group for each unit, of as many warps as find registers.

    Each keeps x of a row, or of a slice of it, and all compute as many blocks of outputs (1.11
    times as fast as the guesses below in 14 drawn products, 0.97 to 1.28).
    """
    problem, units, tiles = case.problem, case.units, ceil_div(case.problem.k, 256)
    if problem.m > ROWS or problem.free or problem.format == "int8" or case.blocks <= units:
        return
    is_direct = tile(problem, 256).is_direct
    if problem.k > 256 * MOST_WARPS * MOST_SLICES:
        return
    if problem.k > 256 * MOST_WARPS:
        slices = ceil_div(tiles, MOST_WARPS)
        stages = 1 if is_direct and not case.is_wide else 2
        one = Config(1, 1, 256, ceil_div(tiles, slices), stages, unroll=1, split_k=slices)
        yield _even(case, one)
    elif is_direct and case.is_wide and problem.m > ROWS // 2 and problem.k > WIDE_K:
        yield _even(case, Config(1, 2, 256, tiles, stages=1, unroll=1))


def _of_registers(case: Case, staged: Config) -> Iterator[Config]:
    """Yield `staged` with weights that go straight to registers, where that is faster.

    Those have scales beside them, and a work-group that keeps x has one block of outputs (1.04
    times as fast in eight drawn products, 0.94 to 1.15).
    """
    problem = case.problem
    is_one = staged.groups == 0 and staged.rounds(problem) == 1
    if problem.packing.group and is_one and tile(problem, staged.tile_k).is_direct:
        yield replace(staged, stages=1)


def _even(case: Case, config: Config) -> Config:
    """Return a config with a work-group for each unit, or fewer that end together."""
    blocks = config.blocks(case.problem)[0]
    turns = ceil_div(blocks, max(1, case.units // config.split_k))
    return replace(config, groups=ceil_div(blocks, turns) if turns > 1 else 0)


def _of_slices(case: Case) -> Iterator[Config]:
    """Yield configs whose work-groups share k, where half of the units would have no outputs.

    Each unit gets two work-groups. A warp has one tile, or two where a slice would need more than
    `MOST_SHARING` warps. To pass sums takes longer than a short k does in one work-group.
    """
    problem, blocks, units = case.problem, case.blocks, case.units
    if problem.m > ROWS or problem.free or 2 * blocks > units:
        return
    if problem.k <= SHORT_K and problem.format != "int8":
        return
    slices = min(MOST_SLICES, 2 * units // blocks)
    for tile_k in (256, 512):
        tiles = ceil_div(problem.k, tile_k)
        if tiles <= MOST_SHARING * slices and tiles > MOST_SHARING // 2:
            warps = ceil_div(tiles, min(slices, tiles))
            one = Config(1, 1, tile_k, warps, stages=2, unroll=1)
            yield replace(one, split_k=ceil_div(tiles, warps))
    one = Config(1, 1, 256, MOST_SHARING // 2, stages=2, unroll=2, split_k=slices)
    if problem.k > 256 * one.shares:
        yield one


def _of_kept_slices(case: Case) -> Iterator[Config]:
    """Yield configs whose work-groups keep x of a slice of k for several blocks of outputs.

    A row is longer than what the warps of one work-group keep. Each unit has a work-group, whose
    sums of all blocks pass to the others at once: 1.3 times as fast as warps that take several
    tiles of a row (H200, ten problems, 0.95 to 1.55). Rows of int8 gain where x is wide.
    """
    problem, blocks, units = case.problem, case.blocks, case.units
    if problem.m > ROWS or problem.free or problem.k <= 256 * MOST_WARPS:
        return
    if problem.format == "int8" and not (case.is_wide and problem.m > ROWS // 2):
        return
    # warps with tiles of 512 keep half as much x in 16 bits
    if not (case.is_wide or case.is_skewed) and problem.k <= 512 * MOST_WARPS:
        return
    tiles = ceil_div(problem.k, 256)

    def cut(warps: int) -> tuple[int, int]:
        slices = ceil_div(tiles, warps)
        return slices, max(1, units // slices)

    def tiles_of_unit(warps: int) -> int:
        return ceil_div(blocks, cut(warps)[1]) * warps

    fewest = max(SLICE_WARPS // 2, ceil_div(tiles, MOST_SLICES))
    warps = min(range(max(fewest, SLICE_WARPS), fewest - 1, -1), key=tiles_of_unit)
    slices, groups = cut(ceil_div(tiles, cut(warps)[0]))
    one = Config(1, 1, 256, ceil_div(tiles, slices), stages=2, unroll=1, split_k=slices)
    yield replace(one, groups=groups if blocks > groups else 0)


def _of_kept_x(case: Case) -> Iterator[Config]:
    """Yield configs whose warps have one tile of each row, for as many groups as units hold.

    More than 16 warps are slow (1x7736x6144 in fp32 reached 0.21 of the read rate, with longer
    tiles 0.63). A work-group that computes two blocks of outputs is faster than two work-groups
    (0.55 and 0.49, 6x9632x768 of q6_k; 11.9 and 13.6 us, 4x7208x1280). Rows of int8 take as long by
    several tiles a warp, which need less local memory, except for short ones of many outputs (14.0
    and 11.8 us, 3x23128x1024).
    """
    problem, blocks, units = case.problem, case.blocks, case.units
    is_long = problem.k > SHORT_K or blocks < 3 * units or problem.n * problem.k < FEW_BYTES
    if problem.m > ROWS or (problem.format == "int8" and is_long):
        return
    for tile_k in sorted(
        first(LENGTHS, case),
        key=lambda tile_k: (
            ceil_div(problem.k, tile_k) > MOST_WARPS,
            _idle(problem.k, tile_k) > MOST_IDLE,
        ),
    ):
        yield _kept(case, tile_k)


def _kept(case: Case, tile_k: int) -> Config:
    """Return the config whose warps have one tile of each row, for as many groups as units hold."""
    blocks, units, warps = case.blocks, case.units, ceil_div(case.problem.k, tile_k)
    most = min(4 if blocks > MANY_BLOCKS * units else 3, max(1, RESIDENT // (tile_k * warps)))
    # the fewest groups that need no more turns
    turns = ceil_div(blocks, most * units)
    groups = units * min(most, ceil_div(blocks, turns * units))
    return Config(1, 1, tile_k, warps, 2, 1, groups if blocks > groups else 0)


def _of_rounds(case: Case) -> Iterator[Config]:
    """Yield configs whose warps take several tiles of a row, one after the other."""
    problem = case.problem
    blocks_m = min(4, ceil_div(problem.m, ROWS))
    tiles = sorted(first(TILES, case), key=lambda one: tile(problem, one[1]).is_skewed)
    pairs = [(warps, one) for warps in first(SHARING, case) for one in tiles]
    if case.is_long:
        pairs.sort(key=lambda pair: _idle(problem.k, pair[0] * pair[1][1]) > MOST_IDLE)
    for warps, (blocks_n, tile_k) in pairs:
        one = Config(blocks_m, blocks_n, tile_k, warps, stages=2, unroll=1)
        # fewer blocks of outputs than units: slices of k, as long as each has two rounds
        slices = case.units // prod(one.blocks(problem)) if not problem.free else 1
        slices = max(1, min(MOST_SLICES, slices, one.rounds(problem) // 2))
        if slices > 1 and warps > MOST_SHARING:
            continue
        one = replace(one, split_k=slices)
        longer = tile_k > 64 and one.rounds(problem) > 1
        yield replace(one, unroll=2) if longer else one


def _idle(k: int, step: int) -> float:
    """Return the time of warps, as part of their work, that wait while others have a tile."""
    return ceil_div(k, step) * step / k - 1
