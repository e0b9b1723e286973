"""Gradient of filters by Winograd for CPUs: both images in tiles, blocks of sums that caches hold.

`winograd_weights` writes all transformed tiles to memory, which costs a CPU more than the
multiply-adds that it saves. Here a work-item transforms some tiles of a block of channels, and adds
their products to sums that its second cache holds. Images are in channels_last, so that channels
are the lanes of both transforms and of the product.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import product
from math import isqrt
from typing import TypeGuard

from oclgen.families.conv.conv_pixels_weights import is_multiplied
from oclgen.families.conv.conv_register_weights_plan import MAX_SPLIT, sum_of
from oclgen.families.parts.planes import PLANES, planes_space
from oclgen.families.parts.strided_weights import store_depths, strided_weights
from oclgen.families.winograd import winograd_common as common
from oclgen.families.winograd.winograd_common import FLOAT
from oclgen.families.winograd.winograd_filters import odd_lines
from oclgen.families.winograd.winograd_geometry import (
    FEW_POINTS_SUMMED,
    Geometry,
    OutTile,
    Taps,
    fits,
    geometry,
    most_summed,
    multiplied,
    tiling_why_not,
)
from oclgen.families.winograd.winograd_matrices import cook_toom
from oclgen.families.winograd.winograd_products import guessed_on_cpus
from oclgen.family import BaseConfig, Traits
from oclgen.limits import KIB, Limits
from oclgen.parameters import Item, Parts, Tile, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render, vector

NAME = "winograd_blocked_weights"

MAX_SUMS = 32
"""Vectors of sums of a register tile past which some are spilled to memory (AVX-512 has 32)."""
MOST_BYTES = 4096 * KIB
"""Bytes of scratch memory of a work-item that are worth trying."""
SUMS_BYTES = (768 * KIB, 192 * KIB)
"""Bytes of M that are guessed: second caches have 256 KiB to 2 MiB."""
TILES = 16
"""Tiles of a step that are guessed: a sum in registers is then loaded and stored rarely."""
GROWING = ("ROWS", "ROWS_PER_PLANE")
"""Sizes that grow with the batch: arguments, where it is free."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch"})

    out_tile: OutTile
    item_k: Item
    vec: Vector
    vecs: Item
    loop_k: Parts
    loop_c: Parts
    tile: Tile
    workers: Parts
    split: Parts
    taps: Taps = 0

    def geometry(self, problem: ConvProblem) -> Geometry:
        """Return the sizes of the tiles and blocks of the filter."""
        return geometry(problem, self.out_tile, self.taps)

    @property
    def block_k(self) -> int:
        """Filters of a block."""
        return self.item_k * self.loop_k

    @property
    def block_c(self) -> int:
        """Input channels of a block."""
        return self.vec * self.vecs * self.loop_c

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if limits.kind == "gpu":
            return f"{NAME} gives each work-item blocks of vectors; GPUs take winograd_weights"
        if self.vec not in VECTOR_WIDTHS or self.vec == 1:
            return f"vec={self.vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS[1:]}"
        if reason := tiling_why_not(problem, self.out_tile, self.taps):
            return reason
        geo = self.geometry(problem)
        if self.block_c > geo.channels:
            return f"blocks of {self.block_c} are more than {geo.channels} input channels"
        if not self.vec <= self.block_k <= geo.filters:
            return f"blocks of {self.block_k} filters: at least {self.vec}, at most {geo.filters}"
        if (vectors := self.item_k * self.vecs) > MAX_SUMS:
            return f"{vectors} vectors of sums; at most {MAX_SUMS} stay in registers"
        rows = geo.batch * geo.tiles_h
        if not 1 <= self.split <= rows:
            return f"split={self.split}, but there are only {rows} rows of tiles to be split"
        terms = self.tile + ceil_div(ceil_div(rows, self.split) * geo.tiles_w, self.tile)
        if terms > _most_terms(geo):
            return f"sums of {terms} terms lose digits; at most {_most_terms(geo)}: more slices"
        if (held := FLOAT * Scratch(geo, self).slot) > MOST_BYTES:
            return f"a work-item needs {held} bytes of scratch memory; at most {MOST_BYTES}"
        return None

    def multiplied(self, problem: ConvProblem) -> float:
        """Return the multiply-adds of the products over the problem's."""
        return multiplied(problem, self.out_tile, self.taps)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        slot = Scratch(self.geometry(problem), self).slot
        scratch = ("scratch", FLOAT * self.workers * slot)
        return Needs((Frame(NAME, (1,)),), (scratch, *planes_space(problem, self.split)))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of transformed tiles of both images."""
        geo = self.geometry(problem)
        used = covered(
            (geo.filters, self.block_k),
            (geo.channels, self.block_c),
            (geo.out_h, self.out_tile),
            (geo.out_w, self.out_tile),
        )
        return outer_product(
            self.vec, self.vecs, self.item_k, used,
            panel_step=self.block_c, strip_step=self.block_k,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where a work-item keeps V, Y and M; sizes in floats."""

    geo: Geometry
    config: Config

    @property
    def points(self) -> dict[str, int]:
        """From one point to the next, by name: odd numbers of lines do not share cache sets."""
        c = self.config
        return {
            "V_POINT": odd_lines(c.tile * c.block_c),
            "Y_POINT": odd_lines(c.tile * c.block_k),
            "M_POINT": odd_lines(c.block_k * c.block_c),
        }

    @property
    def slot(self) -> int:
        """Of one work-item."""
        return self.geo.points * sum(self.points.values())


DEFAULT = Config(
    out_tile=4, item_k=2, vec=2, vecs=1, loop_k=1, loop_c=1, tile=32, workers=1, split=1
)
TRAITS = Traits(rank=150, for_cpus=True, transforming=True)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether it is a gradient of filters of 2x2 or more, stride 1, in channels_last."""
    return (
        fits(problem)
        and problem.direction == "bwd_weights"
        and problem.layout == "nhwc"
        and min(problem.in_channels, problem.out_channels) > 1
    )


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "gpu" or is_multiplied(problem.dtype, limits):
        return []
    sizes = [geometry(problem, *tiling) for tiling in guessed_on_cpus(problem)]
    return [_guess(geo, limits, most) for most, geo in product(SUMS_BYTES, sizes)]


def _guess(geo: Geometry, limits: Limits, most: int) -> Config:
    """Return the config whose M has at most `most` bytes, in blocks that are near to squares."""
    width = min(limits.native_float_width, 1 << min(geo.channels, geo.filters).bit_length() - 1)
    vecs = min(2, geo.channels // width)
    held = most // (FLOAT * geo.points)
    loop_c = _parts(geo.channels, width * vecs, isqrt(held))
    item_k = _items(geo.filters, limits.vector_sums // vecs)
    loop_k = max(
        _parts(geo.filters, item_k, held // (width * vecs * loop_c)), ceil_div(width, item_k)
    )
    config = Config(
        geo.out_tile,
        item_k,
        width,
        vecs,
        loop_k,
        loop_c,
        TILES,
        limits.compute_units,
        split=1,
        taps=geo.taps if geo.blocks > 1 else 0,
    )
    of_channels = geo.blocks * ceil_div(geo.channels, config.block_c)
    blocks = of_channels * ceil_div(geo.filters, config.block_k)
    shares = 1 if blocks % limits.compute_units == 0 else ceil_div(4 * limits.compute_units, blocks)
    rows = geo.batch * geo.tiles_h
    terms = ceil_div(rows * geo.tiles_w, TILES)
    slices = max(shares, ceil_div(terms, _most_terms(geo) - TILES - 1))
    return replace(config, split=min(slices, rows, MAX_SPLIT))


def _parts(count: int, step: int, most: int) -> int:
    """Return the steps of a block: at most `most` items, and equal blocks of all."""
    steps = max(count // step, 1)
    return ceil_div(steps, ceil_div(steps, max(most // step, 1)))


def _items(filters: int, most: int) -> int:
    """Return the filters of a register tile: many, and as few as possible left over."""
    most = min(most, filters)
    return min(range(most, most // 2, -1), key=lambda items: filters % items)


def _most_terms(geo: Geometry) -> int:
    """Return the terms of sums that keep their digits."""
    return most_summed(geo) or FEW_POINTS_SUMMED


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches that sum over tiles, and add planes if there are."""
    geo = config.geometry(problem)
    scratch = Scratch(geo, config)
    rows = geo.batch * geo.tiles_h
    growing = {"ROWS": rows, "ROWS_PER_PLANE": ceil_div(rows, config.split)}
    given = GROWING if problem.free else ()
    own = {"CHANNELS": geo.channels, "KERNEL": geo.taps, "SLOT": scratch.slot}
    sizes = geo.sizes | own | scratch.points | growing
    left_out = {*given, "BATCH", "TILES", "SOURCE_CHANNELS"}

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config) | {"block_c": config.block_c, "block_k": config.block_k},
            preamble=dtype_preamble(problem.dtype),
            store_depths=store_depths(config.vec),
            sizes={name: value for name, value in sizes.items() if name not in left_out},
            given=given,
            axes=_axes(geo, config.vec),
            blocks=geo.blocks,
        )

    launch = Launch(
        text=text,
        kernel=NAME,
        global_size=(config.workers,),
        local_size=(1,),
        args=(
            *buffer("y"),
            *buffer("x"),
            *(buffer(PLANES) if config.split > 1 else strided_weights(problem)),
            *buffer("scratch"),
            *(Scalar(growing[name]) for name in given),
        ),
    )
    whole = sum_of(problem, config.split).behind(launch)
    return Plan(whole.launches, config.needs(problem).workspaces)


def _axes(geo: Geometry, width: int) -> str:
    """Return the functions that multiply one axis of a tile of x, of y, and of the sums."""
    of_filters = cook_toom(geo.taps, geo.out_tile)
    matrices = (of_filters.input, of_filters.filter, of_filters.output)
    axes = zip(("x_axis", "y_axis", "w_axis"), matrices, strict=True)
    return "\n\n".join(common.axis_function(*axis, vector(width)) for axis in axes)
