"""Direct convolution in registers for CPUs, forward and backward-data: lanes are channels.

It is not made for GPUs, where `conv_gemm` shares what it loads through local memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TypeGuard

from oclgen.families.conv.conv_as_gemm import lowered
from oclgen.families.conv.conv_register_plan import (
    ITEM_X,
    MAX_KERNEL_W,
    correlate,
    even_cuts,
    largest,
    parts_of,
    sharing,
    why_no_sums,
    written_out,
)
from oclgen.families.conv.correlation import Correlation, operands
from oclgen.families.conv.lanes import (
    MOST_GUESSES,
    VECS,
    channel_time,
    cost,
    vector_widths,
)
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.caches import CACHE, LINE, are_held
from oclgen.families.parts.lane_packing import lanes, pack_lanes, pack_weights
from oclgen.families.parts.packing import PACKED, Packing
from oclgen.families.parts.planes import FLOAT_BYTES
from oclgen.families.parts.widening import widen, widened_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Unroll, Vector
from oclgen.plan import Frame, Launch, Needs, Plan
from oclgen.problem import DTYPES, ConvProblem, Problem
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS

NAME = "conv_register"

LONG_PLANE = 128
"""Pixels of an image from which on a product takes a single tap."""
MAX_PHASES = 16
"""Phases of a row's gradient, each with a text of its own, for filters of many taps."""
MAX_ACCUMULATORS = 40
"""Vectors per work-item past which they are spilled to memory (AVX-512 has 32 registers)."""

LARGE_WEIGHTS = 2**20
"""Bytes of packed weights that the second cache does not hold beside images: then neighbouring
work-items may better have the same block of them."""
FEW_PRODUCTS = 80
"""Products of a result up to which no work-item in channels_last stores less than a line that its
group fills: two would write it. With AVX2's vectors 12 of 40 such layers drawn by seed 3809940 took
0.7 of the time in the mean, 0.29 to 1.1."""
PAGE = 2**12
"""Bytes between planes of which the nearest cache holds the same few lines."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch"})

    images: Item
    item_x: Item
    vec: Vector
    vecs: Item
    unroll: Unroll
    taps_outer: bool
    channels_fastest: bool

    @property
    def block(self) -> int:
        """Channels per work-item."""
        return self.vec * self.vecs

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if limits.kind == "gpu":
            return f"{NAME} gives each work-item whole vectors of channels; GPUs take conv_gemm"
        if self.vec not in VECTOR_WIDTHS:
            return f"vec={self.vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        return why_no_sums(problem, self, MAX_ACCUMULATORS)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        packed = packing(parts_of(problem)[0], problem, self)
        return Needs((Frame(NAME, (1, 1, 1)),), _workspaces(problem, packed))

    def adapted(self, problem: ConvProblem, limits: Limits) -> Config:
        """Return this config with an order of loops that is guessed for the problem."""
        known = orders(problem, largest(problem), self.images, self.item_x)
        if (self.taps_outer, self.channels_fastest) in known:
            return self
        outer, fastest = known[0]
        return replace(self, taps_outer=outer, channels_fastest=fastest)

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of weights of channels and elements of images."""
        part = largest(problem)
        used = covered(
            (part.channels, self.block),
            (part.cols.results, self.item_x),
            (part.batch, self.images),
        )
        product = outer_product(self.vec, self.vecs, self.images * self.item_x, used)
        return replace(
            product,
            steps=part.depth if self.taps_outer else part.cols.taps,
            written=written_out(self, part.cols),
        )


DEFAULT = Config(
    images=1, item_x=ITEM_X, vec=16, vecs=1, unroll=1, taps_outer=False, channels_fastest=False
)
TRAITS = Traits(rank=170, last_resort=True)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        isinstance(problem, ConvProblem)
        and problem.direction != "bwd_weights"
        and (problem.kernel_w <= MAX_KERNEL_W or _loops_over_taps(problem))
    )


def _loops_over_taps(problem: ConvProblem) -> bool:
    """Say whether the default has a text for taps that are too many to be written out.

    Results that reach different taps, beside the padding, have texts of their own, and so has each
    phase of a strided gradient.
    """
    phases = problem.stride_w if problem.direction == "bwd_data" else 1
    return phases <= MAX_PHASES and why_no_sums(problem, DEFAULT, MAX_ACCUMULATORS) is None


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "gpu" or is_long_product(problem):
        return []
    part = largest(problem)
    width, vectors = part.cols.results, vector_widths(part.channels, limits)
    shapes = [
        (
            cost(n * x, vecs)
            * waste(part.batch, n)
            * waste(width, x)
            * channel_time(part, vec, vecs),
            *(n, x, vec, vecs),
        )
        for n, x, vec, vecs in product(sharing(problem), even_cuts(width, limits), vectors, VECS)
        if n * x * vecs <= limits.vector_sums
    ]
    line = LINE // DTYPES[problem.dtype]
    is_written = problem.layout == "nhwc" and part.reduction <= FEW_PRODUCTS
    if is_written and part.channels % line == 0:
        whole = [one for one in shapes if one[3] * one[4] >= line]
        shapes = whole or shapes  # narrow vectors fill none
    return [
        Config(n, x, vec, vecs, 1, taps_outer, channels_fastest)
        for _, n, x, vec, vecs in sorted(shapes)[: MOST_GUESSES // 2]
        for taps_outer, channels_fastest in orders(problem, part, n, x)
    ]


def is_long_product(problem: ConvProblem) -> bool:
    """Say whether `conv_as_gemm_register` is faster: a single tap of planes of many pixels.

    In the tables of processors it takes 0.67 of the time in the mean of 20 (0.23 to 1.06), without
    the noisy one of a Xeon, whose three slower ones are 0.56 to 0.68 as measured again. Here a
    work-item reads as many pages as there are channels. Images of few pixels share weights here.
    """
    pixels = problem.out_h * problem.out_w
    in_fp32 = problem.layout == "nchw" and problem.dtype == "fp32"
    return in_fp32 and pixels >= LONG_PLANE and lowered(problem) is not None


def orders(
    problem: ConvProblem, part: Correlation, images: int, item_x: int
) -> tuple[tuple[bool, bool], ...]:
    """Return guesses of (taps_outer, channels_fastest), best guess first.

    With taps outside, a core asks for many channels' elements at once, and waits once where they
    come from memory; inside, it waits for each channel. But the next tap then finds the elements in
    the nearest cache only if that holds those of all channels. A filter of one row meets all of its
    elements for the first time: inside, three taps of 900 channels took nine times as long. Taps
    that are too many to be written out are inside: neighbouring results meet most elements again.

    Neighbours that have a position's blocks of channels write whole lines of results, and read what
    the others have read: 8 groups of 40 channels in channels_last took 0.71 of the time.

    Args:
        problem: forward or backward-data.
        part: its largest correlation.
        images: that share weights.
        item_x: results of a row of a work-item.
    """
    if part.cols.taps > MAX_KERNEL_W:
        return ((False, False), (False, True))
    weights = FLOAT_BYTES * part.groups * part.channels * part.reduction
    within = ((True, True), (True, False)) if weights > LARGE_WEIGHTS else ((True, True),)
    if problem.layout == "nhwc" or part.rows.taps * part.cols.taps == 1:
        return within
    plane = DTYPES[problem.dtype] * part.rows.read * part.cols.read
    has_one_row = part.rows.taps == 1 and plane % PAGE > 0
    is_within = has_one_row or _keeps_taps(problem, part, images, item_x)
    return within if is_within else ((False, False), (True, True))


def _keeps_taps(problem: ConvProblem, part: Correlation, images: int, item_x: int) -> bool:
    """Say whether the nearest cache holds what a work-item reads of all planes for a tap."""
    size, plane = DTYPES[problem.dtype], part.rows.read * part.cols.read
    span = size * ((item_x - 1) * part.cols.step + 1)
    if images * part.depth * span > CACHE:
        return False
    starts = (size * plane * at for at in range(images * part.depth))
    return are_held(
        line for start in starts for line in range(start // LINE, (start + span) // LINE + 1)
    )


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return a launch that packs the weights, one that widens images, and one per correlation."""
    parts = parts_of(problem)
    packed = packing(parts[0], problem, config)
    prepared = (_pack(problem, config, parts[0], packed), *widen(problem, operands(problem)[1]))
    launches = (correlate(NAME, problem, config, part, packed) for part in parts)
    return Plan((*prepared, *launches), _workspaces(problem, packed))


def _workspaces(problem: ConvProblem, packed: Packing) -> tuple[tuple[str, int], ...]:
    return ((PACKED, packed.bytes), *widened_space(problem, operands(problem)[1]))


def _pack(problem: ConvProblem, config: Config, part: Correlation, packed: Packing) -> Launch:
    if problem.layout == "nhwc":
        return pack_weights(problem, packed, part.channels, part.depth, config.vec)
    return pack_lanes(packed, config.vec)


def packing(part: Correlation, problem: ConvProblem, config: Config) -> Packing:
    """Return how the weights are packed: a result's channels become lanes.

    For images in channels_last a tap's channels that are summed over lie side by side, else those
    of a channel's taps.

    Args:
        part: the correlation that is computed: its channels are the results'.
        problem: forward or backward-data; it says how w lies.
        config: its `block` is the number of channels that are packed together.
    """
    taps = problem.kernel_h * problem.kernel_w
    if problem.direction == "fwd" or problem.layout == "nhwc":
        return lanes(
            "w", problem.dtype, part.groups, part.channels, part.depth * taps, config.block
        )
    batch = part.groups * part.depth
    return lanes("w", problem.dtype, batch, part.channels, taps, config.block)
