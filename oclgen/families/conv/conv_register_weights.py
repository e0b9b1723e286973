"""Gradient of a convolution's weights in registers for CPUs: lanes are output channels.

It is not made for GPUs; the forward and backward-data directions are `conv_register`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeGuard

from oclgen.families.conv.conv_register_weights_plan import (
    MAX_KERNEL_W,
    MAX_SPLIT,
    inputs,
    launch_of,
    pixels_of_y,
    sizes_of,
    splits,
    sum_of,
    why_no_sums,
)
from oclgen.families.conv.correlation import strung_windows
from oclgen.families.conv.lanes import (
    MOST_GUESSES,
    VECS,
    channel_time,
    cost,
    vector_widths,
)
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.caches import slices_held
from oclgen.families.parts.lane_packing import lanes, pack_lanes, pack_matrices
from oclgen.families.parts.packing import PACKED, Packing
from oclgen.families.parts.planes import planes_space
from oclgen.families.parts.widening import WIDENED, is_widened, widen, widened_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Parts, Unroll, Vector
from oclgen.plan import Frame, Launch, Needs, Plan
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS

NAME = "conv_register_weights"

MAX_ACCUMULATORS = 40
"""Vectors per work-item past which they are spilled to memory (AVX-512 has 32 registers)."""

PLANES_BYTES = 3 * 2**20
"""Bytes of all planes that a core's second cache holds beside what else it has to hold."""


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
        return outer_product(
            self.vec,
            self.vecs,
            self.item_c * part.cols.taps,
            used,
            panel_step=problem.out_channels if _in_place(problem, self) else self.vec * self.vecs,
        )


DEFAULT = Config(item_c=1, vec=16, vecs=1, unroll=1, split=1, outputs_fastest=False)
TRAITS = Traits(rank=180, last_resort=True)


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


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches that pack y, widen x, sum over positions, and sum planes if there are."""
    packed, in_place = _packing(problem, config), _in_place(problem, config)
    sizes = sizes_of(strung_windows(problem), config.split)
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


def _pack_y(problem: ConvProblem, packed: Packing, vec: int) -> Launch:
    """Return the launch that makes output channels lanes."""
    if problem.layout == "nchw":
        return pack_lanes(packed, vec)
    steps, at = pixels_of_y(problem)
    return pack_matrices(packed, vec, packed.k, 1, steps, at)


def _packing(problem: ConvProblem, config: Config) -> Packing:
    return lanes(
        "y",
        problem.dtype,
        batch=problem.batch * problem.groups,
        rows=problem.out_channels // problem.groups,
        cols=problem.out_h * problem.out_w,
        block=config.vec * config.vecs,
    )
