"""Winograd convolution for CPUs: a work-item takes a block of tiles from the input to the output.

It is not for GPUs, whose work-items share local memory; that is `winograd_fused`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TypeGuard

from oclgen.families.parts.epilogue import epilogue, store_channels, terms
from oclgen.families.winograd import winograd_common as common
from oclgen.families.winograd import winograd_filters
from oclgen.families.winograd.winograd_blocked_text import Pixels
from oclgen.families.winograd.winograd_common import FLOAT
from oclgen.families.winograd.winograd_geometry import (
    Geometry,
    OutTile,
    Taps,
    fits,
    geometry,
    multiplied,
    slices_of,
    tiling_why_not,
)
from oclgen.families.winograd.winograd_products import guessed_on_cpus
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Parts, Unroll, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render, vector

__all__ = ["DEFAULT", "NAME", "TRAITS", "Config", "guesses", "plan", "serves"]

NAME = "winograd_blocked"

MAX_ACCUMULATORS = 512
"""Private floats per work-item past which every compiler tried here spills to memory."""
LANES = 16
"""Widest vector."""
CHANNELS_PER_ITEM = 16
"""Channels a work-item of the filter transform takes: all that its cache lines of w hold."""
BLOCK = 16
"""Tiles that are enough for a block."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch"})

    out_tile: OutTile
    tile_rows: Item
    item_t: Item
    item_k: Item
    vec_k: Vector
    unroll_c: Unroll
    workers: Parts
    split_k: Parts
    filters_inside: bool
    taps: Taps = 0

    def geometry(self, problem: ConvProblem) -> Geometry:
        """Return the sizes of the tiles and blocks."""
        return geometry(problem, self.out_tile, self.taps)

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if limits.kind == "gpu":
            return (
                "a block has a work-group of 1 work-item, which leaves a GPU idle. "
                "Try winograd_fused or winograd_staged."
            )
        if reason := tiling_why_not(problem, self.out_tile, self.taps):
            return reason
        geo = self.geometry(problem)
        if self.vec_k not in VECTOR_WIDTHS:
            return f"vec_k={self.vec_k} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if self.item_k % self.vec_k:
            return f"item_k={self.item_k} is no multiple of vec_k={self.vec_k}"
        if self.item_t * self.item_k > MAX_ACCUMULATORS:
            return (
                f"item_t={self.item_t} item_k={self.item_k} needs {self.item_t * self.item_k} "
                f"accumulators; at most {MAX_ACCUMULATORS} stay in registers"
            )
        panels = ceil_div(geo.filters, self.item_k)
        if self.split_k > panels:
            return f"split_k={self.split_k} exceeds the {panels} panels of item_k={self.item_k}"
        return None

    def multiplied(self, problem: ConvProblem) -> float:
        """Return the multiply-adds of the products over the problem's."""
        return multiplied(problem, self.out_tile, self.taps)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (1, 1)),), workspaces(problem, self))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of transformed tiles and filters."""
        geo = self.geometry(problem)
        used = covered(
            (geo.filters, self.item_k),
            (self.tile_rows * geo.tiles_w, self.item_t),
            (geo.out_h, self.out_tile),
            (geo.out_w, self.out_tile),
        )
        return outer_product(self.vec_k, self.item_k // self.vec_k, self.item_t, used)


DEFAULT = Config(
    out_tile=4, tile_rows=4, item_t=8, item_k=16, vec_k=16, unroll_c=1,
    workers=16, split_k=1, filters_inside=False,
)  # fmt: skip
TRAITS = Traits(rank=160, transforming=True)


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where a work-item keeps its lines, V, M and U; sizes in floats."""

    geo: Geometry
    config: Config

    @property
    def block(self) -> int:
        """Tiles of a block."""
        return self.config.tile_rows * self.geo.tiles_w

    @property
    def vec_t(self) -> int:
        """Lanes of tiles in the input transform: a row of tiles, up to the widest vector."""
        return next(w for w in VECTOR_WIDTHS if w >= min(self.geo.tiles_w, LANES))

    @property
    def vec_c(self) -> int:
        """Lanes of channels in the input transform of pixels: no more than there are."""
        return max(w for w in VECTOR_WIDTHS if w <= self.geo.channels)

    @property
    def vec_x(self) -> int:
        """Lanes of pixels in the input transform: no more than the image is wide."""
        return max(w for w in VECTOR_WIDTHS if w <= self.geo.in_w)

    def sizes(self) -> dict[str, int]:
        """Return the sizes by their names in the kernel.

        A row of tiles is stored in whole vectors; what they hold past its end is overwritten by
        the next row, and the last row of a channel has room for it.
        """
        geo, item_k = self.geo, self.config.item_k
        row = round_up(geo.tiles_w, self.vec_t)
        # shuffles read whole steps of out_tile, up to the one that the last tile's end is in
        steps = row + (geo.in_tile - 1) // geo.out_tile
        past = (geo.blocks_w - 1) * geo.taps
        line = max(steps * geo.out_tile + past, geo.pad_w + geo.in_w)
        v_tiles = self.block - geo.tiles_w + row
        sizes = {"TILE_ROWS": geo.batch * geo.tiles_h, "BLOCK": self.block}
        if geo.pixels:
            v_tile = winograd_filters.odd_lines(geo.summed)
            sizes |= {"LINES": 0, "V_TILE": v_tile, "V_POINT": v_tile * (self.block | 1)}
        else:
            sizes |= {
                "LINE": line,
                "LINES": round_up(line * geo.in_tile, winograd_filters.CACHE_LINE),
                "V_TILES": v_tiles,
                "V_POINT": winograd_filters.odd_lines(geo.summed * v_tiles),
            }
        sizes["M_POINT"] = winograd_filters.odd_lines(self.block * item_k)
        inside = self.config.filters_inside
        filters = winograd_filters.FilterLayout(geo, item_k, skewed=True).point
        sizes["U_POINT"] = winograd_filters.odd_lines(geo.summed * item_k) if inside else filters
        sizes["SLOT"] = sizes["LINES"] + geo.points * (
            sizes["V_POINT"] + sizes["M_POINT"] + (sizes["U_POINT"] if inside else 0)
        )
        return sizes

    def defines(self) -> str:
        """Return the sizes as `#define`s, one per line; without those that are arguments."""
        return "\n".join(
            f"#define {name} {value}"
            for name, value in self.sizes().items()
            if name not in self.given
        )

    @property
    def given(self) -> tuple[str, ...]:
        """The sizes that the kernel takes as arguments: what grows with a free batch."""
        return ("TILE_ROWS",) if self.geo.free else ()


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether it is a forward or backward-data convolution of 2x2 or more, stride 1."""
    return fits(problem) and problem.direction != "bwd_weights"


def workspaces(problem: ConvProblem, config: Config) -> common.Workspaces:
    """Return role and bytes of every workspace: each work-item's scratch, and U."""
    geo = config.geometry(problem)
    slots = config.workers * config.split_k
    scratch = ("scratch", FLOAT * slots * Scratch(geo, config).sizes()["SLOT"])
    if config.filters_inside:
        return (scratch,)
    return (scratch, ("u", winograd_filters.FilterLayout(geo, config.item_k, skewed=True).bytes))


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "gpu":
        return []
    sizes = (geometry(problem, *tiling) for tiling in guessed_on_cpus(problem))
    return [config for geo in sizes for config in _guesses_of(geo, limits)]


def _guesses_of(geo: Geometry, limits: Limits) -> Iterator[Config]:
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
            yield Config(
                out_tile=geo.out_tile, tile_rows=tile_rows,
                item_t=_item_t(tile_rows * geo.tiles_w, limits.vector_sums // vectors),
                item_k=vectors * width, vec_k=width, unroll_c=1,
                workers=1 if few else units,
                split_k=min(units, ceil_div(geo.filters, vectors * width)) if few else 1,
                filters_inside=few, taps=geo.taps if geo.blocks > 1 else 0,
            )  # fmt: skip


def _item_t(block: int, most: int) -> int:
    """Return the tried size that leaves the fewest tiles to a smaller register tile."""
    sizes = [size for size in (16, 14, 12, 8, 7, 6, 4, 2) if size <= most]
    return min(sizes, key=lambda size: (block % size > 0, block % size, -size))


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches: the filter transform, unless it is inside, and the convolution."""
    geo = config.geometry(problem)
    launches = [_convolution(problem, geo, config)]
    if not config.filters_inside:
        filters = winograd_filters.FilterLayout(geo, config.item_k, skewed=True)
        first = winograd_filters.filter_launch(problem, filters, config.vec_k, 1, CHANNELS_PER_ITEM)
        launches.insert(0, first)
    return Plan(tuple(launches), workspaces(problem, config))


def _convolution(problem: ConvProblem, geo: Geometry, config: Config) -> Launch:
    scratch = Scratch(geo, config)
    statements, names = phases(geo, scratch.vec_t)
    slices = slices_of(geo)
    rest, edge_k = geo.out_w % geo.out_tile, geo.filters % config.item_k != 0

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            defines=f"{geo.defines()}\n{scratch.defines()}",
            input_axes=_input_axes(scratch),
            output_axis=common.output_axis(geo, config.vec_k),
            filter_tile=winograd_filters.filter_tile(geo, config.vec_k),
            block=scratch.block,
            cut=geo.blocks > 1,
            chunk=ceil_div(geo.summed, slices) if slices > 1 else 0,
            vec_t=scratch.vec_t,
            vec_x=scratch.vec_x,
            in_pixels=geo.pixels,
            vec_c=scratch.vec_c,
            store_channels=store_channels(problem, config.vec_k) if geo.pixels else "",
            rest=rest,
            edge_k=edge_k,
            pixels=Pixels(geo.out_tile, config.vec_k, edge_k, problem.residual, rest),
            **epilogue(problem, "out"),
            phases=statements,
            phase_names=names,
            given=scratch.given,
        )

    weights = winograd_filters.weights(problem) if config.filters_inside else buffer("u")
    return Launch(
        text=text,
        kernel=NAME,
        global_size=(config.workers, config.split_k),
        local_size=(1, 1),
        args=(
            *buffer(geo.source),
            *weights,
            *terms(problem),
            *buffer(geo.target),
            *buffer("scratch"),
            *(Scalar(scratch.sizes()[name]) for name in scratch.given),
        ),
    )


def _input_axes(scratch: Scratch) -> str:
    """Return the functions that multiply one axis of an input tile, which is done in vectors."""
    widths = {"pixels_axis": scratch.vec_x, "tiles_axis": scratch.vec_t}
    if scratch.geo.pixels:
        widths = {"channels_axis": scratch.vec_c}
    matrices = common.matrices(scratch.geo)
    functions = (
        common.axis_function(name, matrices.input, vector(width)) for name, width in widths.items()
    )
    return "\n\n".join(functions)


def phases(geo: Geometry, lanes: int) -> tuple[list[str], list[str]]:
    """Return statements that pick pixels j, j + out_tile, ... of `line`, and a name for each j.

    Two vectors' even or odd lanes make one shuffle; tiles of 6, and single lanes, are gathered.
    """
    step = geo.out_tile
    if lanes == 1 or step & (step - 1):
        names = [
            f"({vector(lanes)})({', '.join(f'line[{j + s * step}]' for s in range(lanes))})"
            for j in range(geo.in_tile)
        ]
        return [], names
    made: dict[str, str] = {}
    names = [_pick(made, lanes, step, j % step, 0, j // step * step) for j in range(geo.in_tile)]
    return list(made.values()), names


def _pick(made: dict[str, str], lanes: int, step: int, phase: int, index: int, shift: int) -> str:
    """Add to `made` what picks every step-th pixel from shift + phase on; return its name.

    `index` counts vectors; there are twice as many of half the step.
    """
    name = f"p{shift}_{step}_{phase}_{index}"
    if name in made:
        return name
    kind = vector(lanes)
    if step == 1:
        made[name] = f"const {kind} {name} = vload{lanes}({index}, line + {shift});"
        return name
    half = step // 2
    parts = [_pick(made, lanes, half, phase % half, 2 * index + side, shift) for side in (0, 1)]
    which = "odd" if phase >= half else "even"
    made[name] = f"const {kind} {name} = ({kind})({parts[0]}.{which}, {parts[1]}.{which});"
    return name
