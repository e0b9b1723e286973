"""What is worth trying for the Winograd families, and why, with configs to begin with.

It says nothing about what is valid; that is each family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from oclgen.families.gemm.gemm_staged import Config as StagedGemm
from oclgen.families.winograd import (
    winograd_blocked,
    winograd_common,
    winograd_fused,
    winograd_staged,
    winograd_weights,
)
from oclgen.families.winograd.winograd_common import Geometry, geometry
from oclgen.families.winograd.winograd_staged import TILE_STEP, gemm_problem, gemm_text
from oclgen.limits import Limits
from oclgen.plan import ceil_div, round_up
from oclgen.problem import ConvProblem, GemmProblem
from search_spaces import gemm
from search_spaces.conv_gemm import ITEMS_PER_UNIT, idleness, waste

Value = int | bool | str
Values = Mapping[str, tuple[Value, ...]]
BOTH = (False, True)

REGISTERS = 28
"""Vectors of accumulators that leave room for operands in a file of 32."""
BLOCK = 16
"""Tiles that are enough for a block."""
VARIED_GEMMS = 2
"""Products whose neighbours are tried as well."""
SEEDED_GEMMS = 3
"""Products to begin with, of each size of tile."""
MANY_POINTS = 64
"""Points of the largest tiles: their transforms need most registers and lose most digits."""
SLICES = (1, 2, 4, 8, 16, 32, 64)
"""Parts of the tiles that the gradient of a filter is summed over."""


def blocked_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_blocked`; none on GPUs."""
    if limits.kind == "gpu":
        return {}
    width, units = limits.native_float_width, limits.compute_units
    rows = geometry(problem, 2).batch * geometry(problem, 2).tiles_h
    return {
        # 6 multiplies least, but its transforms cost more and its error is three times that of 4
        "out_tile": (2, 4, 6),
        # a block's V should stay in the second cache; whole images where they are small
        "tile_rows": tuple(r for r in (1, 2, 3, 4, 6, 8, 16) if r <= rows),
        # 7 and 14 divide the tiles of 14, 28, 56, ... pixels; the others fill the registers
        "item_t": (2, 4, 6, 7, 8, 12, 14, 16),
        "item_k": tuple(width * vectors for vectors in (1, 2, 3, 4)),
        "vec_k": (width,),
        "unroll_c": (1, 2, 4),
        # one per core wastes no cache; several even out what other work takes from a core
        "workers": tuple(dict.fromkeys((1, units, 2 * units, 4 * units))),
        # for images so small that their tiles do not make a block for every core
        "split_k": tuple(dict.fromkeys((1, units, 2 * units))),
        "filters_inside": BOTH,
    }


def blocked_seeds(problem: ConvProblem, limits: Limits) -> list[winograd_blocked.Config]:
    """Return start points for `winograd_blocked`, best guess first; some may not be valid."""
    if limits.kind == "gpu":
        return []
    return [
        seed for out_tile in (4, 2) for seed in _blocked_seeds(geometry(problem, out_tile), limits)
    ]


def _blocked_seeds(geo: Geometry, limits: Limits) -> Iterator[winograd_blocked.Config]:
    """Yield blocks of some 16 tiles and of one row, with one and two vectors of filters.

    Fewer tiles read U more often than they use it; more of them push V out of the cache.
    """
    width, units = limits.native_float_width, limits.compute_units
    rows = geo.batch * geo.tiles_h
    usual = min(max(round(BLOCK / geo.tiles_w), 1), rows)
    # where all tiles make one block, the cores share the filters and transform their own once
    few = ceil_div(rows, usual) < 2 * units and rows * geo.tiles_w <= 4 * BLOCK
    for tile_rows in dict.fromkeys((rows if few else usual, usual, 1)):
        for vectors in (1, 2):
            yield winograd_blocked.Config(
                out_tile=geo.out_tile, tile_rows=tile_rows,
                item_t=_item_t(tile_rows * geo.tiles_w, REGISTERS // vectors),
                item_k=vectors * width, vec_k=width, unroll_c=1,
                workers=1 if few else units, split_k=units if few else 1,
                filters_inside=few,
            )  # fmt: skip


def _item_t(block: int, most: int) -> int:
    """Return the tried size that leaves the fewest tiles to a smaller register tile."""
    sizes = [size for size in (16, 14, 12, 8, 7, 6, 4, 2) if size <= most]
    return min(sizes, key=lambda size: (block % size > 0, block % size, -size))


def fused_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_fused`; none on CPUs."""
    del problem
    if limits.kind == "cpu":
        return {}
    return {
        # tiles of 6 have 64 points: their blocks are too small to share anything
        "out_tile": (2, 4),
        "tile_t": (16, 32, 64),
        "tile_k": (16, 32, 64),
        "tile_c": (2, 4, 8),
        "item_t": (4, 8, 16),
        "item_k": (4, 8),
        "vec": (2, 4),
        # U is the same for every block of tiles: the cache may serve it as fast
        "stage_u": BOTH,
        "pad_v": (0, 4),
        "pad_u": (0, 4),
        "pad_m": (0, 1),
        "pass_k": (1, 2, 4),
    }


def fused_seeds(problem: ConvProblem, limits: Limits) -> list[winograd_fused.Config]:
    """Return start points for `winograd_fused`, best guess first; some may not be valid.

    Register tiles of 8 x 8 read 16 words of local memory for 64 mads; 36 points leave room for
    blocks of 32 x 32 and steps of 4 channels in 48 KiB.
    """
    del problem
    if limits.kind == "cpu":
        return []
    shapes = (
        (4, 32, 32, 4, 8, 8, 2), (4, 32, 16, 4, 8, 4, 1), (4, 32, 32, 4, 16, 8, 2),
        (2, 32, 32, 8, 8, 8, 4), (2, 32, 64, 4, 8, 8, 2), (2, 64, 32, 4, 8, 8, 2),
    )  # fmt: skip
    return [
        winograd_fused.Config(
            out_tile=out_tile, tile_t=tile_t, tile_k=tile_k, tile_c=tile_c, item_t=item_t,
            item_k=item_k, vec=4, stage_u=stage_u, pad_v=0, pad_u=0, pad_m=1, pass_k=pass_k,
        )
        for out_tile, tile_t, tile_k, tile_c, item_t, item_k, pass_k in shapes
        for stage_u in (True, False)
    ]  # fmt: skip


def staged_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_staged`."""
    products = [
        text
        for out_tile in (4, 2)
        for text in _products(gemm_problem(geometry(problem, out_tile)), limits)
    ]
    if limits.kind == "cpu":
        width = limits.native_float_width
        return {
            "out_tile": (2, 4, 6),
            "vec_t": (1, width),
            "local_t": (1, 4),
            "vec_k": (1, width),
            "local_k": (1,),
            "gemm": tuple(dict.fromkeys(products)),
        }
    return {
        "out_tile": tuple(_out_tiles(problem)),
        # neighbouring work-items have neighbouring tiles, so that every point is read in one go
        "vec_t": (1, 2),
        "local_t": (32, 64, 128, 256),
        "vec_k": (1,),
        "local_k": (32, 64),
        "gemm": tuple(dict.fromkeys(products)),
    }


def staged_seeds(problem: ConvProblem, limits: Limits) -> list[winograd_staged.Config]:
    """Return start points for `winograd_staged`, best guess first; some may not be valid."""
    on_cpu = limits.kind == "cpu"
    return [
        winograd_staged.Config(
            out_tile=out_tile,
            vec_t=limits.native_float_width if on_cpu else 1,
            local_t=1 if on_cpu else 128,
            vec_k=1,
            local_k=1 if on_cpu else 32,
            gemm=texts[rank],
        )
        for rank in range(SEEDED_GEMMS)
        for out_tile in _out_tiles(problem)
        if rank < len(texts := _seeded_products(gemm_problem(geometry(problem, out_tile)), limits))
    ]


def weights_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_weights`; none on CPUs."""
    if limits.kind == "cpu":
        return {}
    seeds = weights_seeds(problem, limits)
    products = [
        text
        for seed in seeds[: len(_out_tiles(problem))]
        for text in _products(_weights_product(problem, seed.out_tile, seed.slice_t), limits)
    ]
    return {
        "out_tile": tuple(_out_tiles(problem)),
        # more slices fill the device, fewer leave less to sum
        "slice_t": tuple(
            _slice(geometry(problem, out_tile), count)
            for out_tile in _out_tiles(problem)
            for count in SLICES
        ),
        "local_t": (32, 64, 128, 256),
        "local_c": (32, 64),
        "gemm": tuple(dict.fromkeys(products)),
    }


def weights_seeds(problem: ConvProblem, limits: Limits) -> list[winograd_weights.Config]:
    """Return start points for `winograd_weights`, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return []
    seeds = []
    for rank in range(SEEDED_GEMMS):
        for out_tile in _out_tiles(problem):
            slice_t = _full_slice(geometry(problem, out_tile), limits)
            texts = _seeded_products(_weights_product(problem, out_tile, slice_t), limits)
            seeds += [
                winograd_weights.Config(out_tile, slice_t, local_t=128, local_c=64, gemm=text)
                for text in texts[rank : rank + 1]
            ]
    return seeds


def _out_tiles(problem: ConvProblem) -> list[int]:
    """Return the tiles, those first that multiply least with the edges that they overhang.

    Tiles of 6 multiply less than those of 4, but have twice as many points to transform.
    """

    def cost(out_tile: int) -> float:
        geo = geometry(problem, out_tile)
        covered = geo.tiles_h * geo.tiles_w * geo.points / (geo.out_h * geo.out_w)
        return covered * (1.3 if geo.points == MANY_POINTS else 1)

    tiles = [tile for tile in winograd_common.OUT_TILES if geometry(problem, tile).has_points]
    return sorted(tiles, key=cost)


def _weights_product(problem: ConvProblem, out_tile: int, slice_t: int) -> GemmProblem:
    return winograd_weights.gemm_problem(geometry(problem, out_tile), slice_t)


def _slice(geo: Geometry, count: int) -> int:
    """Return the tiles of a slice, for about so many slices."""
    return round_up(ceil_div(geo.tiles, count), TILE_STEP)


def _full_slice(geo: Geometry, limits: Limits) -> int:
    """Return the tiles of the longest slice that leaves every compute unit its work-items."""
    results = geo.points * round_up(geo.filters, 64) * round_up(geo.channels, 64)
    wanted = ITEMS_PER_UNIT * limits.compute_units * 64 / results
    return _slice(geo, next((count for count in SLICES if count >= wanted), SLICES[-1]))


def _seeded_products(product: GemmProblem, limits: Limits) -> list[str]:
    """Return the products that the GEMM families begin with, the least wasteful first."""
    if limits.kind == "cpu":
        registers = gemm.register_seeds(product, limits)
        return [gemm_text("gemm_register", seed) for seed in registers]
    return [gemm_text("gemm_staged", seed) for seed in _staged_gemms(product, limits)]


def _staged_gemms(product: GemmProblem, limits: Limits) -> list[StagedGemm]:
    """Return the seeds of `gemm_staged`, those first that compute least in vain and idle least."""

    def cost(seed: StagedGemm) -> float:
        tiles = product.batch * ceil_div(product.m, seed.tile_m) * ceil_div(product.n, seed.tile_n)
        edges = waste(product.m, seed.tile_m) * waste(product.n, seed.tile_n)
        reads = 1 + (2 * seed.local_m + 8) / seed.tile_m + (2 * seed.local_n + 8) / seed.tile_n
        return edges * reads * idleness(tiles, seed.work_items, limits)

    # slices and points are enough to fill a device: to split the reduction only adds planes
    seeds = [replace(seed, split_k=1) for seed in gemm.staged_seeds(product, limits)]
    return sorted(seeds, key=cost)


def _products(product: GemmProblem, limits: Limits) -> list[str]:
    """Return the seeds, and on GPUs whatever differs from the first ones in one parameter."""
    texts = _seeded_products(product, limits)
    if limits.kind == "cpu":
        return texts
    values = {**gemm.staged_values(product, limits), "split_k": (1,)}
    for seed in _staged_gemms(product, limits)[:VARIED_GEMMS]:
        texts += [gemm_text("gemm_staged", near) for near in _neighbours(seed, values)]
    return texts


def _neighbours(config: StagedGemm, values: Values) -> Iterator[StagedGemm]:
    for name, choices in values.items():
        for value in choices:
            change: dict[str, Any] = {name: value}
            yield replace(config, **change)
