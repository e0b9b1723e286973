"""Tiles of the Winograd domain and the products over them that are worth trying."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from oclgen.families.gemm.gemm_staged import Config as StagedGemm
from oclgen.families.winograd import winograd_common
from oclgen.families.winograd.winograd_common import geometry
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem, GemmProblem
from oclgen.variant import Variant
from search_spaces.blocking import idleness, waste
from search_spaces.gemm import gemm_register, gemm_staged
from search_spaces.values import Values

SEEDED_GEMMS = 3
"""Products to begin with, of each size of tile."""
VARIED_GEMMS = 2
"""Products whose neighbours are tried as well."""
MANY_POINTS = 64
"""Points of the largest tiles: their transforms need most registers and lose most digits."""


def out_tiles(problem: ConvProblem) -> list[int]:
    """Return the tiles, those first that multiply least with the edges that they overhang.

    Tiles of 6 multiply less than those of 4, but have twice as many points to transform.
    """

    def cost(out_tile: int) -> float:
        geo = geometry(problem, out_tile)
        covered = geo.tiles_h * geo.tiles_w * geo.points / (geo.out_h * geo.out_w)
        return covered * (1.3 if geo.points == MANY_POINTS else 1)

    tiles = [tile for tile in winograd_common.OUT_TILES if geometry(problem, tile).has_points]
    return sorted(tiles, key=cost)


def seeded_products(product: GemmProblem, limits: Limits) -> list[str]:
    """Return the products that the GEMM families begin with, the least wasteful first."""
    if limits.kind == "cpu":
        registers = gemm_register.seeds(product, limits)
        return [Variant("gemm_register", seed).to_text() for seed in registers]
    return [Variant("gemm_staged", seed).to_text() for seed in _staged_gemms(product, limits)]


def _staged_gemms(product: GemmProblem, limits: Limits) -> list[StagedGemm]:
    """Return the seeds of `gemm_staged`, those first that compute least in vain and idle least."""

    def cost(seed: StagedGemm) -> float:
        tiles = product.batch * ceil_div(product.m, seed.tile_m) * ceil_div(product.n, seed.tile_n)
        edges = waste(product.m, seed.tile_m) * waste(product.n, seed.tile_n)
        reads = 1 + (2 * seed.local_m + 8) / seed.tile_m + (2 * seed.local_n + 8) / seed.tile_n
        return edges * reads * idleness(tiles, seed.work_items, limits)

    # slices and points are enough to fill a device: to split the reduction only adds planes
    seeds = [replace(seed, split_k=1) for seed in gemm_staged.seeds(product, limits)]
    return sorted(seeds, key=cost)


def products(product: GemmProblem, limits: Limits) -> list[str]:
    """Return the seeds, and on GPUs whatever differs from the first ones in one parameter."""
    texts = seeded_products(product, limits)
    if limits.kind == "cpu":
        return texts
    values = {**gemm_staged.values(product, limits), "split_k": (1,)}
    for seed in _staged_gemms(product, limits)[:VARIED_GEMMS]:
        texts += [Variant("gemm_staged", near).to_text() for near in _neighbours(seed, values)]
    return texts


def _neighbours(config: StagedGemm, values: Values) -> Iterator[StagedGemm]:
    for name, choices in values.items():
        for value in choices:
            change: dict[str, Any] = {name: value}
            yield replace(config, **change)
