"""Gradient of a filter by Winograd: F(r x r, m x m), both inputs in tiles, one batched GEMM.

The forward and data directions are `winograd_staged`'s; the product is any GEMM family's plan.

The gradient correlates x with the gradient of y, which is cut into tiles of m x m: each is a
filter of that size on its tile of x and gives the filter's r x r results. The sum over all tiles
is taken between the transforms, where it is the reduction of a matrix product
(arXiv:1509.09308, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from oclgen.families.gemm import gemm_staged
from oclgen.families.winograd import winograd_common as common
from oclgen.families.winograd import winograd_pixels as pixels
from oclgen.families.winograd.winograd_common import FLOAT, Geometry
from oclgen.families.winograd.winograd_matrices import cook_toom
from oclgen.families.winograd.winograd_staged import (
    GEMMS,
    TILE_STEP,
    gemm_text,
    parse_gemm,
    renamed,
)
from oclgen.limits import Limits
from oclgen.plan import Launch, Plan, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.render import dtype_preamble, render, vector

NAME = "winograd_weights"

ROLES = {"a": "gradient", "b": "v", "c": "m"}


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters: tile of y's gradient, tiles per slice, work-groups, and the product's config.

    A slice is a product of its own; they are added afterwards, so that no sum needs atomics.
    """

    out_tile: int
    slice_t: int
    local_t: int
    local_c: int
    gemm: str

    def why_not(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers why this config cannot serve `problem` on such a device, or None."""
        geo = common.geometry(problem, self.out_tile)
        if reason := common.no_points(geo):
            return reason
        if reason := pixels.conflict(geo, 1, limits):
            return reason
        if self.slice_t < 1 or self.slice_t % TILE_STEP:
            return f"slice_t={self.slice_t} is no multiple of {TILE_STEP} tiles"
        largest = min(limits.max_work_group, limits.max_work_items[0])
        if max(self.local_t, self.local_c) > largest:
            return f"local_t={self.local_t} local_c={self.local_c}: the device allows {largest}"
        if self.slice_t > round_up(geo.tiles, TILE_STEP) and self.slice_t > DEFAULT.slice_t:
            return f"slice_t={self.slice_t} is more than the {geo.tiles} tiles there are"
        try:
            family, config = parse_gemm(self.gemm)
        except ValueError as error:
            return str(error)
        reason = config.why_not(gemm_problem(geo, self.slice_t), limits)
        if reason:
            return f"the product by {family}: {reason}"
        return common.too_large(workspaces(geo, self.slice_t), limits)


DEFAULT = Config(
    out_tile=4, slice_t=256, local_t=32, local_c=32,
    gemm=gemm_text(gemm_staged.NAME, replace(gemm_staged.DEFAULT, tile_m=64, tile_n=64)),
)  # fmt: skip


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return common.fits(problem) and problem.direction == "bwd_weights"


def gemm_problem(geo: Geometry, slice_t: int) -> GemmProblem:
    """Return the product of all slices and points: M [filters, channels] = Y [.., slice] V^T.

    Of pixels Y is [slice, filters] and V [slice, channels].
    """
    batch = slices(geo, slice_t) * geo.points
    return GemmProblem(
        geo.filters, geo.channels, slice_t, trans_a=geo.pixels, trans_b=not geo.pixels, batch=batch
    )


def slices(geo: Geometry, slice_t: int) -> int:
    """Return the number of slices that the tiles fill."""
    return ceil_div(geo.tiles, slice_t)


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches: both transforms, the product, a sum of slices, the inverse."""
    geo = common.geometry(problem, config.out_tile)
    family, gemm_config = parse_gemm(config.gemm)
    product: Plan = GEMMS[family].plan(gemm_problem(geo, config.slice_t), gemm_config)
    x_axis = common.input_axis(geo, 1)
    matrices = cook_toom(geo.kernel, geo.out_tile)
    y_axis = common.axis_function("input_axis", matrices.filter, vector(1))
    shape: dict[str, Any] = {
        "tiles": slices(geo, config.slice_t) * config.slice_t, "slice_t": config.slice_t,
    }  # fmt: skip
    launches = (
        common.input_launch(problem.dtype, geo, "v", x_axis, 1, config.local_t, **shape),
        common.input_launch(
            problem.dtype, geo.gradient, "gradient", y_axis, 1, config.local_t,
            read="OUT_TILE", **shape,
        ),
        *(renamed(launch, ROLES) for launch in product.launches),
        *_sum(geo, config),
        _inverse(problem, geo, config),
    )  # fmt: skip
    return replace(
        product,
        launches=launches,
        workspaces=(*workspaces(geo, config.slice_t), *product.workspaces),
    )


def workspaces(geo: Geometry, slice_t: int) -> common.Workspaces:
    """Return role and bytes of both transformed inputs and of M; the product may have its own."""
    products = slices(geo, slice_t) * geo.points
    return (
        ("v", FLOAT * products * geo.channels * slice_t),
        ("gradient", FLOAT * products * geo.filters * slice_t),
        ("m", FLOAT * products * geo.filters * geo.channels),
    )


def _sum(geo: Geometry, config: Config) -> tuple[Launch, ...]:
    """Return the launch that adds the slices, if there are several."""
    count = slices(geo, config.slice_t)
    if count == 1:
        return ()
    elements = geo.points * geo.filters * geo.channels
    source = render("winograd_sum", slices=count, elements=elements, local_c=config.local_c)
    launch = Launch(
        source=source,
        kernel="winograd_sum",
        global_size=(round_up(elements, config.local_c),),
        local_size=(config.local_c,),
        args=buffer("m"),
    )
    return (launch,)


def _inverse(problem: ConvProblem, geo: Geometry, config: Config) -> Launch:
    matrices = cook_toom(geo.kernel, geo.out_tile)
    source = render(
        "winograd_gradient",
        preamble=dtype_preamble(problem.dtype),
        defines=geo.defines(),
        kernel=geo.kernel,
        strided=geo.pixels,
        output_axis=common.axis_function("output_axis", matrices.output, vector(1)),
        local_c=config.local_c,
    )
    return Launch(
        source=source,
        kernel="winograd_gradient",
        global_size=(round_up(geo.filters * geo.channels, config.local_c),),
        local_size=(config.local_c,),
        args=(*buffer("m"), *common.weights(problem)),
    )
