"""Gradient of weights in channels_last for CPUs: vector lanes are input channels.

`conv_register_weights` has output channels in its lanes: then the weights of a vector lie far apart
in channels_last, and of each pixel of x few channels are read at a time. Here both are neighbours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import TypeGuard

from oclgen.families.conv.conv_register_weights_plan import (
    GROWING,
    ITEMS_PER_UNIT,
    MAX_KERNEL_W,
    MAX_SPLIT,
    runs_along,
    sizes_of,
    sum_of,
)
from oclgen.families.conv.correlation import strung_windows
from oclgen.families.conv.lanes import MOST_GUESSES, VECS
from oclgen.families.gemm import gemm_pairs
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.planes import FLOAT_BYTES, PLANES, planes_space
from oclgen.families.parts.strided_weights import store_depths, strided_weights
from oclgen.family import BaseConfig, Traits
from oclgen.limits import KIB, Limits
from oclgen.parameters import Item, Parts, Tile, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "conv_pixels_weights"

MAX_SUMS = 32
"""Vectors of sums of a block past which some are spilled to memory (AVX-512 has 32 registers)."""
MOST_BYTES, SUMS_BYTES = 256 * KIB, 32 * KIB
"""Bytes of all sums of a work-item: at most, so that a core's second cache holds them, and those to
guess."""
FEW_OUTPUTS = 8
"""Output channels of a group that leave half of the lanes of pairs idle."""
TILE_BYTES = 8 * KIB
"""Bytes of a tile of x, beside which the nearest cache holds sums and a tile of y."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch"})
    SLICES = "split"

    item_k: Item
    vec: Vector
    vecs: Item
    loop_k: Parts
    tile: Tile
    split: Parts

    @property
    def block(self) -> int:
        """Input channels of a work-item."""
        return self.vec * self.vecs

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if limits.kind == "gpu":
            return f"{NAME} gives each work-item whole vectors of channels; GPUs take conv_gemm"
        if self.vec not in VECTOR_WIDTHS or self.vec == 1:
            return f"vec={self.vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS[1:]}"
        part = strung_windows(problem)
        if part.depth < self.block:
            return f"vec={self.vec} vecs={self.vecs} are more than {part.depth} input channels"
        if part.channels < self.item_k:
            return f"item_k={self.item_k} is more than the {part.channels} output channels"
        if (vectors := self.item_k * self.vecs * problem.kernel_w) > MAX_SUMS:
            return (
                f"item_k={self.item_k} vecs={self.vecs} with {problem.kernel_w} taps needs "
                f"{vectors} vectors of sums; at most {MAX_SUMS} stay in registers"
            )
        if (held := FLOAT_BYTES * self.loop_k * vectors * self.vec) > MOST_BYTES:
            return (
                f"loop_k={self.loop_k} needs {held} bytes of sums; at most {MOST_BYTES} stay near"
            )
        rows = part.batch * part.rows.results
        if not 1 <= self.split <= rows:
            return f"split={self.split}, but there are only {rows} rows to be split"
        return None

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (1, 1, 1)),), planes_space(problem, self.split))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of elements under the taps and of gradients of channels."""
        part = strung_windows(problem)
        used = covered((part.depth, self.block), (part.channels, self.item_k))
        return outer_product(
            self.vec, self.vecs * part.cols.taps, self.item_k, used, panel_step=problem.in_channels
        )


DEFAULT = Config(item_k=1, vec=2, vecs=1, loop_k=1, tile=64, split=1)
TRAITS = Traits(rank=175, for_cpus=True, last_resort=True)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        isinstance(problem, ConvProblem)
        and problem.direction == "bwd_weights"
        and problem.layout == "nhwc"
        and problem.in_channels > problem.groups
        and problem.kernel_w <= MAX_KERNEL_W
    )


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid.

    They are ranked by the time per multiply-add that idle lanes, and loads of x and y, add up to.
    """
    if limits.kind == "gpu" or is_left_to_another(problem, limits):
        return []
    part = strung_windows(problem)
    taps, width = part.cols.taps, min(limits.native_float_width, 1 << part.depth.bit_length() - 1)
    most = limits.vector_sums
    shapes = [
        (_time(k, vecs * taps) * waste(part.depth, width * vecs) * waste(part.channels, k), k, vecs)
        for k, vecs in product(items(problem, limits), VECS)
        if k * vecs * taps <= max(most, taps) and width * vecs <= part.depth
    ]
    return [
        _shared(problem, limits, k, width, vecs)
        for _, k, vecs in sorted(shapes)[: MOST_GUESSES // 2]
    ]


def is_left_to_another(problem: ConvProblem, limits: Limits) -> bool:
    """Say whether tiles or pairs of 16 bits compute the problem faster.

    What is packed for pairs are images as words of neighbours, twice as many bytes, of which a
    strided layer reads few; and lanes of few output channels idle. 96 to 7 channels of 56x56 at
    stride 2 take 3.4 ms, and by pairs 9.8 (33 images, one core); 24 to 76, 1x1, 4.7 and 7.8.
    """
    if not is_multiplied(problem.dtype, limits):
        return False
    part = strung_windows(problem)
    is_sparse = part.rows.step * part.cols.step > 1 or part.channels <= FEW_OUTPUTS
    by_pairs = PRODUCTS.get(problem.dtype) not in limits.instructions
    return not (by_pairs and is_sparse and part.depth >= limits.native_float_width)


def is_multiplied(dtype: str, limits: Limits) -> bool:
    """Say whether a processor multiplies 16 bits by themselves, and so faster than vectors do."""
    pairs = {"bf16": gemm_pairs.INSTRUCTION}
    return not {PRODUCTS.get(dtype), pairs.get(dtype)}.isdisjoint(limits.instructions)


def items(problem: ConvProblem, limits: Limits) -> tuple[int, ...]:
    """Return numbers of output channels whose taps have sums in registers."""
    part = strung_windows(problem)
    most = min(max(limits.vector_sums // part.cols.taps, 1), part.channels)
    return tuple(k for k in (*range(1, 9), 10, 12, 14, 20, 28) if k <= most)


def _time(broadcasts: int, vectors: int) -> float:
    """Return an estimate of the time per multiply-add: one, plus what the loads add."""
    return 1 + (vectors + broadcasts / 2) / (broadcasts * vectors)


def _shared(problem: ConvProblem, limits: Limits, item_k: int, vec: int, vecs: int) -> Config:
    """Return the config with the blocks and slices that give each core its work-items."""
    part, block = strung_windows(problem), vec * vecs
    count = ceil_div(part.channels, item_k)
    most = SUMS_BYTES // (FLOAT_BYTES * item_k * part.cols.taps * block)
    wanted = ITEMS_PER_UNIT * limits.compute_units if limits.compute_units > 1 else 1
    others = part.groups * ceil_div(part.depth, block) * part.rows.taps
    shares = min(max(ceil_div(count, max(most, 1)), ceil_div(wanted, others)), count)
    rows = part.batch * part.rows.results
    slices = 1 << (ceil_div(wanted, others * shares) - 1).bit_length()
    tile = TILE_BYTES // (FLOAT_BYTES * block * min(part.cols.step, part.cols.taps))
    return Config(
        item_k, vec, vecs, ceil_div(count, shares), tile,
        min(slices, 1 << rows.bit_length() - 1, MAX_SPLIT),
    )  # fmt: skip


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches that sum over positions, and add planes if there are."""
    part = strung_windows(problem)
    sizes = sizes_of(part, config.split)
    given = GROWING if problem.free else ()
    blocks = part.groups * ceil_div(part.depth, config.block) * part.rows.taps
    channels = ceil_div(part.channels, config.item_k * config.loop_k)

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            store_depths=store_depths(config.vec),
            sizes={name: value for name, value in sizes.items() if name not in given},
            given=given,
            taps=part.cols.taps,
            runs=runs_along(part),
        )

    launch = Launch(
        text=text,
        kernel=NAME,
        global_size=(blocks, channels, config.split),
        local_size=(1, 1, 1),
        args=(
            *buffer("y"),
            *buffer("x"),
            *(buffer(PLANES) if config.split > 1 else strided_weights(problem)),
            *(Scalar(sizes[name]) for name in given),
        ),
    )
    whole = sum_of(problem, config.split).behind(launch)
    return Plan(whole.launches, config.needs(problem).workspaces)
