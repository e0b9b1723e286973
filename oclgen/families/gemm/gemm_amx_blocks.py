"""Which operands, tiles and blocks `gemm_amx` guesses for an untuned product."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

from oclgen.families.gemm.gemm_register_tiles import Tile, blocks_of_item
from oclgen.families.gemm.gemm_tiles import lies_along_k
from oclgen.limits import Limits
from oclgen.opencl.probe import HALF_TILES, TILES
from oclgen.plan import ceil_div
from oclgen.problem import GemmProblem

PRODUCTS = {"bf16": TILES, "fp16": HALF_TILES}
"""The instruction by dtype. That of bf16 rounds to nearest even as `vdpbf16ps` does, and takes
denormals for zeros (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)."""
SIDE = 16
"""Rows of a tile, and columns of a tile of sums."""
STEP = 32
"""Steps of k of a tile of A."""
LEAST_SIDE, LEAST_SIZE = 8, 1 << 17
"""Rows and columns, and multiply-adds, from which on products are left to tiles."""
ALIKE = 1000
"""Multiply-adds of the product for each item of packing by which orders may differ: a twentieth of
the time, at 0.1 ns an item and 450 multiply-adds each ns."""
SHAPES = ((1, 4), (1, 3), (2, 2), (1, 2), (1, 1))
"""Tiles of rows and of columns to guess. A step of 2 x 2 loads five tiles for four products, of
1 x 3 four for three, but only one of them from beyond the nearest cache. Rows of 1 x 4 are written
on and on where C has up to 64 columns: 30000x64x64 takes 0.36 ms, and 0.41 by 2 x 2."""
MOST_SHAPES = 4
TILE_STEPS = 256
"""Steps of k of 48 columns that fill half of the nearest cache."""
MOST_BLOCKS = 16
"""Of a work-item."""
MOST_ROWS = 512
"""Rows up to which work-items pack columns: each does it once, or twice. With more, all rows read
columns that others packed: 3370x753x32 in fp16 takes 0.61 and 0.66 ms."""
FAR_ITEMS = 1 << 17
"""Of the rows of a work-item, which stay in the second cache while others pack its columns: with
four times as many 2048x2048x2048 takes twice as long."""
NEAR_ITEMS, LEAST_PANELS = 1 << 17, 4
"""Items of all columns that stay in the second cache, and panels of them, for which a work-item
takes columns one after the other: C is written along its rows then. 6814x300x160 in fp16 takes 0.70
ms and 0.83 down the rows, 3370x753x32 0.47 and 0.61."""


def are_fastest(problem: GemmProblem, limits: Limits) -> bool:
    """Say whether a product is left to tiles: on few rows, columns or steps they are empty.

    Of 61 products on a Xeon with AMX, vectors are faster in four, of 1 to 90 thousand
    multiply-adds; of images in planes also where k is 16 to 24.
    """
    if PRODUCTS.get(problem.dtype) not in limits.instructions:
        return False
    is_small = min(problem.m, problem.n) < LEAST_SIDE or problem.k < STEP
    return not is_small and prod((problem.m, problem.n, problem.k)) >= LEAST_SIZE


def roles(swap: bool) -> tuple[str, str]:
    """Return the roles of the operand whose rows are tiles' rows, and of the other one."""
    return ("b", "a") if swap else ("a", "b")


def orders(problem: GemmProblem) -> list[bool]:
    """Return whether operands swap: the order that packs less first, the other if it costs alike.

    Products of either order take equal times, so that packing decides: 128x1024x1024 nt takes 0.29
    and 0.50 ms.
    """
    first, second = sorted((False, True), key=lambda swap: _packing_cost(problem, swap))
    more = _packing_cost(problem, second) - _packing_cost(problem, first)
    return [first, second] if ALIKE * more < prod((problem.m, problem.n, problem.k)) else [first]


def _packing_cost(problem: GemmProblem, swap: bool) -> int:
    """Return the items that are read and written once more before the product.

    What turns in registers counts twice: 4945 x 312 items in 0.8 ms, side by side in a third of it.
    """
    left, right = roles(swap)
    of_rows = prod(problem.buffers[left]) * (1 if lies_along_k(problem, left) else 2)
    of_columns = prod(problem.buffers[right]) * (2 if lies_along_k(problem, right) else 1)
    return of_columns + (of_rows if must_pack(problem, swap) else 0)


def must_pack(problem: GemmProblem, swap: bool) -> bool:
    """Return whether rows have to be packed; else they are read faster as they lie."""
    return not lies_along_k(problem, roles(swap)[0])


def shapes(problem: GemmProblem, swap: bool) -> list[tuple[int, int]]:
    """Return the tiles' rows and columns to guess, none of which is empty."""
    high, wide = (problem.n, problem.m) if swap else (problem.m, problem.n)
    filled = [
        (rows, columns)
        for rows, columns in SHAPES
        if SIDE * rows <= max(high, SIDE) and SIDE * (columns - 1) < wide
    ]
    return filled[:MOST_SHAPES]


class Walk(NamedTuple):
    """How a work-item goes over blocks, and who packs columns: see the legend of `gemm_amx`."""

    blocks: int
    across: bool
    within: bool


def walk(
    problem: GemmProblem, limits: Limits, tile: tuple[int, int], split_k: int, along_k: bool
) -> Walk:
    """Return how to go over a product whose rows are those of tiles.

    Args:
        problem: the product, turned where operands swap.
        limits: of the device.
        tile: rows and columns of a work-item.
        split_k: slices of k.
        along_k: columns lie along k, so that no work-item packs its own.
    """
    if not along_k and problem.m <= tile[0]:
        return Walk(_panels(problem, limits, tile[1], split_k), across=True, within=True)
    if not along_k and problem.m <= MOST_ROWS:
        return Walk(_blocks(problem, limits, tile, split_k), across=False, within=True)
    is_near = problem.k <= TILE_STEPS and problem.k * problem.n <= NEAR_ITEMS
    if is_near and problem.n > (LEAST_PANELS - 1) * tile[1]:
        turned = replace(problem, m=problem.n, n=problem.m, bias="none")
        return Walk(_blocks(turned, limits, tile[::-1], split_k), across=True, within=False)
    most = max(1, FAR_ITEMS // (tile[0] * problem.k))
    blocks = min(_blocks(problem, limits, tile, split_k), 1 << (most.bit_length() - 1))
    return Walk(blocks, across=False, within=False)


def _panels(problem: GemmProblem, limits: Limits, wide: int, split_k: int) -> int:
    """Return how many neighbouring panels a work-item packs: as many as leave each core one.

    Rows of neighbours share lines and pages: 16x384x69696 takes 6.7 ms with eight, 8.6 with one.
    """
    panels = ceil_div(problem.n, wide)
    found = min(MOST_BLOCKS, 1 << (panels - 1).bit_length())
    slices = problem.batch * split_k
    while found > 1 and slices * ceil_div(panels, found) < limits.compute_units:
        found //= 2
    return found


def _blocks(problem: GemmProblem, limits: Limits, tile: tuple[int, int], split_k: int) -> int:
    """Return the blocks of a work-item, as `gemm_register` has them."""
    slices, k = problem.batch * split_k, ceil_div(problem.k, split_k * STEP)
    steps = replace(problem, batch=slices, k=k)
    return blocks_of_item(steps, limits, Tile(tile[0], tile[1] // SIDE), tile[1], MOST_BLOCKS)
