"""Tiles of matrix units to guess where a kernel may declare much local memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from oclgen.plan import ceil_div, round_up


class Shape(NamedTuple):
    """A work-group's tile, cut among its warps, and the steps of k in local memory.

    `row_bytes` are those of a step of k; `pending` products are not waited for.
    """

    unit: str
    tile_m: int
    tile_n: int
    row_bytes: int
    warps_m: int
    warps_n: int
    stages: int
    pending: int


WIDE = {
    Shape("wgmma", 128, 256, 64, 4, 2, 8, 1): 0.68,
    Shape("wgmma", 128, 192, 64, 4, 1, 4, 1): 0.66,
    Shape("wgmma", 128, 128, 64, 4, 1, 4, 1): 0.60,
    Shape("wgmma", 64, 128, 128, 4, 1, 4, 1): 0.52,
    Shape("wgmma", 128, 64, 128, 4, 1, 4, 1): 0.50,
    Shape("wgmma", 64, 64, 128, 4, 1, 6, 1): 0.38,
}
"""Shapes of 64 to 192 KiB, and the rate of each in PFLOP/s where its tiles fill whole rounds of the
compute units: bf16 products of 4096 on an H200. Only the order that it gives is used."""


NARROW = 48
"""Rows or columns of a tile at most that is as narrow as its product."""


def narrow(m: int, n: int, least_m: int, least_n: int, is_wide: bool) -> list[Shape]:
    """Return shapes for a product of few rows or columns, none for others.

    Such a product waits for its other operand, so that bytes under way count, and not what a tile
    reuses. Tiles of 64 rows or columns are left to wgmma.

    Args:
        m: rows of C.
        n: columns of C.
        least_m: rows of a tile are a multiple of it.
        least_n: columns of a tile are a multiple of it.
        is_wide: a kernel may declare more than 48 KiB of local memory.
    """
    few = round_up(m, least_m) if m <= n else round_up(n, least_n)
    if few > NARROW:
        return []
    tiles = ((128, 4), (64, 6)) if is_wide else ((64, 4),)
    if m <= n:
        return [Shape("mma", few, many, 128, 1, 4, stages, 0) for many, stages in tiles]
    return [Shape("mma", many, few, 128, 4, 1, stages, 0) for many, stages in tiles]


def ranked(
    m: int, n: int, products: int, units: int, split_of: Callable[[Shape], int]
) -> list[Shape]:
    """Return the shapes of `WIDE`, that of the least time first.

    All compute units wait for the last round of tiles, so that a smaller tile may be faster.

    Args:
        m: rows of C.
        n: columns of C.
        products: of the batch or of groups.
        units: compute units.
        split_of: into how many slices such tiles split k.
    """

    def ms(shape: Shape) -> float:
        tiles = products * ceil_div(m, shape.tile_m) * ceil_div(n, shape.tile_n)
        split = split_of(shape)
        return ceil_div(tiles * split, units) * shape.tile_m * shape.tile_n / split / WIDE[shape]

    return sorted(WIDE, key=ms)
