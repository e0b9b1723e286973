"""What is worth trying for `conv_narrow_weights`, and configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import prod

from oclgen.families.conv_narrow_weights import UNIT_REGISTERS, Config, Shape
from oclgen.limits import Limits
from oclgen.plan import WARP, ceil_div, even_part, round_up
from oclgen.problem import ConvProblem
from search_spaces.conv_gemm import waste

Values = Mapping[str, tuple[int, ...]]
Item = tuple[int, int, int, int]
"""item_m, item_c, tap_rows and patch_h."""
MAX_WASTE = 1.15
"""What rows beyond the image may cost, in windows that are read."""
ITEMS_M = (2, 4, 8, 16)
LANES = (WARP, 2 * WARP, 4 * WARP)
TILES_M, TILES_C = (1, 2, 4, 8), (1, 2, 4)
"""Tiles of a group at most, of which as many are taken as cut all tiles evenly."""
QUARTERS = (1, 2, 4, 8, 12, 16, 32)
"""Planes for each four compute units."""
SEEDS = 8


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter; one config on CPUs."""
    if limits.kind == "cpu":
        return {}
    pointwise = problem.kernel_h * problem.kernel_w == 1
    items_m = _up_to(ITEMS_M, problem.out_channels)
    items_c = _up_to((2, 4, 8) if pointwise else (1, 2, 3), problem.in_channels)
    tap_rows = tuple(dict.fromkeys((1, problem.kernel_h)))
    rows = [ceil_div(problem.kernel_h, taps) for taps in tap_rows]
    tiles_m = [ceil_div(problem.out_channels, item) for item in items_m]
    tiles_c = [n * ceil_div(problem.in_channels, c) for n in rows for c in items_c]
    return {
        "item_m": items_m,
        "item_c": items_c,
        "tap_rows": tap_rows,
        "patch_h": tuple(p for p in (1, 2, 4, 7, 8) if waste(problem.out_h, p) <= MAX_WASTE),
        "local_m": tuple({even_part(n, most) for n in tiles_m for most in TILES_M}),
        "local_c": tuple({even_part(n, most) for n in tiles_c for most in TILES_C}),
        "local_k": LANES,
        "split": tuple(max(n * limits.compute_units // 4, 1) for n in QUARTERS),
    }


def seeds(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return start points, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return []
    choices = values(problem, limits)
    items = [item for item in _items(problem) if _worth(item, choices)]
    return [_around(problem, limits, item, waves) for waves in (1, 4) for item in items][:SEEDS]


def _items(problem: ConvProblem) -> tuple[Item, ...]:
    """Return tiles of a work-item: 36 to 112 sums, for each of which little is loaded."""
    if problem.kernel_h * problem.kernel_w == 1:
        return ((8, 8, 1, 2), (8, 4, 1, 4), (4, 8, 1, 4), (4, 4, 1, 8), (8, 2, 1, 4))
    taps = problem.kernel_h
    return ((8, 1, taps, 4), (8, 1, taps, 2), (16, 1, 1, 2), (4, 1, taps, 8), (8, 1, 1, 4))


def _worth(item: Item, choices: Values) -> bool:
    """Say whether all parts of a work-item's tile are among the values."""
    return all(
        value in choices[name]
        for name, value in zip(("item_m", "item_c", "tap_rows", "patch_h"), item, strict=True)
    )


def _around(problem: ConvProblem, limits: Limits, item: Item, waves: int) -> Config:
    """Return a group of as many tiles as its registers hold, in `waves` that fill the device."""
    item_m, item_c, tap_rows, patch_h = item
    one = Config(item_m, item_c, tap_rows, patch_h, 1, 1, WARP, 1)
    shape, choices = Shape(problem, one), values(problem, limits)
    warps = UNIT_REGISTERS // (WARP * shape.registers)
    local_m, local_c = min(
        (pair for pair in product(choices["local_m"], choices["local_c"]) if prod(pair) <= warps),
        key=lambda pair: (
            round_up(shape.tiles_m, pair[0]) * round_up(shape.tiles_c, pair[1]), -prod(pair)
        ),
    )  # fmt: skip
    tiles = local_m * local_c
    local_k = max(lanes for lanes in LANES if lanes * tiles <= max(WARP * warps, WARP * tiles))
    groups = waves * limits.compute_units * (WARP * warps // (local_k * tiles))
    blocks = ceil_div(shape.tiles_m, local_m) * ceil_div(shape.tiles_c, local_c)
    split = min(choices["split"], key=lambda planes: abs(planes - groups // blocks))
    return replace(one, local_m=local_m, local_c=local_c, local_k=local_k, split=split)


def _up_to(sizes: tuple[int, ...], extent: int) -> tuple[int, ...]:
    """Return the sizes of which half is not beyond the extent already."""
    return tuple(size for size in sizes if size == sizes[0] or size < 2 * extent)
