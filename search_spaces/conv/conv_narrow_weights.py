"""What is worth trying for `conv_narrow_weights`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from oclgen.families.conv.conv_narrow_weights import FLOAT_BYTES, UNIT_REGISTERS, Config, Shape
from oclgen.limits import Limits
from oclgen.plan import WARP, ceil_div, even_part
from oclgen.problem import DTYPES, ConvProblem
from search_spaces.blocking import waste

Values = Mapping[str, tuple[int, ...]]
Item = tuple[int, int, int, int]
ITEM = ("item_m", "item_c", "tap_rows", "patch_h")
GROUP = ("local_m", "local_c", "local_k", "stages")
MAX_WASTE = 1.15
"""What rows beyond the image may cost, in windows that are read."""
ITEMS_M, ITEMS_C, POINTWISE_C = (2, 4, 8, 16), (1, 2, 3), (2, 4, 8)
PATCHES = (1, 2, 4, 7, 8)
TILES_M, TILES_C = (1, 2, 4, 8), (1, 2, 4)
"""Tiles of a group at most, of which as many are taken as cut all tiles evenly."""
LANES = (WARP, 2 * WARP)
QUARTERS = (1, 2, 4, 8, 16, 32)
"""Planes for each four compute units."""
GROUPS_OF_ALL_LOCAL_MEMORY = 4
"""A GPU's unit has more local memory than it gives a group."""
SEEDS = 8


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter; one config on CPUs."""
    if limits.kind == "cpu":
        return {}
    items_m = _up_to(ITEMS_M, problem.out_channels)
    pointwise = problem.kernel_h * problem.kernel_w == 1
    items_c = _up_to(POINTWISE_C if pointwise else ITEMS_C, problem.in_channels)
    tiles_m = [ceil_div(problem.out_channels, item) for item in items_m]
    tiles_c = [ceil_div(problem.in_channels, item) for item in items_c]
    ahead = "cp_async" in limits.instructions and DTYPES[problem.dtype] == FLOAT_BYTES
    return {
        "item_m": items_m,
        "item_c": items_c,
        "tap_rows": tuple(dict.fromkeys((1, problem.kernel_h))),
        "patch_h": tuple(p for p in PATCHES if waste(problem.out_h, p) <= MAX_WASTE),
        "local_m": tuple({even_part(n, most) for n in tiles_m for most in TILES_M}),
        "local_c": tuple({even_part(n, most) for n in tiles_c for most in TILES_C}),
        "local_k": LANES,
        "stages": (2, 3, 4) if ahead else (1,),
        "split": tuple(max(n * limits.compute_units // 4, 1) for n in QUARTERS),
    }


def seeds(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return start points, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return []
    choices = values(problem, limits)
    found = [
        config
        for waves in (1, 4)
        for item in _items(problem, choices)
        if (config := _around(problem, limits, choices, item, waves))
    ]
    return found[:SEEDS]


def _items(problem: ConvProblem, choices: Values) -> list[Item]:
    """Return tiles of a work-item: 32 to 112 sums, for each of which little is read."""
    taps = problem.kernel_h
    if taps * problem.kernel_w == 1:
        items: tuple[Item, ...] = ((8, 8, 1, 2), (8, 4, 1, 4), (4, 8, 1, 4), (4, 4, 1, 4))
    else:
        items = ((8, 1, taps, 4), (8, 1, taps, 2), (4, 1, taps, 4), (16, 1, 1, 2), (8, 1, 1, 2))
    return [
        item
        for item in items
        if all(value in choices[name] for name, value in zip(ITEM, item, strict=True))
    ]


def _around(
    problem: ConvProblem, limits: Limits, choices: Values, item: Item, waves: int
) -> Config | None:
    """Return the group of such tiles that reads least again, in `waves` that fill the device.

    None if no group has enough registers and local memory.
    """
    groups = [
        config
        for m, c, k, stages in product(*(choices[name] for name in GROUP))
        if not (config := Config(*item, m, c, k, stages, 1)).why_not(problem, limits)
    ]
    if not groups:
        return None
    best = min(groups, key=lambda config: _cost(problem, config))
    shape = Shape(problem, best)
    resident = min(
        UNIT_REGISTERS // (shape.work_items * shape.registers),
        GROUPS_OF_ALL_LOCAL_MEMORY * limits.local_bytes // shape.local_bytes,
    )
    wanted = waves * limits.compute_units * resident // (shape.blocks_m * shape.blocks_c)
    split = min(choices["split"], key=lambda planes: abs(planes - wanted))
    return replace(best, split=split)


def _cost(problem: ConvProblem, config: Config) -> tuple[int, ...]:
    """Return what to compare groups of one tile by: waste, copies that wait, what is read again."""
    shape = Shape(problem, config)
    blocks = shape.blocks_m * shape.blocks_c
    tiles = blocks * config.local_m * config.local_c
    return tiles, -min(config.stages, 2), blocks, -shape.work_items, -config.stages


def _up_to(sizes: tuple[int, ...], extent: int) -> tuple[int, ...]:
    """Return the sizes of which half is not beyond the extent already."""
    return tuple(size for size in sizes if size == sizes[0] or size < 2 * extent)
