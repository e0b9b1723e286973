"""Convolution in bf16 on processors that multiply pairs of bf16, forward and backward-data.

It is `conv_register` with two channels at a time; processors without AVX512-BF16, and other
dtypes, stay with that one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, TypeGuard

from oclgen.families.conv.conv_amx import shares_tiles
from oclgen.families.conv.conv_register_plan import (
    ITEM_X,
    MAX_KERNEL_W,
    Pairs,
    correlate,
    even_cuts,
    largest,
    parts_of,
    sharing,
    why_no_sums,
    written_out,
)
from oclgen.families.conv.correlation import operands
from oclgen.families.conv.lanes import MOST_GUESSES, VECS, cost
from oclgen.families.gemm import gemm_pairs
from oclgen.families.gemm.gemm_pairs import INSTRUCTION, LANES, MAX_VECTORS, PAIR
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.lane_packing import LANE_STEPS, pack_matrices, pack_weights
from oclgen.families.parts.packing import PACKED, Packing, sizes_of
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl.probe import TILES
from oclgen.parameters import Item, Unroll
from oclgen.plan import Frame, Launch, Needs, Plan, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered, outer_product

NAME = "conv_pairs"

IMAGES = "packed_images"
"""Role of the workspace of images whose neighbours in memory are no pairs of channels."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of `conv_register`'s template."""

    FREE = frozenset({"batch"})
    vec: ClassVar[int] = LANES

    images: Item
    item_x: Item
    vecs: Item
    unroll: Unroll
    taps_outer: bool
    channels_fastest: bool

    @property
    def block(self) -> int:
        """Channels per work-item."""
        return LANES * self.vecs

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        return limits.why_no(INSTRUCTION) or why_no_sums(problem, self, MAX_VECTORS)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (1, 1, 1)),), sizes_of(packings(problem, self)))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of pairs of weights and pairs of elements of images."""
        part = largest(problem)
        used = covered(
            (part.channels, self.block),
            (part.cols.results, self.item_x),
            (part.batch, self.images),
        )
        loop = outer_product(LANES, self.vecs, self.images * self.item_x, used)
        return replace(
            loop,
            multiply_adds=PAIR * loop.multiply_adds,
            steps=ceil_div(part.depth, PAIR) if self.taps_outer else part.cols.taps,
            written=PAIR * written_out(self, part.cols),
        )


DEFAULT = Config(
    images=1, item_x=ITEM_X, vecs=1, unroll=1, taps_outer=False, channels_fastest=False
)
TRAITS = Traits(rank=165, instructions=frozenset({INSTRUCTION}), rate=gemm_pairs.rate)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family computes the problem: sums over a single channel have no pairs."""
    if not isinstance(problem, ConvProblem) or problem.direction == "bwd_weights":
        return False
    summed = problem.in_channels if problem.direction == "fwd" else problem.out_channels
    has_pairs = problem.dtype == "bf16" and summed > problem.groups
    return has_pairs and problem.kernel_w <= MAX_KERNEL_W


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid.

    They are ranked as those of `conv_register`. Weights of a tap lie side by side in both layouts,
    so taps are the outer loop: as the inner one they take up to three times as long. Groups of few
    channels are left to the tiles that `conv_amx` fills with several of them: lanes would idle.
    """
    in_tiles = TILES in limits.instructions and shares_tiles(problem)
    if INSTRUCTION not in limits.instructions or in_tiles:
        return []
    part = largest(problem)
    width = part.cols.results
    shapes = [
        (
            cost(n * x, vecs)
            * waste(part.batch, n)
            * waste(width, x)
            * waste(part.channels, LANES * vecs),
            *(n, x, vecs),
        )
        for n, x, vecs in product(sharing(problem), even_cuts(width, limits), VECS)
        if n * x * vecs <= MAX_VECTORS
    ]
    return [Config(n, x, vecs, 1, True, True) for _, n, x, vecs in sorted(shapes)[:MOST_GUESSES]]


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return a launch that packs weights, one that packs images where needed, the correlations."""
    weights, *images = packed = packings(problem, config)
    part = parts_of(problem)[0]
    packs = (
        pack_weights(problem, weights, part.channels, part.depth, LANES, pairs=True),
        *(_pack_images(problem, one) for one in images),
    )
    read = _read(problem)
    launches = (correlate(NAME, problem, config, one, weights, read) for one in parts_of(problem))
    return Plan((*packs, *launches), sizes_of(packed))


def packings(problem: ConvProblem, config: Config) -> list[Packing]:
    """Return how the weights are packed and, unless they are read as they lie, the images.

    Both come as words of two channels: weights [groups][blocks][taps][pairs][block], images
    [images * groups][pairs][pixels].
    """
    part = parts_of(problem)[0]
    taps, words = problem.kernel_h * problem.kernel_w, ceil_div(part.depth, PAIR)
    weights = Packing(
        PACKED, buffer("w"), problem.dtype, True, part.groups, part.channels, words * taps,
        config.block,
    )  # fmt: skip
    if _in_place(problem):
        return [weights]
    pixels = part.rows.read * part.cols.read
    read = buffer(operands(problem)[1])
    batch = part.batch * part.groups
    plane = round_up(pixels, LANES)
    images = Packing(IMAGES, read, problem.dtype, False, batch, pixels, words, plane)
    return [weights, images]


def _in_place(problem: ConvProblem) -> bool:
    """Whether pairs of channels of a group are neighbours in memory."""
    return problem.layout == "nhwc" and parts_of(problem)[0].depth % PAIR == 0


def _read(problem: ConvProblem) -> Pairs:
    part = parts_of(problem)[0]
    pixels = part.rows.read * part.cols.read
    if _in_place(problem):
        return Pairs(gemm_pairs.dot(), True, pixels, operands(problem)[1])
    return Pairs(gemm_pairs.dot(), False, round_up(pixels, LANES), IMAGES)


def _pack_images(problem: ConvProblem, packed: Packing) -> Launch:
    part = parts_of(problem)[0]
    image = part.groups * part.depth
    if problem.layout == "nhwc":
        steps = dict(zip(LANE_STEPS, (image, 1, 0, 0), strict=True))
        of_image, of_group = f"{packed.extent * image}L", part.depth
        at = f"matrix / {part.groups} * {of_image} + matrix % {part.groups} * {of_group}"
    else:
        steps = dict(zip(LANE_STEPS, (1, packed.extent, 0, 0), strict=True))
        at = f"matrix * {part.depth * packed.extent}L"
    return pack_matrices(packed, LANES, part.depth, 1, steps, at, pairs=True)
