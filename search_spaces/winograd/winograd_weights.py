"""What is worth trying for `winograd_weights`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from oclgen.families.winograd import winograd_weights
from oclgen.families.winograd.winograd_common import Geometry, geometry
from oclgen.families.winograd.winograd_staged import TILE_STEP
from oclgen.limits import Limits
from oclgen.plan import ceil_div, round_up
from oclgen.problem import ConvProblem, GemmProblem
from search_spaces.blocking import ITEMS_PER_UNIT
from search_spaces.values import Values
from search_spaces.winograd.products import SEEDED_GEMMS, out_tiles, products, seeded_products

SLICES = (1, 2, 4, 8, 16, 32, 64)
"""Parts of the tiles that the gradient of a filter is summed over."""


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `winograd_weights`; none on CPUs."""
    if limits.kind == "cpu":
        return {}
    gemms = [
        text
        for seed in seeds(problem, limits)[: len(out_tiles(problem))]
        for text in products(_weights_product(problem, seed.out_tile, seed.slice_t), limits)
    ]
    return {
        "out_tile": tuple(out_tiles(problem)),
        # more slices fill the device, fewer leave less to sum
        "slice_t": tuple(
            _slice(geometry(problem, out_tile), count)
            for out_tile in out_tiles(problem)
            for count in SLICES
        ),
        "local_t": (32, 64, 128, 256),
        "local_c": (32, 64),
        "gemm": tuple(dict.fromkeys(gemms)),
    }


def seeds(problem: ConvProblem, limits: Limits) -> list[winograd_weights.Config]:
    """Return start points for `winograd_weights`, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return []
    found = []
    for rank in range(SEEDED_GEMMS):
        for out_tile in out_tiles(problem):
            slice_t = _full_slice(geometry(problem, out_tile), limits)
            texts = seeded_products(_weights_product(problem, out_tile, slice_t), limits)
            found += [
                winograd_weights.Config(out_tile, slice_t, local_t=128, local_c=64, gemm=text)
                for text in texts[rank : rank + 1]
            ]
    return found


def _weights_product(problem: ConvProblem, out_tile: int, slice_t: int) -> GemmProblem:
    return winograd_weights.gemm_problem(geometry(problem, out_tile), slice_t)


def _slice(geo: Geometry, count: int) -> int:
    """Return the tiles of a slice, for about `count` slices."""
    return round_up(ceil_div(geo.tiles, count), TILE_STEP)


def _full_slice(geo: Geometry, limits: Limits) -> int:
    """Return the tiles of the longest slice that leaves every compute unit its work-items."""
    results = geo.points * round_up(geo.filters, 64) * round_up(geo.channels, 64)
    wanted = ITEMS_PER_UNIT * limits.compute_units * 64 / results
    return _slice(geo, next((count for count in SLICES if count >= wanted), SLICES[-1]))
