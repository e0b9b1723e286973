"""Convolution in 16 bits on processors with AMX, forward and backward-data.

A tile of A is pixels of a row of results, a tile of B channels of the result. What a tap reads of
neighbouring pixels lies in memory at one distance, so that no patches are made: tiles are loaded
from the image, which comes with zeros around it where taps reach beyond. Taps along the depth of a
volume read its slices in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeGuard

from oclgen.families.conv import conv_amx_operands as packed
from oclgen.families.conv.conv_amx_operands import (
    FLAT,
    Halo,
    columns_of,
    in_place,
    parts_of,
    results_of,
)
from oclgen.families.conv.correlation import Correlation, operands
from oclgen.families.gemm import gemm_amx
from oclgen.families.gemm.gemm_amx import REGISTERS
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS, SIDE, STEP
from oclgen.families.parts.epilogue import epilogue, store_channels, terms
from oclgen.families.parts.lane_packing import transpose_text
from oclgen.families.parts.packing import PACKED, Packing, sizes_of
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Parts
from oclgen.plan import Launch, LazyText, Outline, Plan, Spread, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Problem, Volume
from oclgen.registers import Registers, covered, product_of_tiles
from oclgen.render import dtype_preamble, render

NAME = "conv_amx"

SHAPES = ((2, 2), (1, 3), (1, 2), (3, 1), (2, 1), (1, 1))
"""Tiles of pixels and of channels to guess. Products into one tile wait for each other."""
GROUPS_PER_UNIT = 8
"""Work-items that a core wants to share the work evenly."""
MOST_LOOPS = 16
STORE_STEPS = 10
"""Products of tiles that take as long as to store 16 columns of 16 pixels."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    VOLUMES = True

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

    def outline(self, problem: ConvProblem) -> Outline:
        """Return the plan without texts and arguments of the correlations."""
        wide, (weights, *images) = merged(problem), _packings(problem, self)
        products = [_spread(self, one, weights) for one in parts_of(wide)]
        packs = _packs(problem, weights, len(images))
        return Outline((*packs, *products), sizes_of((weights, *images)))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of tiles of pixels and of channels: what counts are tiles."""
        wide, volume = merged(problem), problem.volume or FLAT
        part = max(parts_of(wide), key=lambda part: part.results * part.reduction)
        used = covered(
            (part.channels, self.block),
            (_tiles(part), self.strips),
            (_runs(part, in_place(wide, volume)).length, STEP),
        )
        used *= wide.groups / problem.groups
        return product_of_tiles(SIDE, self.vecs, self.strips, used)


DEFAULT = Config(strips=1, vecs=1, loop_m=1, channels_fastest=True)
TRAITS = Traits(rank=160, instructions=frozenset(PRODUCTS.values()), rate=lambda _limits: 16)


@lru_cache(maxsize=64)
def merged(problem: ConvProblem) -> ConvProblem:
    """Return the problem as the kernel computes it: of a slice, with groups that fill tiles.

    Groups of few channels leave most columns of a tile empty, so that some are multiplied as one
    group, whose weights are zero between them: as many as take the least products and stores of
    tiles.
    """
    return cheapest_groups(problem.of_slice, _tile_steps)


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
    steps = max(part.rows.taps, 1) * _runs(part, in_place(problem, FLAT)).steps
    return part.groups * ceil_div(part.channels, SIDE) * (steps + STORE_STEPS)


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
    wide, volume = merged(problem), problem.volume or FLAT
    together = problem.groups // wide.groups
    weights, *images = spaces = _packings(problem, config)
    launches = (_correlate(wide, volume, config, one, weights, together) for one in parts_of(wide))
    return Plan((*_packs(problem, weights, len(images)), *launches), sizes_of(spaces))


@lru_cache(maxsize=64)
def _packs(problem: ConvProblem, weights: Packing, images: int) -> tuple[Launch, ...]:
    """Return the launches that pack the weights and, unless they are read as they lie, images."""
    wide, volume = merged(problem), problem.volume or FLAT
    of_weights = packed.pack_of_weights(problem, problem.groups // wide.groups, weights)
    return of_weights, *(packed.pack_of_images(wide, volume) for _ in range(images))


def _spread(config: Config, part: Correlation, weights: Packing) -> Spread:
    """Return the sizes of the launch of a correlation."""
    blocks = part.groups * weights.tiles
    grid = (blocks, ceil_div(ceil_div(_tiles(part), config.strips), config.loop_m))
    return Spread(NAME, (*(grid if config.channels_fastest else grid[::-1]), 1), (1, 1, 1))


def _packings(problem: ConvProblem, config: Config) -> list[Packing]:
    """Return how the weights are packed and, unless they are read as they lie, the images."""
    wide, volume = merged(problem), problem.volume or FLAT
    weights = packed.packed_weights(wide, volume, config.block)
    return [weights, *packed.packed_images(wide, volume)]


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


def _runs(part: Correlation, as_it_lies: bool) -> Runs:
    """Return the channels of a tap, or those of a row of taps where fewer tiles hold these."""
    depth, taps = round_up(part.depth, packed.PAIR), part.cols.taps
    neighbours = part.cols.tap_step == part.cols.kernel_step == 1 and depth == (
        _read_pixel(part, as_it_lies)
    )
    if neighbours and ceil_div(taps * depth, STEP) < taps * ceil_div(depth, STEP):
        return Runs(1, taps * depth)
    return Runs(taps, depth)


def _read_pixel(part: Correlation, as_it_lies: bool) -> int:
    """Return the items from a pixel that is read to the next one."""
    return part.groups * part.depth if as_it_lies else packed.pixel_of(part)


def _tiles(part: Correlation) -> int:
    return part.batch * part.rows.results * columns_of(part.cols)


def _correlate(
    problem: ConvProblem,
    volume: Volume,
    config: Config,
    part: Correlation,
    weights: Packing,
    together: int,
) -> Launch:
    """Return the launch of a correlation of which `together` groups are one of the problem's."""
    read, written = operands(problem)[1:]
    as_it_lies, in_pixels = in_place(problem, volume), problem.layout == "nhwc"
    results, columns = results_of(part.cols), columns_of(part.cols)
    runs = _runs(part, as_it_lies)

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            tiles=gemm_amx.tiles(problem.dtype),
            own=store_channels(problem, SIDE) if in_pixels else transpose_text(SIDE),
            **epilogue(problem, "out"),
            sizes={**_sizes(problem, volume, part), "TAPS_W": runs.taps_w},
            overwritten=_overwritten(problem, part),
            together=together,
            taps_w=part.cols.taps,
            in_pixels=in_pixels,
            vec=SIDE,
            counts=(results, part.cols.results - (columns - 1) * results),
            store_step=part.cols.store_step,
            steps=runs.length // STEP,
            rest=runs.length % STEP,
        )

    image = buffer(read if as_it_lies else packed.IMAGES)
    args = (*image, *buffer(PACKED), *terms(problem), *buffer(written))
    return _spread(config, part, weights).launch(text, args)


def _overwritten(problem: ConvProblem, part: Correlation) -> int:
    """Return the pixels that a vector of 16 channels reaches behind its own, if they follow it.

    0 if it ends with its pixel, or if what it adds has no more items than there are channels.
    """
    dense = problem.layout == "nhwc" and part.groups == part.cols.store_step == 1
    if not dense or problem.bias or problem.residual or part.channels >= SIDE:
        return 0
    return ceil_div(SIDE - part.channels, part.channels)


def _sizes(problem: ConvProblem, volume: Volume, part: Correlation) -> dict[str, int]:
    rows, cols, as_it_lies = part.rows, part.cols, in_place(problem, volume)
    lying = Halo(0, rows.read), Halo(0, cols.read)
    high, wide = lying if as_it_lies else packed.halos(problem)
    plane, pixel = high.size * wide.size, _read_pixel(part, as_it_lies)
    return {
        "GROUPS": part.groups, "CHANNELS": part.channels, "DEPTH": part.depth, "IMAGES": part.batch,
        "RESULTS_H": rows.results, "RESULTS": results_of(cols), "COLUMNS": columns_of(cols),
        "READ_W": wide.size, "PIXEL": pixel, "PAD_H": high.pad, "PAD_W": wide.pad,
        "READ_GROUP": part.depth if as_it_lies else plane * pixel,
        "READ_IMAGE": plane * pixel * (1 if as_it_lies else part.groups),
        "SLICES": volume.size if as_it_lies else volume.reach, "WINDOWS": volume.windows,
        "TAPS_D": volume.taps, "STEP_D": volume.stride, "TAP_STEP_D": volume.dilation,
        "WRITTEN_H": rows.written, "WRITTEN_W": cols.written,
        "TAPS_H": rows.taps, "STEP_H": rows.step, "STEP_W": cols.step,
        "TAP_STEP_H": rows.tap_step, "TAP_STEP_W": cols.tap_step,
        "ORIGIN_H": rows.origin, "ORIGIN_W": cols.origin,
        "FIRST_H": rows.first, "FIRST_W": cols.first, "STORE_STEP_H": rows.store_step,
        # weights: words of a tap of a block, and taps
        "WORDS": ceil_div(part.depth, packed.PAIR), "TAPS": problem.kernel_h * problem.kernel_w,
        "KERNEL_W": part.kernel_w, "KERNEL_FIRST_H": rows.kernel_first,
        "KERNEL_FIRST_W": cols.kernel_first, "KERNEL_STEP_H": rows.kernel_step,
        "KERNEL_STEP_W": cols.kernel_step,
    }  # fmt: skip
