"""How blocks of results cover a problem and fill a device; families make guesses from it."""

from __future__ import annotations

from functools import lru_cache

from oclgen.families.gemm.gemm_parts import slice_length
from oclgen.limits import Limits
from oclgen.plan import ceil_div, round_up
from oclgen.problem import GemmProblem

ITEMS_PER_UNIT = 256
"""Work-items with many registers each that keep a GPU's compute unit busy."""
SLICE_COST = 128
"""Steps of a reduction that take as long as what a slice adds: it starts, writes its sums,
and they are added. 64 to 256 choose equally well."""
MIN_STEPS = 64
"""Steps of the shortest slice."""
SPLITS = 256
"""LRU bound. A family's guesses and those of others for one problem ask for the same tiles."""
MOST_ROUNDS = 8
"""Rounds of the compute units by which slices are counted; more leave less than a tenth idle."""


def tiles(problem: GemmProblem, tile_m: int, tile_n: int) -> int:
    """Return the tiles of C, those of all batch items.

    Args:
        problem: a product.
        tile_m: rows of a tile.
        tile_n: columns of a tile.
    """
    return problem.batch * ceil_div(problem.m, tile_m) * ceil_div(problem.n, tile_n)


def fill(
    problem: GemmProblem,
    limits: Limits,
    tile_m: int,
    tile_n: int,
    step: int,
    work_items: int = ITEMS_PER_UNIT // 2,
) -> int:
    """Return the slices of k with which tiles are expected to take least time on a GPU.

    Ragged batch items have one: a slice would have to know where its item ends.

    Args:
        problem: a product.
        limits: of the device: its compute units.
        tile_m: rows of a tile.
        tile_n: columns of a tile.
        step: slices but the last are whole multiples of it.
        work_items: of a work-group, as `idleness` counts them.
    """
    if problem.ragged:
        return 1
    split = best_split(tiles(problem, tile_m, tile_n), problem.k, limits, work_items)
    return none_empty(problem.k, split, step)


def best_split(count: int, k: int, limits: Limits, work_items: int) -> int:
    """Return the slices of a reduction with which tiles are expected to take least time on a GPU.

    Slices let work-groups fill whole rounds of the compute units, but each costs `SLICE_COST`. In
    tables of 300 products and convolutions with several splits each, this chooses splits that reach
    0.97 of the best one's speed on average, where the least power of two that gives each unit its
    work-groups reaches 0.95 (H200).

    Args:
        count: tiles of the results.
        k: steps of the reduction; no slice has less than `MIN_STEPS`.
        limits: of the device: its compute units.
        work_items: of a work-group, as `idleness` counts them.
    """
    return _best_split(count, k, limits.compute_units, work_items)


@lru_cache(maxsize=SPLITS)
def _best_split(count: int, k: int, units: int, work_items: int) -> int:
    def cost(split: int) -> float:
        return _idleness(count * split, work_items, units) * slicing(k, split)

    return min(_round_splits(count, k, units), key=cost)


def round_splits(count: int, k: int, limits: Limits) -> tuple[int, ...]:
    """Return the slices of a reduction that fill whole rounds of the compute units best, 1 first.

    Args:
        count: tiles of the results.
        k: steps of the reduction; no slice has less than `MIN_STEPS`.
        limits: of the device: its compute units.
    """
    return _round_splits(count, k, limits.compute_units)


def _round_splits(count: int, k: int, units: int) -> tuple[int, ...]:
    most = k // MIN_STEPS
    if most < 2 or MOST_ROUNDS * units < 2 * count:
        return (1,)
    fitting = {rounds * units // count for rounds in range(1, MOST_ROUNDS + 1)}
    return (1, *sorted(split for split in fitting if 1 < split <= most))


def slicing(k: int, split: int) -> float:
    """Return the time of a reduction in slices over that of a whole one.

    Args:
        k: steps of the reduction.
        split: slices.
    """
    return 1 + split * SLICE_COST / k if split > 1 else 1


def none_empty(k: int, split: int, step: int) -> int:
    """Return how many slices there are at `split` or less, so that each has steps.

    Args:
        k: steps of the reduction.
        split: slices that are wanted.
        step: slices but the last are whole multiples of it.
    """
    return ceil_div(k, slice_length(k, split, step))


def splits(problem: GemmProblem, limits: Limits, *values: int) -> tuple[int, ...]:
    """Return the splits that leave slices of 64 steps, only one where C has enough tiles."""
    if tiles(problem, 64, 64) >= 4 * limits.compute_units and problem.k < 4096:
        return (1,)
    return tuple(value for value in values if value == 1 or problem.k >= 64 * value)


def idleness(groups: int, work_items: int, limits: Limits) -> float:
    """Return the time over that of a full device, for `groups` work-groups on a GPU.

    Units wait for the last groups, and hide no latency with few work-items each.

    Args:
        groups: work-groups of the launch.
        work_items: of each.
        limits: of the GPU: its compute units.

    Returns:
        1 where the device is full; more otherwise.
    """
    return _idleness(groups, work_items, limits.compute_units)


def _idleness(groups: int, work_items: int, units: int) -> float:
    rounds = ceil_div(groups, units)
    hidden = min(rounds * work_items / ITEMS_PER_UNIT, 1)
    return rounds * units / groups / hidden


def waste(extent: int, block: int) -> float:
    """Return computed / needed items if `extent` is cut into whole blocks."""
    return round_up(extent, block) / extent
