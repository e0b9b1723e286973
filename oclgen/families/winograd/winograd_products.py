"""Tiles of the Winograd domain and the products over them that are the best guesses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from oclgen.families.gemm import gemm_register, gemm_staged
from oclgen.families.parts.blocking import idleness
from oclgen.families.winograd import winograd_common as common
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem, GemmProblem
from oclgen.variant import Variant

T = TypeVar("T")
GUESSED = 3
"""Products of each size of tile that are guessed."""


def out_tiles(problem: ConvProblem) -> list[int]:
    """Return the tiles, those first that multiply least with the edges that they overhang.

    Tiles of 6 multiply less than those of 4, but have twice as many points to transform.
    """

    def cost(out_tile: int) -> float:
        geo = common.geometry(problem, out_tile)
        covered = geo.tiles_h * geo.tiles_w * geo.points / (geo.out_h * geo.out_w)
        return covered * (1.3 if geo.points == common.MANY_POINTS else 1)

    return sorted(common.known_tiles(problem), key=cost)


def product_guesses(product: GemmProblem, limits: Limits) -> Iterator[str]:
    """Yield the texts of the GEMM families' guesses, the least wasteful first."""
    if limits.kind == "cpu":
        for register in gemm_register.guesses(product, limits):
            yield Variant(gemm_register.NAME, register).to_text()
    for staged in staged_guesses(product, limits):
        yield Variant(gemm_staged.NAME, staged).to_text()


def staged_guesses(product: GemmProblem, limits: Limits) -> Iterator[gemm_staged.Config]:
    """Yield those of `gemm_staged`, those first that compute least in vain and idle least."""

    def cost(shape: gemm_staged.Shape) -> float:
        tile_m, tile_n, _, local_m, local_n = shape
        rows, columns = ceil_div(product.m, tile_m), ceil_div(product.n, tile_n)
        edges = rows * tile_m / product.m * (columns * tile_n / product.n)
        reads = 1 + (2 * local_m + 8) / tile_m + (2 * local_n + 8) / tile_n
        return edges * reads * idleness(product.batch * rows * columns, local_m * local_n, limits)

    # slices and points are enough to fill a device: to split the reduction only adds planes
    for shape in sorted(gemm_staged.shapes(product, limits), key=cost):
        yield gemm_staged.guess(product, shape, limits)


def by_rank(guesses: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield the first guess of each tile, then the second ones, up to `GUESSED` of each."""
    rows = [iter(row) for row in guesses]
    for row in rows * GUESSED:
        yield from islice(row, 1)
