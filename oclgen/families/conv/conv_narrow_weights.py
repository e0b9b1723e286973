"""Gradient of the weights of convolutions with few channels, in planes, on GPUs.

The result is as small as the weights, and each of its items is a sum over all pixels of all images.
So work-items divide the pixels among them, and not only the results, and no tile is padded. If the
device has `cp.async`, copies run ahead; compilers would move loads into registers to the place
where the values are used. `depthwise_weights` serves depthwise weights, implicit GEMM and Winograd
serve many channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import groupby, product
from math import gcd
from typing import TypeGuard

from oclgen.families.conv.correlation import Correlation, output_elements, windows
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.growing import parted
from oclgen.families.parts.planes import PLANES, planes_space, sum_planes
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Local, Parts, Stages
from oclgen.plan import (
    WARP,
    Frame,
    Launch,
    LazyText,
    Needs,
    Plan,
    Scalar,
    buffer,
    ceil_div,
    even_part,
)
from oclgen.problem import DTYPES, ConvProblem, Problem, in_planes
from oclgen.render import dtype_preamble, render

NAME = "conv_narrow_weights"

MAX_WEIGHTS = 1 << 14
"""Weights above which the product fills the tiles of implicit GEMM."""
MAX_KERNEL = 8
"""Taps along a row or a column, each of which has an accumulator of its own."""
UNIT_REGISTERS, ITEM_REGISTERS = 1 << 16, 224
"""Registers that a GPU's unit has, and those of a work-item up to which none were spilled."""
FEW_REGISTERS = 112
"""The same on a device whose work-items have few (`Limits.has_few_registers`)."""
OTHER_REGISTERS = 32
"""Those of a work-item that hold neither sums nor elements of images: addresses and tests."""
FLOAT_BYTES = 4
SLICES = 16
"""Work-items that share the planes of one sum: there are few weights and many planes."""
Sizes = dict[str, tuple[int, ...]]
"""Sizes worth trying of each parameter."""
Block = tuple[int, int, int, int]
"""item_m, item_c, tap_rows and patch_h."""
ITEMS_M, ITEMS_C, POINTWISE_C = (2, 4, 8, 16), (1, 2, 3), (2, 4, 8)
PATCHES = (1, 2, 4, 7, 8)
MAX_WASTE = 1.15
"""Factor by which rows beyond the image may increase the windows that are read."""
TILES_M, TILES_C = (1, 2, 4, 8), (1, 2, 4)
"""Tiles of a group at most, of which as many are taken as cut all tiles evenly."""
LANES = (WARP, 2 * WARP)
QUARTERS = (1, 2, 4, 8, 16, 32)
"""Planes for every four compute units."""
GROUPS_OF_ALL_LOCAL_MEMORY = 4
"""A GPU's unit has more local memory than it gives a group."""
MOST_GUESSES = 8
GROWING = ("PATCHES", "ROUNDS")
"""Sizes that grow with the batch: arguments, where it is free."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch"})

    item_m: Item
    item_c: Item
    tap_rows: Item
    patch_h: Item
    local_m: Local
    local_c: Local
    local_k: Local
    stages: Stages
    split: Parts

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := self._stages_why_not(problem, limits):
            return reason
        return self._registers_why_not(shape_of(problem, self))

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        shape = shape_of(problem, self)
        frame = Frame(NAME, (shape.work_items, 1, 1), shape.local_bytes)
        return Needs((frame,), planes_space(problem, shape.planes))

    def _stages_why_not(self, problem: ConvProblem, limits: Limits) -> str | None:
        if self.stages > 1 and DTYPES[problem.dtype] != FLOAT_BYTES:
            return f"stages={self.stages} copies words as they are; {problem.dtype} needs stages=1"
        return limits.why_no("cp_async") if self.stages > 1 else None

    def _registers_why_not(self, shape: Shape) -> str | None:
        items = shape.work_items
        registers = min(UNIT_REGISTERS // items, ITEM_REGISTERS)
        if shape.registers > registers:
            return (
                f"item_m={self.item_m} item_c={self.item_c} tap_rows={self.tap_rows} "
                f"patch_h={self.patch_h} needs some {shape.registers} registers in each of "
                f"{items} work-items; they have {registers}"
            )
        return None


class Shape:
    """What a config makes of a problem: tiles of results, patches of pixels, planes."""

    def __init__(self, problem: ConvProblem, config: Config) -> None:
        part = self.part = windows(problem)
        rows = part.rows
        self.tap_rows = min(config.tap_rows, rows.taps)
        self.bands = ceil_div(rows.results, config.patch_h)
        self.patches = part.batch * self.bands * part.cols.results
        # a work-item has as many patches as its neighbours, except for the last plane
        self.rounds = ceil_div(self.patches, config.local_k * config.split)
        self.planes = ceil_div(self.patches, config.local_k * self.rounds)
        if problem.free and config.split > 1:
            self.planes = max(self.planes, 2)  # the text has planes, however few images there are
        self.tap_tiles = ceil_div(rows.taps, self.tap_rows)
        self.tiles_m = ceil_div(part.channels, config.item_m)
        self.tiles_c = ceil_div(part.depth, config.item_c)
        self.blocks_m = ceil_div(self.tiles_m, config.local_m)
        self.blocks_c = ceil_div(self.tiles_c, config.local_c)
        self.work_items = config.local_m * config.local_c * self.tap_tiles * config.local_k
        self.span = config.item_c * self.tap_rows * part.cols.taps
        # rows of x that no tap reads, between those of strides or of dilations, are not copied
        apart = (rows.step,) * (config.patch_h > 1) + (rows.tap_step,) * (rows.taps > 1)
        self.row_step = gcd(*apart) or 1
        self.step, self.tap_step = rows.step // self.row_step, rows.tap_step // self.row_step
        first_taps = (config.patch_h - 1) * self.step + 1
        # windows of all rows of taps, the last tile's beyond the kernel included, and of one tile
        self.window_h = first_taps + (self.tap_rows * self.tap_tiles - 1) * self.tap_step
        self.tile_h = first_taps + (self.tap_rows - 1) * self.tap_step
        window = config.item_c * self.tile_h * part.cols.taps
        self.registers = config.item_m * self.span + window + OTHER_REGISTERS
        copied = config.local_m * config.item_m * config.patch_h
        copied += config.local_c * config.item_c * self.window_h * part.cols.taps
        words = max(config.stages * copied * config.local_k, self.span * self.work_items)
        self.local_bytes = FLOAT_BYTES * words


@lru_cache(maxsize=64)
def shape_of(problem: ConvProblem, config: Config) -> Shape:
    """Return what a config makes of a problem."""
    return Shape(problem, config)


DEFAULT = Config(
    item_m=2, item_c=1, tap_rows=8, patch_h=1, local_m=2, local_c=1, local_k=32, stages=1, split=512
)
TRAITS = Traits(
    rank=230, instructions=frozenset({"cp_async"}), sparing=replace(DEFAULT, tap_rows=4, local_m=1)
)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        in_planes(problem)
        and problem.direction == "bwd_weights"
        and problem.groups == 1
        and max(problem.kernel_h, problem.kernel_w) <= MAX_KERNEL
        and output_elements(problem) <= MAX_WEIGHTS
    )


def guesses(problem: ConvProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs for an untuned problem, best guess first; some may not be valid.

    First those whose planes fill a GPU once, then the same with planes for four times.
    """
    if limits.kind == "cpu":
        return
    sizes, found = sizes_tried(problem, limits), []
    for item in _items(problem, sizes):
        if config := _around(problem, limits, sizes, item):
            found.append(config)
            yield _filled(problem, limits, sizes, config, 1)
    for config in found[: MOST_GUESSES - len(found)]:
        yield _filled(problem, limits, sizes, config, 4)


def sizes_tried(problem: ConvProblem, limits: Limits) -> Sizes:
    """Return the sizes of each parameter that are worth trying on a GPU."""
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


def _up_to(sizes: tuple[int, ...], extent: int) -> tuple[int, ...]:
    """Return the sizes of which half is not beyond the extent already."""
    return tuple(size for size in sizes if size == sizes[0] or size < 2 * extent)


def _items(problem: ConvProblem, sizes: Sizes) -> list[Block]:
    """Return tiles of a work-item: 32 to 112 sums, for each of which little is read."""
    taps = problem.kernel_h
    if taps * problem.kernel_w == 1:
        items: tuple[Block, ...] = ((8, 8, 1, 2), (8, 4, 1, 4), (4, 8, 1, 4), (4, 4, 1, 4))
    else:
        items = ((8, 1, taps, 4), (8, 1, taps, 2), (4, 1, taps, 4), (16, 1, 1, 2), (8, 1, 1, 2))
    tried = [sizes[name] for name in ("item_m", "item_c", "tap_rows", "patch_h")]
    return [one for one in items if all(size in of for size, of in zip(one, tried, strict=True))]


def _around(problem: ConvProblem, limits: Limits, sizes: Sizes, item: Block) -> Config | None:
    """Return the group of such tiles that computes least in vain, then that reads least again.

    Of several it is the one with most work-items, then with most stages. None if no group has
    enough registers and local memory.
    """
    one = Shape(problem, Config(*item, 1, 1, 1, 1, 1))
    if one.registers > (FEW_REGISTERS if limits.has_few_registers else ITEM_REGISTERS):
        return None
    most = min(limits.max_work_group, UNIT_REGISTERS // one.registers) // one.tap_tiles

    def cost(tiles: tuple[int, int]) -> tuple[int, int]:
        m, c = tiles
        blocks = ceil_div(one.tiles_m, m) * ceil_div(one.tiles_c, c)
        return blocks * m * c, blocks

    pairs = sorted(product(sizes["local_m"], sizes["local_c"]), key=cost)
    for _, alike in groupby(pairs, key=cost):
        # these tiles have the same cost, so the first that is valid is taken
        for k, stages, (m, c) in product(sizes["local_k"][::-1], sizes["stages"][::-1], [*alike]):
            config = Config(*item, m, c, k, stages, 1)
            if m * c * k <= most and config.why_not(problem, limits) is None:
                return config
    return None


def _filled(
    problem: ConvProblem, limits: Limits, sizes: Sizes, config: Config, waves: int
) -> Config:
    """Return the config with the planes that fill the device about `waves` times."""
    shape = Shape(problem, config)
    resident = min(
        UNIT_REGISTERS // (shape.work_items * shape.registers),
        GROUPS_OF_ALL_LOCAL_MEMORY * limits.local_bytes // shape.local_bytes,
    )
    wanted = waves * limits.compute_units * resident // (shape.blocks_m * shape.blocks_c)
    return replace(config, split=min(sizes["split"], key=lambda planes: abs(planes - wanted)))


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launch that sums over patches, and the sum of the planes if there are any."""
    shape = shape_of(problem, config)
    planes = replace(sum_planes(problem, shape.planes, SLICES), grows=bool(problem.free))
    return planes.behind(_launch(problem, config, shape))


def _launch(problem: ConvProblem, config: Config, shape: Shape) -> Launch:
    part, ragged = shape.part, shape.part.rows.results % config.patch_h != 0
    beyond = shape.tap_rows * shape.tap_tiles > part.rows.taps
    sizes = parted(problem, _sizes(part, shape), GROWING)
    values = {**asdict(config), "tap_rows": shape.tap_rows, "split": shape.planes}

    @LazyText
    def text() -> str:
        return render(
            NAME,
            preamble=dtype_preamble(problem.dtype),
            sizes=sizes.text,
            given=tuple(sizes.given),
            work_items=shape.work_items,
            window_h=shape.window_h,
            local_words=shape.local_bytes // FLOAT_BYTES,
            checked_h=ragged or beyond or not part.rows.inside,
            checked_w=not part.cols.inside,
            ragged=ragged,
            edge_m=part.channels % (config.item_m * config.local_m) != 0,
            edge_c=part.depth % (config.item_c * config.local_c) != 0,
            **values,
        )

    return Launch(
        text=text,
        kernel=NAME,
        global_size=(shape.work_items * shape.blocks_m * shape.blocks_c, shape.planes, 1),
        local_size=(shape.work_items, 1, 1),
        args=(
            *buffer("y"),
            *buffer("x"),
            *buffer(PLANES if shape.planes > 1 else "w"),
            *map(Scalar, sizes.given.values()),
        ),
        local_bytes=shape.local_bytes,
    )


def _sizes(part: Correlation, shape: Shape) -> dict[str, int]:
    rows, cols = part.rows, part.cols
    return {
        "CHANNELS": part.channels, "DEPTH": part.depth,
        "RESULTS_H": rows.results, "RESULTS_W": cols.results,
        "READ_H": rows.read, "READ_W": cols.read, "STEP_H": rows.step, "STEP_W": cols.step,
        "TAPS_H": rows.taps, "TAPS_W": cols.taps, "TAP_STEP_W": cols.tap_step,
        "ROW_STEP": shape.row_step, "WINDOW_STEP": shape.step, "WINDOW_TAP_STEP": shape.tap_step,
        "ORIGIN_H": rows.origin, "ORIGIN_W": cols.origin,
        "BANDS": shape.bands, "PATCHES": shape.patches, "ROUNDS": shape.rounds,
        "WINDOW_H": shape.window_h, "TILE_H": shape.tile_h,
        "TAP_TILES": shape.tap_tiles, "BLOCKS_M": shape.blocks_m,
    }  # fmt: skip
