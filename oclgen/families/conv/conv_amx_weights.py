"""Gradient of weights in 16 bits on processors with AMX: tiles are output and input channels.

It is `conv_pairs_weights` with tiles in the place of vectors; processors without AMX, and other
dtypes, stay with that one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import prod
from typing import TypeGuard

from oclgen.families.conv.conv_amx import cheapest_groups, fills_tiles
from oclgen.families.conv.conv_register_weights_plan import MAX_KERNEL_W, sum_of
from oclgen.families.conv.correlation import strung_windows
from oclgen.families.conv.flat_positions import WORDS, Positions, positions_of
from oclgen.families.gemm import gemm_amx
from oclgen.families.gemm.gemm_amx import REGISTERS
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS, SIDE
from oclgen.families.parts.lane_packing import transpose_text
from oclgen.families.parts.planes import PLANES, planes_space
from oclgen.families.parts.strided_weights import strided_weights
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Parts
from oclgen.plan import Arg, Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import dtype_preamble, render

NAME = "conv_amx_weights"

OUTPUTS, INPUTS = "packed_y", "packed_x"
"""Roles of the workspaces."""
SHAPES = ((1, 3), (2, 2), (1, 2), (1, 1))
"""Tiles of output channels and of columns to guess, which leave registers for all operands."""
WORD_BYTES = 4
SPAN = 128
"""Words of 16 columns that a work-item packs: 8 KiB, which cost more than its start."""
MOST_SUMS = 192
"""Tiles of sums of a work-item, of 1 KiB each: they wait in the second cache."""
STEPS = 16
"""Steps of positions to guess, of 1 KiB for each tile of an operand: those of y stay in the nearest
cache for all taps. 64 and 64 channels, 3x3, 8 images of 56x56 in bf16 take 1.9 ms, and 2.0 with 64
steps."""
LEAST_STEPS = 16
"""Steps of a slice that take longer than to write and to add its sums."""
PACK_STEPS = 16
"""Products of tiles that take as long as to pack a tile."""
ITEMS_PER_UNIT = 2
"""Work-items that a core wants to share the work; with fewer the positions are split."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = frozenset({"batch"})

    item_m: Item
    item_n: Item
    loop_m: Parts
    inputs: Parts
    steps: Parts
    rows_together: bool
    spread: bool
    split: Parts

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        return limits.why_no(PRODUCTS[problem.dtype]) or self._shape_conflict(problem)

    def _shape_conflict(self, problem: ConvProblem) -> str | None:
        if self.item_m % SIDE or self.item_n % SIDE:
            return (
                f"item_m={self.item_m} item_n={self.item_n} are no multiples of {SIDE}, the rows "
                "and columns of a tile"
            )
        rows, columns = self.item_m // SIDE, self.item_n // SIDE
        if (held := rows * columns + rows + columns) > REGISTERS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} needs {held} tiles of sums and "
                f"operands; a processor has {REGISTERS}"
            )
        taps = _taps_of_item(merged(problem), self)
        if (sums := rows * self.loop_m * self.inputs * taps) > MOST_SUMS:
            return (
                f"item_m={self.item_m} loop_m={self.loop_m} inputs={self.inputs} with {taps} taps "
                f"has {sums} tiles of sums; at most {MOST_SUMS} stay near"
            )
        steps = _positions(merged(problem), self).half // WORDS
        if self.split > steps:
            return f"split={self.split}, but there are only {steps} steps to be split"
        return None

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        wide = merged(problem)
        line, (tiles_m, tiles_n) = _positions(wide, self), _tiles(wide, self)
        of_tile = WORD_BYTES * SIDE * wide.groups
        spaces = (
            (OUTPUTS, of_tile * tiles_m * line.half),
            (INPUTS, of_tile * tiles_n * line.planes * line.words),
        )
        return Needs((Frame(NAME, (1, 1, 1)),), (*spaces, *planes_space(problem, self.split)))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of tiles of channels and of columns: what counts are tiles."""
        wide = merged(problem)
        part, columns = strung_windows(wide), _columns(wide, self)
        line, taps = _positions(wide, self), _taps_of_item(wide, self)
        _, tiles_n = _tiles(wide, self)
        results = part.batch * part.results
        used = covered(
            (part.channels, self.item_m), (columns, SIDE * self.inputs),
            (min(self.inputs, tiles_n) * taps, self.item_n // SIDE),
        )  # fmt: skip
        useful = used * results / (2 * line.half) * wide.groups / problem.groups
        return outer_product(SIDE, self.item_n // SIDE, self.item_m // SIDE, useful)


DEFAULT = Config(
    item_m=16, item_n=16, loop_m=1, inputs=1, steps=64, rows_together=False, spread=False, split=1
)
TRAITS = Traits(rank=170, instructions=frozenset(PRODUCTS.values()), rate=16)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family computes the problem: depthwise layers fill no tile."""
    if not isinstance(problem, ConvProblem) or problem.direction != "bwd_weights":
        return False
    return fills_tiles(problem) and problem.kernel_w <= MAX_KERNEL_W


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if PRODUCTS[problem.dtype] not in limits.instructions:
        return []
    problem = merged(problem)
    spread = spreads(problem)
    found = []
    for rows, columns in SHAPES:
        config = Config(SIDE * rows, SIDE * columns, 1, 1, STEPS, True, spread, 1)
        if rows * _taps_of_item(problem, config) > MOST_SUMS:
            config = replace(config, rows_together=False)
        config = _least_read(problem, config)
        tiles_m, _ = _tiles(problem, config)
        if rows <= tiles_m and columns <= config.inputs * _taps_of_item(problem, config):
            found.append(replace(config, split=_split(problem, limits, config)))
    return found


def _least_read(problem: ConvProblem, config: Config) -> Config:
    """Return the config with the channels of a work-item that read y and x least often.

    The caches hold neither: 96 and 24 channels, 2x2 at stride 2, 226 images of 26x26 in fp16 take
    3.9 ms where a work-item has all channels, and 5.2 where it has 16 and all 24.
    """
    line, (tiles_m, tiles_n) = _positions(problem, config), _tiles(problem, config)
    rows, taps = config.item_m // SIDE, _taps_of_item(problem, config)
    groups_of_taps = 1 if config.rows_together else problem.kernel_h
    options = []
    for blocks_n in range(1, tiles_n + 1):
        inputs = ceil_div(tiles_n, blocks_n)
        most = MOST_SUMS // (rows * inputs * taps)
        if most:
            blocks_m = ceil_div(tiles_m, rows * most)
            reads = tiles_m * blocks_n * groups_of_taps + tiles_n * line.planes * blocks_m
            options.append((reads, inputs, ceil_div(tiles_m, rows * blocks_m)))
    _, inputs, loop_m = min(options)
    return replace(config, inputs=inputs, loop_m=loop_m)


@lru_cache(maxsize=64)
def merged(problem: ConvProblem) -> ConvProblem:
    """Return the problem as the kernel computes it: with groups whose channels fill tiles.

    Groups of few channels are packed and multiplied as one, and of its sums only those are stored
    whose channels are of one group: as many as take the least tiles to pack and to multiply.
    """
    return cheapest_groups(problem, _tile_steps)


def _tile_steps(problem: ConvProblem) -> int:
    """Return the products of tiles for 32 positions, with what it takes to pack their operands."""
    rows = ceil_div(problem.out_channels // problem.groups, SIDE)
    columns = min(_steps_of_columns(problem, spread) for spread in (False, True))
    return problem.groups * (rows * PACK_STEPS + columns)


def _steps_of_columns(problem: ConvProblem, spread: bool) -> int:
    """Return the part of `_tile_steps` that a group's columns take."""
    rows = ceil_div(problem.out_channels // problem.groups, SIDE)
    depth = problem.in_channels // problem.groups
    columns, taps = (depth * problem.kernel_w, 1) if spread else (depth, problem.kernel_w)
    return ceil_div(columns, SIDE) * (PACK_STEPS + rows * problem.kernel_h * taps)


def spreads(problem: ConvProblem) -> bool:
    """Say whether channels under the taps of a row take less time: the few of a first layer."""
    wide = merged(problem)
    return _steps_of_columns(wide, spread=True) < _steps_of_columns(wide, spread=False)


def _split(problem: ConvProblem, limits: Limits, config: Config) -> int:
    """Return the slices that give each core its work-items, of steps that are worth their sum.

    One core shares with no other, and planes would only have to be added.
    """
    if limits.compute_units == 1:
        return 1
    items = prod(_grid(problem, config))
    wanted = ceil_div(ITEMS_PER_UNIT * limits.compute_units, items)
    most = max(_positions(problem, config).half // (WORDS * LEAST_STEPS), 1)
    return min(1 << (wanted - 1).bit_length(), 1 << (most.bit_length() - 1))


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches that pack y and x, sum over positions, and add planes, if there are."""
    wide = merged(problem)
    product = _product(wide, config, strided_weights(problem), problem.groups // wide.groups)
    whole = sum_of(problem, config.split).behind(product)
    packs = (_pack_y(wide, config), _pack_x(wide, config))
    return Plan((*packs, *whole.launches), config.needs(problem).workspaces)


def _positions(problem: ConvProblem, config: Config) -> Positions:
    return positions_of(strung_windows(problem), config.spread)


def _columns(problem: ConvProblem, config: Config) -> int:
    """Return the columns of a group: input channels, or those under each tap of a row."""
    return problem.in_channels // problem.groups * (problem.kernel_w if config.spread else 1)


def _tiles(problem: ConvProblem, config: Config) -> tuple[int, int]:
    """Return the tiles of a group's output channels and of its columns."""
    channels = problem.out_channels // problem.groups
    return ceil_div(channels, SIDE), ceil_div(_columns(problem, config), SIDE)


def _taps_of_item(problem: ConvProblem, config: Config) -> int:
    rows = problem.kernel_h if config.rows_together else 1
    return rows * (1 if config.spread else problem.kernel_w)


def _grid(problem: ConvProblem, config: Config) -> tuple[int, int]:
    """Return the work-items of a slice: along columns and rows of taps, along output channels."""
    tiles_m, tiles_n = _tiles(problem, config)
    rows = 1 if config.rows_together else problem.kernel_h
    blocks = ceil_div(SIDE * tiles_m, config.item_m * config.loop_m)
    return ceil_div(tiles_n, config.inputs) * rows, blocks * problem.groups


def _gaps(problem: ConvProblem, config: Config) -> dict[str, int]:
    """Return the sizes of positions and of what they read; none if all of them are products."""
    line, part = _positions(problem, config), strung_windows(problem)
    if part.inside and all(side.positions == side.results for side in (line.rows, line.cols)):
        return {}
    sizes = {"POSITIONS_H": line.rows.positions, "POSITIONS_W": line.cols.positions}
    return sizes | part.axis_sizes()


def _product(
    problem: ConvProblem, config: Config, weights: tuple[Arg, ...], together: int
) -> Launch:
    """Return the launch of the product, of which `together` groups are one of the problem's.

    Args:
        problem: as it is computed.
        config: its parameters.
        weights: arguments of what is written.
        together: groups of `weights` that are one here.
    """
    line, (tiles_m, tiles_n) = _positions(problem, config), _tiles(problem, config)
    depth, split = problem.in_channels // problem.groups // together, config.split > 1
    kernel_h, kernel_w = problem.kernel_h, problem.kernel_w
    in_pixels = problem.layout == "nhwc"
    strided = in_pixels and not split
    dense = (
        (depth * kernel_h * kernel_w, 1, kernel_w * depth, depth)
        if in_pixels
        else (depth * kernel_h * kernel_w, kernel_h * kernel_w, kernel_w, 1)
    )

    steps_of_w = ("w_filter", "w_depth", "w_row", "w_column") if strided else dense

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            tiles=gemm_amx.tiles(problem.dtype),
            transpose=transpose_text(SIDE),
            in_pixels=in_pixels,
            tiles_m=tiles_m,
            tiles_n=tiles_n,
            groups=problem.groups,
            channels=problem.out_channels // problem.groups,
            columns=_columns(problem, config),
            depth=depth * together,
            together=together,
            taps=line.taps,
            kernel_h=kernel_h,
            kernel_w=kernel_w,
            planes=line.planes,
            steps_of_w=steps_of_w,
            strided=strided,
            gaps=_gaps(problem, config),
        )

    out = buffer(PLANES) if split else weights if in_pixels else buffer("w")
    return Launch(
        text=text,
        kernel=NAME,
        global_size=(*_grid(problem, config), config.split),
        local_size=(1, 1, 1),
        args=(
            *buffer(OUTPUTS), *buffer(INPUTS), *out, Scalar(line.half), Scalar(line.words),
        ),
    )  # fmt: skip


def _pack_y(problem: ConvProblem, config: Config) -> Launch:
    line, part = _positions(problem, config), strung_windows(problem)
    return _words(
        problem, config, role="y", channels=part.channels, columns=part.channels, words=line.half,
        size=(part.rows.results, part.cols.results), steps=(1, 1), origins=((0, 0),), tap_step=0,
    )  # fmt: skip


def _pack_x(problem: ConvProblem, config: Config) -> Launch:
    line, part = _positions(problem, config), strung_windows(problem)
    return _words(
        problem, config, role="x", channels=part.depth, columns=_columns(problem, config),
        words=line.words, size=(part.rows.read, part.cols.read),
        steps=(part.rows.step, part.cols.step),
        origins=tuple((h, w) for h in line.rows.origins for w in line.cols.origins),
        tap_step=part.cols.tap_step,
    )  # fmt: skip


def _words(
    problem: ConvProblem,
    config: Config,
    *,
    role: str,
    channels: int,
    columns: int,
    words: int,
    size: tuple[int, int],
    steps: tuple[int, int],
    origins: tuple[tuple[int, int], ...],
    tap_step: int,
) -> Launch:
    """Return the launch that packs y or x as words."""
    line, name = _positions(problem, config), OUTPUTS if role == "y" else INPUTS

    @LazyText
    def text() -> str:
        return render(
            "conv_amx_words",
            kernel=name,
            in_pixels=problem.layout == "nhwc",
            by_rows=role == "y",
            groups=problem.groups,
            channels=channels,
            columns=columns,
            span=SPAN,
            rows=line.rows.positions,
            positions=line.cols.positions,
            height=size[0],
            width=size[1],
            step_h=steps[0],
            step_w=steps[1],
            origins=origins,
            tap_step=tap_step,
            transpose=transpose_text(SIDE),
        )

    return Launch(
        text=text,
        kernel=name,
        global_size=(
            ceil_div(columns, SIDE) * problem.groups, len(origins), ceil_div(words, SPAN),
        ),
        local_size=(1, 1, 1),
        args=(
            *buffer(role), *buffer(name), Scalar(line.batch), Scalar(line.half), Scalar(words),
        ),
    )  # fmt: skip
