"""Implicit-GEMM convolution in fp32 whose tiles come by `cp.async`, on GPUs that have it.

It is `conv_gemm` without the registers that hold a tile on its way, with the reduction of
`gemm_async`; other dtypes have to be widened on the way and stay there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeGuard

from oclgen.families.conv import conv_gemm_operands as parts
from oclgen.families.conv import conv_gemm_plan as around
from oclgen.families.gemm import gemm_async
from oclgen.families.gemm.gemm_parts import ALIGNED, work_group_too_large
from oclgen.limits import Limits
from oclgen.plan import Plan
from oclgen.problem import ConvProblem, Problem

NAME = "conv_async"


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters of the kernel; the legend stands at the head of its template."""

    tile_m: int
    tile_n: int
    tile_k: int
    local_m: int
    local_n: int
    warp_m: int
    pad: int
    stages: int
    taps_outer: bool
    split_k: int
    group_m: int
    order: str

    @property
    def product(self) -> gemm_async.Config:
        """The product's parameters: what `gemm_async` knows of tiles holds here too."""
        shared = asdict(self)
        pad = shared.pop("pad")
        del shared["taps_outer"]
        return gemm_async.Config(**shared, pad_a=pad, pad_b=pad, pack_a=False, pack_b=False)

    @property
    def tiles(self) -> parts.Tiles:
        """What the operands have to know."""
        return parts.Tiles(
            self.tile_m, self.tile_n, self.tile_k, self.local_m * self.local_n, self.taps_outer,
            copied=True,
        )  # fmt: skip

    def why_not(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers why this config cannot serve `problem` on such a device, or None."""
        if reason := limits.why_no("cp_async"):
            return reason
        return (
            self.product.shape_conflict()
            or self._copy_conflict(problem)
            or self._memory_conflict(limits)
            or work_group_too_large(self.local_m * self.local_n, 1, limits)
            or around.layout_why_not(problem, limits)
            or around.sum_why_not(problem, limits)
            or around.reduction_why_not(problem, self.tiles, self.split_k)
            or around.memory_why_not(problem, self.tiles, self.split_k, limits)
        )

    def _copy_conflict(self, problem: ConvProblem) -> str | None:
        if self.pad % parts.QUAD:
            return f"pad={self.pad} misaligns vectors of {parts.QUAD}; use a multiple"
        if parts.along_k(problem) and self.tile_k > self.local_m * self.local_n:
            return (
                f"tile_k={self.tile_k} steps are more than local_m={self.local_m} x "
                f"local_n={self.local_n} work-items, which copy one each"
            )
        return None

    def _memory_conflict(self, limits: Limits) -> str | None:
        product = self.product
        if product.local_bytes > limits.local_bytes:
            return (
                f"tile {self.tile_m}x{self.tile_n}x{self.tile_k} in {self.stages} stages needs "
                f"{product.local_bytes} B of local memory; the device has {limits.local_bytes}"
            )
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


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return around.serves(problem) and problem.dtype == "fp32"


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches: packing of the weights, the product, the sum of its planes."""
    product = around.product_of(problem, config.tiles)
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
        edge_m=product.m % config.tile_m != 0,
        edge_n=product.n % config.tile_n != 0 or product.phases > 1,
    )
    return around.plan_of(problem, config.tiles, config.split_k, launch)
