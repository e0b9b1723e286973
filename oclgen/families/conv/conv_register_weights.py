"""Gradient of a convolution's weights in registers for CPUs: lanes are output channels.

It is not made for GPUs; the forward and backward-data directions are `conv_register`'s.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, TypeGuard

from oclgen.families.conv.correlation import Correlation, Run, runs_of, strung_windows
from oclgen.families.conv.lanes import (
    MOST_GUESSES,
    VECS,
    channel_time,
    cost,
    vector_widths,
)
from oclgen.families.gemm.gemm_pairs import PAIR
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.caches import slices_held
from oclgen.families.parts.lane_packing import LANE_STEPS, lanes, pack_lanes, pack_matrices
from oclgen.families.parts.packing import PACKED, Packing
from oclgen.families.parts.planes import (
    PLANES,
    WEIGHTS_ITEMS,
    Sum,
    planes_space,
    sum_planes,
    sum_weights,
)
from oclgen.families.parts.strided_weights import strided_weights
from oclgen.families.parts.widening import WIDENED, is_widened, widen, widened_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Parts, Unroll, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

if TYPE_CHECKING:
    from oclgen.families.conv import conv_pairs_weights

NAME = "conv_register_weights"

MAX_ACCUMULATORS = 40
"""Vectors per work-item past which they are spilled to memory (AVX-512 has 32 registers)."""

MAX_KERNEL_W = 16
"""Taps along a row, each of which has an accumulator of its own."""
ITEMS_PER_UNIT = 4
"""Work-items that a core wants to share the work evenly; with fewer the rows are split."""
MAX_SPLIT = 32
"""Planes that are still worth their sum."""
PLANES_BYTES = 3 * 2**20
"""Bytes of all planes that a core's second cache holds beside what else it has to hold."""
GROWING = ("ROWS", "ROWS_PER_PLANE")
"""Sizes that grow with the batch: arguments, where it is free."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch"})
    SLICES = "split"

    item_c: Item
    vec: Vector
    vecs: Item
    unroll: Unroll
    split: Parts
    outputs_fastest: bool

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if limits.kind == "gpu":
            return f"{NAME} gives each work-item whole vectors of channels; GPUs take conv_gemm"
        if self.vec not in VECTOR_WIDTHS:
            return f"vec={self.vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        return why_no_sums(problem, self, MAX_ACCUMULATORS)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        packed = () if _in_place(problem, self) else ((PACKED, _packing(problem, self).bytes),)
        spaces = (*packed, *widened_space(problem, "x"), *planes_space(problem, self.split))
        return Needs((Frame(NAME, (1, 1, 1)),), spaces)

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of gradients of channels and of elements under the taps."""
        part = strung_windows(problem)
        used = covered((part.channels, self.vec * self.vecs), (part.depth, self.item_c))
        return outer_product(self.vec, self.vecs, self.item_c * part.cols.taps, used)


DEFAULT = Config(item_c=1, vec=16, vecs=1, unroll=1, split=1, outputs_fastest=False)
TRAITS = Traits(rank=180)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        isinstance(problem, ConvProblem)
        and problem.direction == "bwd_weights"
        and problem.kernel_w <= MAX_KERNEL_W
    )


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid.

    They are ranked as those of `conv_register`.
    """
    if limits.kind == "gpu":
        return []
    part = strung_windows(problem)
    taps = part.cols.taps
    shapes = [
        (cost(c * taps, vecs) * waste(part.depth, c) * channel_time(part, vec, vecs), c, vec, vecs)
        for c, vec, vecs in product(
            inputs(part, limits), vector_widths(part.channels, limits), VECS
        )
        if c * vecs * taps <= max(limits.vector_sums, taps)
    ]
    return [
        Config(c, vec, vecs, 1, split, False)
        for _, c, vec, vecs in sorted(shapes)[: MOST_GUESSES // 2]
        for split in _slices(problem, limits, c, vec * vecs)
    ]


def _slices(problem: ConvProblem, limits: Limits, item_c: int, block: int) -> tuple[int, ...]:
    """Return how often the rows are split, best guess first; the arguments are those of `splits`.

    In channels_last slices of rows stay in a core's second cache, as `slices_held` says, unless the
    planes do not: 80 to 160 channels of 110x110 and 2x2 took 12.5 ms in 16 slices and 22 in one
    (one core, AVX-512, fp16), 512 channels of 14x14 and 3x3 44 ms in two and 16 in one.
    """
    fill, other = splits(problem, limits, item_c, block)
    if problem.layout == "nchw":
        return fill, other
    part = strung_windows(problem)
    most = min(PLANES_BYTES // (4 * prod(problem.buffers["w"])), MAX_SPLIT)
    held = slices_held(problem.bytes, min(most, part.batch * part.rows.results))
    return (held,) if held > fill else (fill, other)


def why_no_sums(
    problem: ConvProblem, config: Config | conv_pairs_weights.Config, most: int
) -> str | None:
    """Say with numbers why the work-items of a config cannot have the sums that it asks for.

    Args:
        problem: the gradient.
        config: what shares it out.
        most: vectors of sums that stay in a core's registers.
    """
    vectors = config.item_c * config.vecs * problem.kernel_w
    if vectors > most:
        return (
            f"item_c={config.item_c} vecs={config.vecs} with {problem.kernel_w} taps needs "
            f"{vectors} vectors of accumulators; at most {most} stay in registers"
        )
    depth = problem.in_channels // problem.groups
    if config.item_c > depth:
        return f"item_c={config.item_c} is more than the {depth} input channels of a group"
    rows = problem.batch * strung_windows(problem).rows.results
    if not 1 <= config.split <= rows:
        return f"split={config.split}, but there are only {rows} rows to be split"
    return None


def splits(problem: ConvProblem, limits: Limits, item_c: int, block: int) -> tuple[int, int]:
    """Return the planes that give each core its work-items, and what else may be better.

    Args:
        problem: the gradient.
        limits: of the device: its compute units.
        item_c: input channels of a work-item.
        block: output channels of a work-item.
    """
    part = strung_windows(problem)
    items = part.groups * ceil_div(part.channels, block) * ceil_div(part.depth, item_c)
    wanted = ceil_div(ITEMS_PER_UNIT * limits.compute_units, items * part.rows.taps)
    rows = part.batch * part.rows.results
    fill = min(1 << (wanted - 1).bit_length(), 1 << (rows.bit_length() - 1), MAX_SPLIT)
    return fill, min(problem.batch, 8) if fill == 1 else 1


def inputs(part: Correlation, limits: Limits) -> tuple[int, ...]:
    """Return numbers of input channels whose taps have accumulators in registers."""
    most = min(max(limits.vector_sums // part.cols.taps, 1), part.depth)
    return tuple(c for c in (*range(1, 9), 10, 12, 14) if c <= most)


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches that pack y, widen x, sum over positions, and sum planes if there are."""
    packed, in_place = _packing(problem, config), _in_place(problem, config)
    sizes = sizes_of(strung_windows(problem), config)
    x = WIDENED if is_widened(problem) else "x"
    product = launch_of(NAME, problem, config, packed, sizes, x, in_place=in_place)
    whole = sum_of(problem, config.split).behind(product)
    packs = () if in_place else (_pack_y(problem, packed, config.vec),)
    packs = (*packs, *widen(problem, "x"))
    return Plan((*packs, *whole.launches), config.needs(problem).workspaces)


def _in_place(problem: ConvProblem, config: Config) -> bool:
    """Say whether y is read as it lies: in channels_last its lanes are neighbours.

    Groups of fewer channels than a work-item takes are filled up with zeros, and so packed.
    """
    channels = problem.out_channels // problem.groups
    return problem.layout == "nhwc" and channels >= config.vec * config.vecs


def sum_of(problem: ConvProblem, split: int) -> Sum:
    """Return the sum of the planes that slices of rows leave, as `launch_of` writes them.

    Args:
        problem: the gradient.
        split: planes.
    """
    if problem.layout == "nchw":
        return sum_planes(problem, split)
    depth, taps = problem.in_channels // problem.groups, problem.kernel_h * problem.kernel_w
    return sum_weights(problem, split, depth, min(max(WEIGHTS_ITEMS // taps, 1), depth))


def _pack_y(problem: ConvProblem, packed: Packing, vec: int) -> Launch:
    """Return the launch that makes output channels lanes."""
    if problem.layout == "nchw":
        return pack_lanes(packed, vec)
    steps, at = pixels_of_y(problem)
    return pack_matrices(packed, vec, packed.k, 1, steps, at)


def pixels_of_y(problem: ConvProblem) -> tuple[dict[str, int], str]:
    """Return strides of y in channels_last by the names of `LANE_STEPS`, rows of y being taps.

    The text of the place of a group's matrix by its number follows.
    """
    part = strung_windows(problem)
    rows, cols, channels = part.rows.results, part.cols.results, part.groups * part.channels
    steps = dict(zip(LANE_STEPS, (1, channels, cols * channels, 0), strict=True))
    of_image = f"matrix / {part.groups} * {rows * cols * channels}L"
    return steps, f"{of_image} + matrix % {part.groups} * {part.channels}"


def _packing(problem: ConvProblem, config: Config) -> Packing:
    return lanes(
        "y",
        problem.dtype,
        batch=problem.batch * problem.groups,
        rows=problem.out_channels // problem.groups,
        cols=problem.out_h * problem.out_w,
        block=config.vec * config.vecs,
    )


def launch_of(
    name: str,
    problem: ConvProblem,
    config: Config | conv_pairs_weights.Config,
    packed: Packing,
    sizes: dict[str, int],
    x: str = "x",
    dot: str | None = None,
    in_place: bool = False,
) -> Launch:
    """Return the launch that sums over positions.

    Args:
        name: of the kernel.
        problem: the gradient.
        config: how work-items share it.
        packed: y.
        sizes: names and values of the text's sizes.
        x: buffer of the images.
        dot: text of the instruction, if positions are pairs of neighbours.
        in_place: y is read as it lies, and `packed` says how many blocks it has.
    """
    windows = strung_windows(problem)
    inputs = ceil_div(windows.depth, config.item_c) * windows.rows.taps
    grid = (packed.tiles * windows.groups, inputs)
    given = GROWING if problem.free else ()
    in_pixels = problem.layout == "nhwc"
    weights = strided_weights(problem) if in_pixels else buffer("w")

    @LazyText
    def text() -> str:
        return render(
            "conv_register_weights",
            kernel=name,
            pairs=dot,
            preamble=dtype_preamble(problem.dtype),
            sizes={name: value for name, value in sizes.items() if name not in given},
            given=given,
            taps=windows.cols.taps,
            runs=_runs_of_pairs(windows) if dot else _runs(windows),
            alone=dot is not None and windows.cols.results % PAIR,
            in_pixels=in_pixels,
            in_place=in_place,
            edge=windows.depth % config.item_c != 0,
            widened=x == WIDENED,
            **{**asdict(config), "vec": config.vec},
        )

    return Launch(
        text=text,
        kernel=name,
        global_size=(*(grid if config.outputs_fastest else grid[::-1]), config.split),
        local_size=(1, 1, 1),
        args=(
            *buffer("y" if in_place else PACKED),
            *buffer(x),
            *(buffer(PLANES) if config.split > 1 else weights),
            *(Scalar(sizes[name]) for name in given),
        ),
    )


def _runs(windows: Correlation) -> tuple[Run, ...]:
    return runs_of([tuple(windows.cols.reach(q)) for q in range(windows.cols.results)])


def _runs_of_pairs(windows: Correlation) -> tuple[Run, ...]:
    """Return the pairs of a row, which all reach every tap, and apart from them half a pair."""
    pairs, half = divmod(windows.cols.results, PAIR)
    spans = (range(pairs), range(pairs, pairs + half))
    return tuple(Run(span, (*range(windows.cols.taps),)) for span in spans if span)


def sizes_of(windows: Correlation, config: Config | conv_pairs_weights.Config) -> dict[str, int]:
    """Return names and values of the text's sizes."""
    rows, cols = windows.rows, windows.cols
    every_row = windows.batch * rows.results
    return {
        "GROUPS": windows.groups, "CHANNELS": windows.channels, "DEPTH": windows.depth,
        "ROWS": every_row, "ROWS_PER_PLANE": ceil_div(every_row, config.split),
        "RESULTS_H": rows.results, "RESULTS_W": cols.results,
        "READ_H": rows.read, "READ_W": cols.read, "TAPS_H": rows.taps, "TAPS_W": cols.taps,
        "STEP_H": rows.step, "STEP_W": cols.step,
        "TAP_STEP_H": rows.tap_step, "TAP_STEP_W": cols.tap_step,
        "ORIGIN_H": rows.origin, "ORIGIN_W": cols.origin,
    }  # fmt: skip
