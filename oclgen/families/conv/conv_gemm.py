"""Implicit-GEMM convolution with tiles in local memory: any stride, padding, dilation and groups.

Made for GPUs, right everywhere; on CPUs, whose local memory is ordinary memory, `conv_register`
is the faster one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

from oclgen.families.conv import conv_gemm_operands as parts
from oclgen.families.conv import conv_gemm_plan as around
from oclgen.families.conv.conv_gemm_tiles import (
    Shape,
    best_split_of,
    fitting,
    product_of,
    tap_orders,
)
from oclgen.families.gemm.gemm_parts import aligned_preamble
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Local, Pad, Parts, Stages, Tile, Unroll, Vector, values_of
from oclgen.plan import Outline, Plan
from oclgen.problem import ConvProblem, Problem
from oclgen.render import VECTOR_WIDTHS, dtype_preamble

NAME = "conv_gemm"

MAX_ACCUMULATORS = 256
"""Private floats per work-item past which GPU compilers spill to memory."""
SHAPES: tuple[Shape, ...] = (
    (128, 64, 16, 16, 8, 2), (64, 128, 16, 8, 16, 2), (64, 64, 16, 8, 8, 2),
    (128, 128, 16, 8, 16, 2), (128, 128, 16, 16, 16, 2), (32, 128, 16, 8, 16, 2),
    (32, 64, 16, 8, 8, 2), (16, 128, 8, 4, 16, 2),
)  # fmt: skip
"""Guesses of what fits: 64 accumulators, or 32 for few rows."""
FEW_ROWS = 8
"""Rows of a product, channels of a group's results, up to which `SHAPES` compute rows in vain."""
FEW_SHAPES: tuple[Shape, ...] = ((8, 256, 16, 1, 64, 1), (8, 256, 16, 2, 64, 1))
"""Guesses for `FEW_ROWS`: 32 or 16 accumulators."""
FEW_ACCUMULATORS = 32
"""Results of a work-item on devices with few registers."""
FEW_FLOATS = 48
"""The same, and the elements that it copies of a tile."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its templates begin with the legends."""

    FREE = frozenset({"batch"})
    SLICES = "split_k"

    tile_m: Tile
    tile_n: Tile
    tile_k: Tile
    local_m: Local
    local_n: Local
    vec_m: Vector
    vec_n: Vector
    pad: Pad
    buffers: Stages
    prefetch: bool
    unroll_k: Unroll
    taps_outer: bool
    split_k: Parts
    m_fastest: bool

    @property
    def work_items(self) -> int:
        """Work-items per group."""
        return self.local_m * self.local_n

    @property
    def tiles(self) -> parts.Tiles:
        """The tiles and the copies, as the operands need them."""
        return parts.Tiles(self.tile_m, self.tile_n, self.tile_k, self.work_items, self.taps_outer)

    @property
    def local_bytes(self) -> int:
        """Local memory of a work-group."""
        return 4 * self.buffers * self.tile_k * (self.tile_m + self.tile_n + 2 * self.pad)

    def with_best_split(self, problem: ConvProblem, limits: Limits) -> Config:
        """Return this config with the slices of the reduction that `problem` wants.

        Intel's compiler (22.43) dies on slices of a reduction over taps.
        """
        shape = self.tile_m, self.tile_n, self.work_items
        return replace(self, split_k=_best_split(problem, limits, *shape))

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        return (
            around.layout_why_not(problem, limits)
            or self._tile_why_not("m", self.tile_m, self.local_m, self.vec_m)
            or self._tile_why_not("n", self.tile_n, self.local_n, self.vec_n)
            or self._copy_why_not(problem)
            or self._registers_why_not()
            or self._reduction_why_not(problem)
        )

    def outline(self, problem: ConvProblem) -> Outline:
        """Return the plan without the product's text and arguments."""
        local_bytes = self.local_bytes
        return around.outline(NAME, problem, self.tiles, self.split_k, local_bytes)

    def _tile_why_not(self, axis: str, tile: int, local: int, vec: int) -> str | None:
        if vec not in VECTOR_WIDTHS:
            return f"vec_{axis}={vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if tile % (local * vec):
            return (
                f"tile_{axis}={tile} is no multiple of local_{axis}={local} times "
                f"vec_{axis}={vec}, {local * vec}"
            )
        if self.pad % vec:
            return f"pad={self.pad} misaligns vectors of vec_{axis}={vec}; use a multiple of it"
        if tile * self.tile_k % self.work_items:
            return (
                f"a tile of tile_{axis}={tile} x tile_k={self.tile_k} elements cannot be shared "
                f"evenly by local_m={self.local_m} x local_n={self.local_n} work-items"
            )
        return None

    def _copy_why_not(self, problem: ConvProblem) -> str | None:
        items, weights = self.work_items, problem.direction == "bwd_weights"
        if parts.along_k(problem):
            if items % self.tile_k:
                return f"tile_k={self.tile_k} steps do not divide among {items} work-items"
        elif items % self.tile_n and self.tile_n % items:
            return f"tile_n={self.tile_n} columns do not divide among {items} work-items"
        elif weights and items % self.tile_m and self.tile_m % items:
            return f"tile_m={self.tile_m} rows do not divide among {items} work-items"
        if weights:
            return None
        width = parts.width_a(self.tiles)
        if width is None:
            return f"tile_m={self.tile_m} rows do not divide among {items} work-items"
        if self.pad % width:
            return f"pad={self.pad} misaligns the copies of {width} weights at once; use 0"
        return None

    def _registers_why_not(self) -> str | None:
        accumulators = self.tile_m * self.tile_n // self.work_items
        if accumulators > MAX_ACCUMULATORS:
            return (
                f"tile_m={self.tile_m} tile_n={self.tile_n} needs {accumulators} accumulators per "
                f"work-item; at most {MAX_ACCUMULATORS} stay in registers"
            )
        return None

    def _reduction_why_not(self, problem: ConvProblem) -> str | None:
        if self.buffers not in (1, 2):
            return f"buffers={self.buffers}; a tile has one buffer or two"
        if self.tile_k % self.unroll_k:
            return f"tile_k={self.tile_k} is no multiple of unroll_k={self.unroll_k}"
        return around.reduction_why_not(problem, self.tiles, self.split_k)


DEFAULT = Config(
    tile_m=64, tile_n=32, tile_k=8, local_m=8, local_n=8, vec_m=4, vec_n=4, pad=0, buffers=1,
    prefetch=False, unroll_k=4, taps_outer=True, split_k=1, m_fastest=True,
)  # fmt: skip
# Intel's compiler (22.43) dies on some gradients of `DEFAULT`
TRAITS = Traits(rank=210, sparing=replace(DEFAULT, tile_m=32))


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return around.serves(problem)


def _best_split(
    problem: ConvProblem, limits: Limits, tile_m: int, tile_n: int, work_items: int
) -> int:
    if limits.has_few_registers and problem.direction != "bwd_weights":
        return 1
    return best_split_of(problem, limits, tile_m, tile_n, work_items)


def guesses(problem: ConvProblem, limits: Limits) -> Iterator[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return iter(())
    pad = 4 if parts.along_k(problem) else 0
    few = limits.has_few_registers
    shapes = (*SHAPES, *FEW_SHAPES) if has_few_rows(problem) else SHAPES
    shapes = _lean(shapes) if few else shapes
    taps_outer = tap_orders(problem)[0]
    return (
        Config(
            tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, local_m=local_m, local_n=local_n,
            vec_m=4 if tile_m >= 4 * local_m else 2, vec_n=4, pad=pad, buffers=buffers,
            prefetch=not few, unroll_k=4 if few else 8, taps_outer=taps_outer,
            split_k=_best_split(problem, limits, tile_m, tile_n, local_m * local_n), m_fastest=True,
        )
        for tile_m, tile_n, tile_k, local_m, local_n, buffers in fitting(problem, limits, shapes)
    )  # fmt: skip


def has_few_rows(problem: ConvProblem) -> bool:
    """Say whether a group's results have so few channels that `FEW_SHAPES` are for them."""
    return problem.direction != "bwd_weights" and product_of(problem)[0] <= FEW_ROWS


def _lean(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Return the shapes for few registers, with shorter tiles where many elements are copied."""
    found = []
    for tile_m, tile_n, tile_k, local_m, local_n, buffers in shapes:
        items = local_m * local_n
        if (sums := tile_m * tile_n // items) > FEW_ACCUMULATORS:
            continue
        while sums + (tile_m + tile_n) * tile_k // items > FEW_FLOATS:
            tile_k //= 2
        found.append((tile_m, tile_n, tile_k, local_m, local_n, buffers))
    return tuple(found)


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches: packing of the weights, the product, the sum of its planes."""
    product = around.product_of(problem, config.tiles)
    values = values_of(config)
    del values["taps_outer"]
    launch = around.launch_of(
        NAME,
        problem,
        config.tiles,
        product=product,
        local_bytes=config.local_bytes,
        **values,
        preamble=f"{dtype_preamble(problem.dtype)}\n{aligned_preamble(problem.dtype)}",
        a_type=product.a_type,
        runs=product.runs(config.vec_n if product.along == "n" else config.vec_m),
    )
    return around.plan_of(problem, config.tiles, config.split_k, launch)
