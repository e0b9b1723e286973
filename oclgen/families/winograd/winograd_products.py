"""Tiles of the Winograd domain and the products over them that are the best guesses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import TypeVar

from oclgen.families.gemm import gemm_async, gemm_register, gemm_staged
from oclgen.families.gemm.gemm_async_shapes import Shape, narrow, usual
from oclgen.families.parts.blocking import fill, idleness
from oclgen.families.winograd.winograd_geometry import MANY_POINTS, Tiling, geometry, tilings
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem, GemmProblem
from oclgen.variant import Variant

T = TypeVar("T")
Made = Callable[[], Variant]
COPYING = 0.7
"""Time of a product whose tiles `cp.async` copies over that of `gemm_staged`: on an H200 0.37 to
1.03 for eight products of points, 0.69 in the mean."""
TILINGS = 5
"""Of a problem that are worth trying. There are as many of a whole filter."""
GUESSED = 3
"""Products of each size of tile that are guessed."""


def best_tilings(problem: ConvProblem) -> list[Tiling]:
    """Return the tilings, those first that multiply least with the edges that they overhang.

    Tiles of 6 multiply less than those of 4, but have twice as many points to transform.
    """

    def cost(tiling: Tiling) -> float:
        geo = geometry(problem, *tiling)
        covered = geo.tiles_h * geo.tiles_w * geo.points / (geo.out_h * geo.out_w)
        return covered * geo.blocks * (1.3 if geo.points == MANY_POINTS else 1)

    return sorted(tilings(problem), key=cost)[:TILINGS]


def guessed_on_cpus(problem: ConvProblem) -> list[Tiling]:
    """Return the tilings that are guessed where a core transforms and multiplies in turn.

    Blocks of a filter are guessed where they multiply less than all of it. Tiles of 6 for 3x3
    transform 64 points where those of 4 transform 36.
    """
    found = best_tilings(problem)
    cut = [one for one in found if one.taps]
    whole = sorted((one for one in found if not one.taps and one.out_tile < 6), reverse=True)
    return cut[:2] + whole


def product_guesses(product: GemmProblem, limits: Limits, slices: int = 1) -> Iterator[str]:
    """Yield the texts of the GEMM families' guesses, the least wasteful first.

    Args:
        product: of all points.
        limits: of the device.
        slices: the fewest into which the reduction is split.
    """
    if limits.kind == "cpu":
        for one in gemm_register.guesses(product, limits):
            register = replace(one, split_k=max(one.split_k, slices))
            yield Variant(gemm_register.NAME, register).to_text()
    shaped = [*_staged(product, limits, slices), *_copying(product, limits, slices)]
    for _, made in sorted(shaped, key=itemgetter(0)):
        yield made().to_text()


def _staged(product: GemmProblem, limits: Limits, slices: int) -> Iterator[tuple[float, Made]]:
    """Yield the guesses of `gemm_staged` with what they waste.

    Points are enough to fill a device: to split the reduction further only adds planes.
    """
    for shape in gemm_staged.shapes(product, limits):
        tile_m, tile_n, _, local_m, local_n = shape

        def made(shape: gemm_staged.Shape = shape) -> Variant:
            config = gemm_staged.guess(product, shape, limits)
            return Variant(gemm_staged.NAME, replace(config, split_k=slices))

        yield _waste(product, (tile_m, tile_n), (local_m, local_n), limits), made


def _copying(product: GemmProblem, limits: Limits, slices: int) -> Iterator[tuple[float, Made]]:
    """Yield the guesses of `gemm_async` with what they waste, where a device has `cp.async`.

    Operands lie as the transforms write them, so none is packed. Shapes that leave a device so idle
    that k is cut further are left out: work-groups would share each tile.
    """
    for shape in (*narrow(product, limits), *usual(product, limits)):
        tile, local = (shape.tile_m, shape.tile_n), (shape.local_m, shape.local_n)
        items = shape.local_m * shape.local_n * shape.local_k
        if fill(product, limits, *tile, shape.tile_k, items) > 1:
            continue

        def made(shape: Shape = shape) -> Variant:
            config = gemm_async.guess(product, shape, limits)
            return Variant(gemm_async.NAME, replace(config, split_k=slices))

        yield COPYING * _waste(product, tile, local, limits), made


def _waste(
    product: GemmProblem, tile: tuple[int, int], local: tuple[int, int], limits: Limits
) -> float:
    """Return how much longer than the multiply-adds alone a product takes by such tiles."""
    rows, columns = ceil_div(product.m, tile[0]), ceil_div(product.n, tile[1])
    edges = rows * tile[0] / product.m * (columns * tile[1] / product.n)
    reads = 1 + (2 * local[0] + 8) / tile[0] + (2 * local[1] + 8) / tile[1]
    return edges * reads * idleness(product.batch * rows * columns, local[0] * local[1], limits)


def by_rank(guesses: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield the first guess of each tile, then the second ones, up to `GUESSED` of each."""
    rows = [iter(row) for row in guesses]
    for row in rows * GUESSED:
        yield from islice(row, 1)
