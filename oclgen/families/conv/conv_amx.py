"""Convolution in 16 bits on processors with AMX, forward and backward-data.

A tile of A is pixels of a row of results, a tile of B channels of the result. What a tap reads of
neighbouring pixels lies in memory at one distance, so that no patches are made: tiles are loaded
from the image, which comes with zeros around it where taps reach beyond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeGuard

from oclgen.families.conv.conv_register_plan import largest, parts_of
from oclgen.families.conv.correlation import Axis, Correlation, operands
from oclgen.families.gemm import gemm_amx
from oclgen.families.gemm.gemm_amx import REGISTERS
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS, SIDE, STEP
from oclgen.families.parts.epilogue import epilogue, store_channels, terms
from oclgen.families.parts.lane_packing import pack_groups, pack_weights, transpose_text
from oclgen.families.parts.packing import PACKED, Packing, sizes_of
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Parts
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered, product_of_tiles
from oclgen.render import dtype_preamble, render

NAME = "conv_amx"

IMAGES = "packed_images"
"""Role of the workspace of images with zeros around them."""
PAIR, ITEM_BYTES = 2, 2
MOST_PADDING = 0.3
"""Part of its channels that a pixel may grow by so that no step reads two cache lines."""
SHAPES = ((2, 2), (1, 3), (1, 2), (2, 1), (1, 1))
"""Tiles of pixels and of channels to guess. Products into one tile wait for each other."""
ROW_BYTES = 32768
"""Bytes of packed rows of a work-item, which stay in the nearest cache while it fills them."""
GROUPS_PER_UNIT = 8
"""Work-items that a core wants to share the work evenly."""
MOST_LOOPS = 16
STORE_STEPS = 10
"""Products of tiles that take as long as to store 16 columns of 16 pixels."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    strips: Item
    vecs: Item
    loop_m: Parts
    channels_fastest: bool

    @property
    def block(self) -> int:
        """Channels of the result per work-item."""
        return SIDE * self.vecs

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := limits.why_no(PRODUCTS[problem.dtype]):
            return reason
        if (needed := self.strips * self.vecs + self.strips + self.vecs) > REGISTERS:
            return (
                f"strips={self.strips} vecs={self.vecs} needs {needed} tiles of sums and operands; "
                f"a processor has {REGISTERS}"
            )
        return None

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (1, 1, 1)),), sizes_of(_packings(merged(problem), self)))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of tiles of pixels and of channels: what counts are tiles."""
        wide = merged(problem)
        part = largest(wide)
        used = covered(
            (part.channels, self.block),
            (_tiles(part), self.strips),
            (_runs(part, _in_place(wide)).length, STEP),
        )
        used *= wide.groups / problem.groups
        return product_of_tiles(SIDE, self.vecs, self.strips, used)


DEFAULT = Config(strips=1, vecs=1, loop_m=1, channels_fastest=True)
TRAITS = Traits(rank=160, instructions=frozenset(PRODUCTS.values()), rate=lambda _limits: 16)


@lru_cache(maxsize=64)
def merged(problem: ConvProblem) -> ConvProblem:
    """Return the problem as the kernel computes it: with groups whose channels fill tiles.

    Groups of few channels leave most columns of a tile empty, so that some are multiplied as one
    group, whose weights are zero between them: as many as take the least products and stores of
    tiles.
    """
    return cheapest_groups(problem, _tile_steps)


def cheapest_groups(problem: ConvProblem, steps: Callable[[ConvProblem], int]) -> ConvProblem:
    """Return the problem with as many groups as take the least steps, of those that divide its own.

    Args:
        problem: whose groups may be taken together.
        steps: what a problem with fewer groups takes.
    """
    counts = [count for count in range(1, problem.groups + 1) if problem.groups % count == 0]
    return min((replace(problem, groups=count) for count in counts), key=steps)


def shares_tiles(problem: ConvProblem) -> bool:
    """Say whether the family computes several groups as one."""
    return serves(problem) and merged(problem).groups < problem.groups


def _tile_steps(problem: ConvProblem) -> int:
    """Return the products of tiles for SIDE results, with what it takes to store them."""
    part = parts_of(problem)[0]
    steps = max(part.rows.taps, 1) * _runs(part, _in_place(problem)).steps
    return part.groups * ceil_div(part.channels, SIDE) * (steps + STORE_STEPS)


class Halo(NamedTuple):
    """An axis of the packed image: zeros before what is read, and elements in all."""

    pad: int
    size: int


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family computes the problem: depthwise layers fill no tile."""
    if not isinstance(problem, ConvProblem) or problem.direction == "bwd_weights":
        return False
    return fills_tiles(problem)


def fills_tiles(problem: ConvProblem) -> bool:
    """Say whether tiles multiply the dtype, and groups sum over channels.

    A depthwise layer sums over none: of a tile's 32 steps 31 would multiply by zeros.
    """
    return problem.dtype in PRODUCTS and problem.in_channels > problem.groups


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if PRODUCTS[problem.dtype] not in limits.instructions:
        return []
    wide = merged(problem)
    part = parts_of(wide)[0]
    shapes = [shape for shape in SHAPES if SIDE * (shape[1] - 1) < part.channels]
    return [
        Config(strips, vecs, _loop(wide, limits, strips, vecs), True) for strips, vecs in shapes
    ]


def _loop(problem: ConvProblem, limits: Limits, strips: int, vecs: int) -> int:
    """Return how many groups of tiles a work-item computes, so that cores share them evenly."""
    part = parts_of(problem)[0]
    blocks = part.groups * ceil_div(part.channels, SIDE * vecs)
    items = blocks * ceil_div(_tiles(part), strips)
    wanted = items // (GROUPS_PER_UNIT * limits.compute_units)
    return max(1, min(MOST_LOOPS, 1 << max(wanted.bit_length() - 1, 0)))


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return launches that pack weights and, where needed, images, and one per correlation."""
    wide, part = merged(problem), parts_of(problem)[0]
    together = problem.groups // wide.groups
    weights, *images = packed = _packings(wide, config)
    pack = (
        pack_groups(problem, weights, part.channels, part.depth, together)
        if together > 1
        else pack_weights(problem, weights, part.channels, part.depth, SIDE, pairs=True)
    )
    packs = (pack, *(_pack_images(wide) for _ in images))
    launches = (_correlate(wide, config, one, weights, together) for one in parts_of(wide))
    return Plan((*packs, *launches), sizes_of(packed))


def _packings(problem: ConvProblem, config: Config) -> list[Packing]:
    """Return how the weights are packed and, unless they are read as they lie, the images."""
    part = parts_of(problem)[0]
    taps = problem.kernel_h * problem.kernel_w
    weights = Packing(
        PACKED, buffer("w"), problem.dtype, True, part.groups, part.channels,
        ceil_div(part.depth, PAIR) * taps, config.block,
    )  # fmt: skip
    if _in_place(problem):
        return [weights]
    rows, cols = _halos(problem)
    read = buffer(operands(problem)[1])
    # the last tile of a row reads on past it: of the last row, into pixels that are no image's
    pixels = part.batch * part.groups * rows.size * cols.size + SIDE * _widest_step(problem)
    images = Packing(
        IMAGES, read, problem.dtype, True, 1, pixels, _pixel(part), 1, elem_bytes=ITEM_BYTES
    )
    return [weights, images]


def _in_place(problem: ConvProblem) -> bool:
    """Whether tiles are read from the image as it lies: no tile reaches beyond it."""
    return (
        problem.layout == "nhwc"
        and parts_of(problem)[0].depth % PAIR == 0
        and all(
            part.inside and part.cols.results % _results(part.cols) == 0
            for part in parts_of(problem)
        )
    )


def _pixel(part: Correlation) -> int:
    """Return the items of a packed pixel: whole steps where these are little more, else pairs."""
    steps = round_up(part.depth, STEP)
    return steps if steps <= (1 + MOST_PADDING) * part.depth else round_up(part.depth, PAIR)


def _widest_step(problem: ConvProblem) -> int:
    return max(part.cols.step for part in parts_of(problem))


@lru_cache(maxsize=64)
def _halos(problem: ConvProblem) -> tuple[Halo, Halo]:
    """Return the axes of packed images, which serve all correlations of a problem."""
    parts = parts_of(problem)
    return _halo([part.rows for part in parts]), _halo([part.cols for part in parts])


def _halo(axes: list[Axis]) -> Halo:
    lowest, highest = 0, axes[0].read - 1
    for axis in axes:
        reach = (max(axis.taps, 1) - 1) * axis.tap_step
        lowest = min(lowest, axis.origin + min(reach, 0))
        highest = max(highest, (axis.results - 1) * axis.step + axis.origin + max(reach, 0))
    return Halo(-lowest, highest + 1 - lowest)


def _columns(cols: Axis) -> int:
    """Return the tiles of a row of results."""
    return ceil_div(cols.results, SIDE)


def _results(cols: Axis) -> int:
    """Return the results of a tile: tiles share a row evenly, and rows of a tile cost time."""
    return ceil_div(cols.results, _columns(cols))


class Runs(NamedTuple):
    """Items that are summed up one behind the other, in the image and in the packed weights.

    Attributes:
        taps_w: runs in a row of taps.
        length: items of a run.
    """

    taps_w: int
    length: int

    @property
    def steps(self) -> int:
        """Products of tiles that sum a row of taps."""
        return self.taps_w * ceil_div(self.length, STEP)


def _runs(part: Correlation, in_place: bool) -> Runs:
    """Return the channels of a tap, or those of a row of taps where fewer tiles hold these."""
    depth, taps = round_up(part.depth, PAIR), part.cols.taps
    neighbours = part.cols.tap_step == part.cols.kernel_step == 1 and depth == (
        part.groups * part.depth if in_place else _pixel(part)
    )
    if neighbours and ceil_div(taps * depth, STEP) < taps * ceil_div(depth, STEP):
        return Runs(1, taps * depth)
    return Runs(taps, depth)


def _tiles(part: Correlation) -> int:
    return part.batch * part.rows.results * _columns(part.cols)


def _pack_images(problem: ConvProblem) -> Launch:
    part = parts_of(problem)[0]
    rows, cols = _halos(problem)
    at_once = max(ceil_div(ROW_BYTES, ITEM_BYTES * cols.size * _pixel(part)), 1)
    sizes = {
        "GROUPS": part.groups, "DEPTH": part.depth, "PIXEL": _pixel(part), "ROWS": at_once,
        "HEIGHT": part.rows.read, "WIDTH": part.cols.read, "PAD_H": rows.pad, "PAD_W": cols.pad,
        "PACKED_H": rows.size, "PACKED_W": cols.size,
    }  # fmt: skip

    @LazyText
    def text() -> str:
        return render(
            "conv_amx_images",
            sizes=sizes,
            in_pixels=problem.layout == "nhwc",
            depth=part.depth,
            pixel=_pixel(part),
            whole=part.rows.read * part.cols.read >= SIDE,
        )

    return Launch(
        text=text,
        kernel="conv_amx_images",
        global_size=(ceil_div(rows.size, at_once), part.batch * part.groups, 1),
        local_size=(1, 1, 1),
        args=(*buffer(operands(problem)[1]), *buffer(IMAGES)),
    )


def _correlate(
    problem: ConvProblem, config: Config, part: Correlation, weights: Packing, together: int
) -> Launch:
    """Return the launch of a correlation of which `together` groups are one of the problem's."""
    read, written = operands(problem)[1:]
    in_place, in_pixels = _in_place(problem), problem.layout == "nhwc"
    blocks = part.groups * weights.tiles
    grid = (blocks, ceil_div(ceil_div(_tiles(part), config.strips), config.loop_m))
    results, columns = _results(part.cols), _columns(part.cols)
    runs = _runs(part, in_place)

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            tiles=gemm_amx.tiles(problem.dtype),
            own=store_channels(problem, SIDE) if in_pixels else transpose_text(SIDE),
            **epilogue(problem, "out"),
            sizes={**_sizes(problem, part, in_place), "TAPS_W": runs.taps_w},
            together=together,
            taps_w=part.cols.taps,
            in_pixels=in_pixels,
            vec=SIDE,
            counts=(results, part.cols.results - (columns - 1) * results),
            store_step=part.cols.store_step,
            steps=runs.length // STEP,
            rest=runs.length % STEP,
        )

    return Launch(
        text=text,
        kernel=NAME,
        global_size=(*(grid if config.channels_fastest else grid[::-1]), 1),
        local_size=(1, 1, 1),
        args=(
            *buffer(read if in_place else IMAGES),
            *buffer(PACKED),
            *terms(problem),
            *buffer(written),
        ),
    )


def _sizes(problem: ConvProblem, part: Correlation, in_place: bool) -> dict[str, int]:
    rows, cols = part.rows, part.cols
    high, wide = (Halo(0, rows.read), Halo(0, cols.read)) if in_place else _halos(problem)
    plane = high.size * wide.size
    pixel = part.groups * part.depth if in_place else _pixel(part)
    return {
        "GROUPS": part.groups, "CHANNELS": part.channels, "DEPTH": part.depth, "IMAGES": part.batch,
        "RESULTS_H": rows.results, "RESULTS": _results(cols), "COLUMNS": _columns(cols),
        "READ_W": wide.size, "PIXEL": pixel, "PAD_H": high.pad, "PAD_W": wide.pad,
        "READ_GROUP": part.depth if in_place else plane * pixel,
        "READ_IMAGE": plane * pixel * (1 if in_place else part.groups),
        "WRITTEN_H": rows.written, "WRITTEN_W": cols.written,
        "TAPS_H": rows.taps, "STEP_H": rows.step, "STEP_W": cols.step,
        "TAP_STEP_H": rows.tap_step, "TAP_STEP_W": cols.tap_step,
        "ORIGIN_H": rows.origin, "ORIGIN_W": cols.origin,
        "FIRST_H": rows.first, "FIRST_W": cols.first, "STORE_STEP_H": rows.store_step,
        # weights: words of a tap of a block, and taps
        "WORDS": ceil_div(part.depth, PAIR), "TAPS": problem.kernel_h * problem.kernel_w,
        "KERNEL_W": part.kernel_w, "KERNEL_FIRST_H": rows.kernel_first,
        "KERNEL_FIRST_W": cols.kernel_first, "KERNEL_STEP_H": rows.kernel_step,
        "KERNEL_STEP_W": cols.kernel_step,
    }  # fmt: skip
