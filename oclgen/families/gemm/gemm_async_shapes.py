"""Shapes of `gemm_async`'s guesses: tiles, and the work-items that share them."""

from __future__ import annotations

from typing import NamedTuple

from oclgen.families.parts.blocking import tiles
from oclgen.limits import Limits
from oclgen.problem import GemmProblem

NARROW = 32
"""Rows or columns of a product whose tiles are as narrow."""


class Shape(NamedTuple):
    """A tile, the work-items that share it and its steps of k, and the tiles on their way."""

    tile_m: int
    tile_n: int
    tile_k: int
    local_m: int
    local_n: int
    local_k: int
    stages: int


MANY = (
    Shape(128, 128, 8, 16, 8, 1, 3), Shape(64, 128, 8, 8, 8, 1, 4),
    Shape(128, 128, 16, 16, 16, 1, 2), Shape(128, 256, 8, 16, 16, 1, 3),
)  # fmt: skip
"""For products that fill a device. 8 x 16 per work-item asks local memory for the fewest words."""
FEW = (
    Shape(64, 128, 8, 8, 16, 2, 4), Shape(64, 128, 16, 8, 8, 4, 3),
    Shape(128, 256, 8, 16, 16, 1, 3), Shape(64, 64, 16, 8, 8, 4, 3),
    Shape(128, 128, 8, 16, 8, 1, 4), Shape(16, 128, 16, 4, 16, 4, 3),
    Shape(16, 128, 16, 4, 8, 4, 4),
)  # fmt: skip
"""For products with a tile or less for each compute unit: work-items have slices of k."""
NARROW_COLUMNS = Shape(64, 32, 16, 8, 8, 4, 4), Shape(128, 32, 16, 16, 8, 2, 4)
NARROW_ROWS = Shape(32, 128, 8, 4, 16, 1, 4), Shape(32, 128, 16, 4, 16, 2, 3)


def is_filled(problem: GemmProblem, limits: Limits) -> bool:
    """Say whether a product has two tiles for each compute unit."""
    return tiles(problem, 64, 128) >= 2 * limits.compute_units


def usual(problem: GemmProblem, limits: Limits) -> tuple[Shape, ...]:
    """Return the shapes for any product, best first; none where a device has no `cp.async`."""
    if "cp_async" not in limits.instructions:
        return ()
    if is_filled(problem, limits):
        return MANY
    return tuple(one for one in FEW if one.tile_m < 2 * max(problem.m, 16))


def narrow(problem: GemmProblem, limits: Limits) -> tuple[Shape, ...]:
    """Return the shapes for few columns, or for few rows of many products, which come first.

    A tile of 128 would compute four times what is stored.
    """
    if "cp_async" not in limits.instructions:
        return ()
    if problem.n <= NARROW:
        return NARROW_COLUMNS
    return NARROW_ROWS if problem.m <= NARROW and is_filled(problem, limits) else ()
