"""How blocks of results cover a problem and fill a device; families make guesses from it."""

from __future__ import annotations

from oclgen.families.gemm.gemm_parts import empty_slice
from oclgen.limits import Limits
from oclgen.plan import ceil_div, round_up
from oclgen.problem import GemmProblem

GROUPS_PER_UNIT = 2
"""Work-groups a GPU's compute unit wants in flight; with fewer the reduction is worth splitting."""
ITEMS_PER_UNIT = 256
"""Work-items with many registers each that keep a GPU's compute unit busy."""


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
    groups: int = GROUPS_PER_UNIT,
) -> int:
    """Return the power of two by which k has to be split for each compute unit to have work.

    It is less where slices of whole `step`s would leave one empty.

    Args:
        problem: a product; k is not split below 64 steps.
        limits: of the device: its compute units.
        tile_m: rows of a tile.
        tile_n: columns of a tile.
        step: slices but the last are whole multiples of it.
        groups: work-groups that each compute unit should have.
    """
    wanted, split = max(groups, 1) * limits.compute_units, 1
    # three quarters of the units at work are better than planes
    while 4 * split * tiles(problem, tile_m, tile_n) < 3 * wanted and problem.k >= 128 * split:
        split *= 2
    return none_empty(problem.k, split, step)


def none_empty(k: int, split: int, step: int) -> int:
    """Return `split`, halved until each slice of k has steps: slices are whole `step`s.

    Args:
        k: steps of the reduction.
        split: slices that are wanted.
        step: slices but the last are whole multiples of it.
    """
    while empty_slice(k, split, step):
        split //= 2
    return split


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
    rounds = ceil_div(groups, limits.compute_units)
    hidden = min(rounds * work_items / ITEMS_PER_UNIT, 1)
    return rounds * limits.compute_units / groups / hidden


def waste(extent: int, block: int) -> float:
    """Return computed / needed items if `extent` is cut into whole blocks."""
    return round_up(extent, block) / extent
