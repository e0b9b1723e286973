"""Gradient of the weights of single taps in planes for CPUs: vector lanes are pixels.

`conv_register_weights` turns the gradient of y first, so that its lanes are channels. Of few input
channels that takes two thirds of the time; here nothing is packed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import TypeGuard

from oclgen.families.conv.conv_pixels_weights import is_multiplied
from oclgen.families.conv.conv_register_weights_plan import ITEMS_PER_UNIT, MAX_SPLIT
from oclgen.families.conv.lanes import MOST_GUESSES
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.planes import FLOAT_BYTES, PLANES, planes_space, sum_planes
from oclgen.family import BaseConfig, Traits
from oclgen.limits import KIB, Limits
from oclgen.parameters import Item, Parts, Tile, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "conv_lines_weights"

MAX_SUMS = 32
"""Vectors of sums of a pair of blocks past which some are spilled to memory."""
MOST_BYTES, SUMS_BYTES = 256 * KIB, 64 * KIB
"""Bytes of all sums of a work-item: at most, so that a core's second cache holds them, and those to
guess."""
TILE_BYTES = 64 * KIB
"""Bytes of a tile of x, which the second cache holds beside the sums."""
LEAST_PIXELS = 256
"""Pixels of an image that are worth to load and to store sums for: 256 and 256 channels of 8 images
of 14x14 take 3.6 ms, and 1.8 by `conv_register_weights`."""
MOST_INPUTS = 64
"""Input channels up to which y takes longer to be packed than sums to be loaded and stored: 96 to
576 channels of 116x7 take 9.5 ms, and 6.4 by `conv_register_weights`; 48 to 192 of 156x221 take 8.3
and 13.9."""
LONGEST, SHORTEST = 1024, 128
"""Pixels of a tile to guess."""
GROWING = ("IMAGES", "IMAGES_PER_PLANE")
"""Sizes that grow with the batch: arguments, where it is free."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch"})
    SLICES = "split"

    item_k: Item
    item_c: Item
    vec: Vector
    loop_k: Parts
    loop_c: Parts
    tile: Tile
    split: Parts

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if limits.kind == "gpu":
            return f"{NAME} gives each work-item whole vectors of pixels; GPUs take conv_gemm"
        if self.vec not in VECTOR_WIDTHS or self.vec == 1:
            return f"vec={self.vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS[1:]}"
        if self.tile % self.vec:
            return f"tile={self.tile} must be a multiple of vec={self.vec}"
        for name, channels in (("item_k", problem.out_channels), ("item_c", problem.in_channels)):
            if (item := getattr(self, name)) > channels:
                return f"{name}={item} is more than the {channels} channels"
        if (vectors := self.item_k * self.item_c) > MAX_SUMS:
            return (
                f"item_k={self.item_k} item_c={self.item_c} needs {vectors} vectors of sums; at "
                f"most {MAX_SUMS} stay in registers"
            )
        held = FLOAT_BYTES * self.loop_k * self.loop_c * vectors * self.vec
        if held > MOST_BYTES:
            return (
                f"loop_k={self.loop_k} loop_c={self.loop_c} needs {held} bytes of sums; at most "
                f"{MOST_BYTES} stay near"
            )
        if not 1 <= self.split <= problem.batch:
            return f"split={self.split}, but there are only {problem.batch} images to be split"
        return None

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (1, 1, 1)),), planes_space(problem, self.split))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the products of vectors of y's channels with those of x's."""
        used = covered((problem.out_channels, self.item_k), (problem.in_channels, self.item_c))
        pixels = problem.out_h * problem.out_w
        sums = self.item_k * self.item_c
        return Registers(
            self.vec, sums, self.item_c + 1, sums, self.item_k + self.item_c, 0,
            used * pixels / (ceil_div(pixels, self.vec) * self.vec),
        )  # fmt: skip


DEFAULT = Config(item_k=1, item_c=1, vec=4, loop_k=1, loop_c=1, tile=256, split=1)
TRAITS = Traits(rank=176, for_cpus=True, last_resort=True)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family computes the problem: single taps of few channels and many pixels."""
    return (
        isinstance(problem, ConvProblem)
        and problem.direction == "bwd_weights"
        and problem.layout == "nchw"
        and (problem.kernel_h, problem.kernel_w, problem.stride_h, problem.stride_w) == (1, 1, 1, 1)
        and problem.pad_h == problem.pad_w == 0
        and problem.groups == 1
        and problem.out_h * problem.out_w >= LEAST_PIXELS
        and problem.in_channels <= min(MOST_INPUTS, 2 * problem.out_channels)
    )


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid.

    They are ranked by the time per multiply-add that idle blocks, and loads of x and y, add up to.
    """
    if limits.kind == "gpu" or is_multiplied(problem.dtype, limits):
        return []
    out, into = problem.out_channels, problem.in_channels
    shapes = sorted(
        ((1 + 1 / k + 1 / c) * waste(out, k) * waste(into, c), k, c)
        for k, c in product(range(1, 9), range(1, 9))
        if k <= out and c <= into and k * c <= limits.vector_sums
    )
    return [_shared(problem, limits, k, c) for _, k, c in shapes[: MOST_GUESSES // 2]]


def _shared(problem: ConvProblem, limits: Limits, item_k: int, item_c: int) -> Config:
    """Return the config with the blocks and slices that give each core its work-items."""
    vec = limits.native_float_width
    most = max(SUMS_BYTES // (FLOAT_BYTES * item_k * item_c * vec), 1)
    blocks_k = ceil_div(problem.out_channels, item_k)
    blocks_c = ceil_div(problem.in_channels, item_c)
    loop_c = ceil_div(blocks_c, ceil_div(blocks_c, most))
    wanted = ITEMS_PER_UNIT * limits.compute_units if limits.compute_units > 1 else 1
    across = ceil_div(blocks_c, loop_c)
    shares = max(ceil_div(blocks_k * loop_c, most), ceil_div(wanted, across))
    loop_k = ceil_div(blocks_k, min(shares, blocks_k))
    items = across * ceil_div(blocks_k, loop_k)
    split = 1 << (ceil_div(wanted, items) - 1).bit_length()
    tile = TILE_BYTES // (FLOAT_BYTES * loop_c * item_c)
    tile = max(min(tile, LONGEST), SHORTEST) // vec * vec
    return Config(
        item_k, item_c, vec, loop_k, loop_c, tile,
        min(split, 1 << problem.batch.bit_length() - 1, MAX_SPLIT),
    )  # fmt: skip


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches that sum over pixels, and add planes if there are."""
    sizes = {
        "CHANNELS": problem.out_channels, "DEPTH": problem.in_channels,
        "PIXELS": problem.out_h * problem.out_w, "IMAGES": problem.batch,
        "IMAGES_PER_PLANE": ceil_div(problem.batch, config.split),
    }  # fmt: skip
    given = GROWING if problem.free else ()

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            sizes={name: value for name, value in sizes.items() if name not in given},
            given=given,
        )

    launch = Launch(
        text=text,
        kernel=NAME,
        global_size=(
            ceil_div(problem.out_channels, config.item_k * config.loop_k),
            ceil_div(problem.in_channels, config.item_c * config.loop_c),
            config.split,
        ),
        local_size=(1, 1, 1),
        args=(
            *buffer("y"),
            *buffer("x"),
            *buffer(PLANES if config.split > 1 else "w"),
            *(Scalar(sizes[name]) for name in given),
        ),
    )
    whole = sum_planes(problem, config.split).behind(launch)
    return Plan(whole.launches, config.needs(problem).workspaces)
