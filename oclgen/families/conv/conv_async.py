"""Implicit-GEMM convolution in fp32 whose tiles come by `cp.async`, on GPUs that have it.

It has the operands of `conv_gemm` and the reduction of `gemm_async`. Tiles go straight to local
memory and need no registers on their way. Other dtypes would have to be widened on that way, so
`conv_gemm` serves them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

from oclgen.families.conv import conv_gemm_operands as parts
from oclgen.families.conv import conv_gemm_plan as around
from oclgen.families.conv.conv_async_text import Text
from oclgen.families.conv.conv_gemm_tiles import Shape, best_split_of, fitting, tap_orders
from oclgen.families.gemm import gemm_async
from oclgen.families.gemm.gemm_parts import ALIGNED
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Local, Pad, Parts, Stages, Tile, Warps
from oclgen.plan import Outline, Plan
from oclgen.problem import ConvProblem, Problem

NAME = "conv_async"

SHAPES: tuple[Shape, ...] = (
    (128, 96, 8, 16, 8, 3), (128, 128, 8, 16, 8, 3), (128, 128, 16, 16, 16, 2),
    (64, 96, 8, 8, 8, 3), (64, 128, 8, 8, 8, 4), (64, 256, 8, 8, 16, 3), (128, 64, 8, 16, 8, 3),
    (64, 64, 8, 8, 8, 4),
)  # fmt: skip
"""Guesses of what fits: 64 to 128 accumulators."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch"})
    SLICES = "split_k"

    tile_m: Tile
    tile_n: Tile
    tile_k: Tile
    local_m: Local
    local_n: Local
    warp_m: Warps
    pad: Pad
    stages: Stages
    taps_outer: bool
    split_k: Parts
    group_m: Parts
    order: str

    @property
    def product(self) -> gemm_async.Config:
        """The product's parameters: what `gemm_async` knows of tiles holds here too."""
        return gemm_async.Config(
            self.tile_m, self.tile_n, self.tile_k, self.local_m, self.local_n, self.warp_m,
            pad_a=self.pad, pad_b=self.pad, stages=self.stages, split_k=self.split_k,
            group_m=self.group_m, pack_a=False, pack_b=False, order=self.order,
        )  # fmt: skip

    @property
    def tiles(self) -> parts.Tiles:
        """The tiles and the copies, as the operands need them."""
        return parts.Tiles(
            self.tile_m, self.tile_n, self.tile_k, self.local_m * self.local_n, self.taps_outer,
            copied=True,
        )  # fmt: skip

    def with_best_split(self, problem: ConvProblem, limits: Limits) -> Config:
        """Return this config with the slices of the reduction that `problem` wants."""
        items = self.local_m * self.local_n
        split = best_split_of(problem, limits, self.tile_m, self.tile_n, items)
        return replace(self, split_k=split)

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := limits.why_no("cp_async"):
            return reason
        return (
            self.product.shape_conflict()
            or self._copy_conflict(problem)
            or self._memory_conflict()
            or around.layout_why_not(problem, limits)
            or around.reduction_why_not(problem, self.tiles, self.split_k)
        )

    def outline(self, problem: ConvProblem) -> Outline:
        """Return the plan without the product's text and arguments."""
        local_bytes = self.product.local_bytes
        return around.outline(NAME, problem, self.tiles, self.split_k, local_bytes)

    def _copy_conflict(self, problem: ConvProblem) -> str | None:
        if self.pad % parts.QUAD:
            return f"pad={self.pad} misaligns vectors of {parts.QUAD}; use a multiple"
        if parts.along_k(problem) and self.tile_k > self.local_m * self.local_n:
            return (
                f"tile_k={self.tile_k} steps are more than local_m={self.local_m} x "
                f"local_n={self.local_n} work-items, which copy one each"
            )
        return None

    def _memory_conflict(self) -> str | None:
        product = self.product
        if not product.sum_rows:
            return (
                f"{product.item_n} sums of each of {product.work_items} work-items do not fit in "
                f"the tiles' {product.local_bytes} B of local memory, through which they are stored"
            )
        return None


DEFAULT = Config(
    tile_m=64, tile_n=64, tile_k=8, local_m=8, local_n=8, warp_m=4, pad=4, stages=2,
    taps_outer=True, split_k=1, group_m=8, order="m",
)  # fmt: skip
TRAITS = Traits(rank=220, instructions=frozenset({"cp_async"}))


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return around.serves(problem) and problem.dtype == "fp32"


def guesses(problem: ConvProblem, limits: Limits) -> Iterator[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid.

    They are ranked as those of `conv_gemm`.
    """
    if "cp_async" not in limits.instructions:
        return iter(())
    taps_outer = tap_orders(problem)[0]
    pad = 4 if parts.along_k(problem) else 0
    return (
        Config(
            tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, local_m=local_m, local_n=local_n,
            warp_m=4, pad=pad, stages=stages, taps_outer=taps_outer,
            split_k=best_split_of(problem, limits, tile_m, tile_n, local_m * local_n),
            group_m=8, order="m",
        )
        for tile_m, tile_n, tile_k, local_m, local_n, stages in fitting(problem, limits, SHAPES)
    )  # fmt: skip


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches: packing of the weights, the product, the sum of its planes."""
    product = around.product_of(problem, config.tiles)
    summed = config.split_k > 1
    residual = problem.residual and not summed
    edge_m = product.m % config.tile_m != 0
    free_n = parts.columns_grow(problem)
    edge_n = free_n or product.n % config.tile_n != 0 or product.phases > 1
    launch = around.launch_of(
        NAME,
        problem,
        config.tiles,
        config.split_k,
        product,
        config.product.local_bytes,
        config=config.product,
        aligned=ALIGNED,
        wide=product.wide,
        runs=product.runs(parts.QUAD),
        edge_m=edge_m,
        edge_n=edge_n,
        text=Text(
            config.product,
            bias=problem.bias and not summed,
            residual=residual,
            act="" if summed or residual else "ACT",
            edge_m=edge_m,
            edge_n=edge_n,
        ),
    )
    return around.plan_of(problem, config.tiles, config.split_k, launch)
