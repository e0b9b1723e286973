"""Gradient of a filter by Winograd: F(r x r, m x m), both inputs in tiles, one batched GEMM.

The forward and data directions are `winograd_staged`'s; the product is any GEMM family's plan.

The gradient correlates x with the gradient of y, which is cut into tiles of m x m: each is a
filter of that size on its tile of x and gives the filter's r x r results. The sum over all tiles
is taken between the transforms, where it is the reduction of a matrix product
(arXiv:1509.09308, section 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, TypeGuard

from oclgen.families.gemm import gemm_staged
from oclgen.families.parts.blocking import ITEMS_PER_UNIT
from oclgen.families.parts.planes import Sum
from oclgen.families.winograd import winograd_common as common
from oclgen.families.winograd import winograd_filters
from oclgen.families.winograd import winograd_pixels as pixels
from oclgen.families.winograd.winograd_common import FLOAT, ProductText
from oclgen.families.winograd.winograd_geometry import (
    IMAGES,
    Geometry,
    OutTile,
    Taps,
    Tiling,
    fits,
    geometry,
    most_summed,
    multiplied,
    tiling_why_not,
)
from oclgen.families.winograd.winograd_inputs import input_group, input_launch
from oclgen.families.winograd.winograd_matrices import Matrix, cook_toom
from oclgen.families.winograd.winograd_products import best_tilings, by_rank, product_guesses
from oclgen.families.winograd.winograd_staged import TILE_STEP, renamed
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits, broken
from oclgen.parameters import Local, Range
from oclgen.plan import (
    Frame,
    Launch,
    LazyText,
    Needs,
    Outline,
    Plan,
    Scalar,
    buffer,
    ceil_div,
    round_up,
)
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.render import dtype_preamble, render, vector
from oclgen.variant import Variant

NAME = "winograd_weights"

ROLES = {"a": "gradient", "b": "v", "c": "m"}
SLICES = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of slices worth trying."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters: tile of y's gradient, tiles per slice, work-groups, and the product's config.

    A slice is a product of its own; they are added afterwards, so that no sum needs atomics.
    `taps` are rows and columns of a block of the filter, 0 where it is whole.
    """

    FREE = frozenset({"batch"})

    out_tile: OutTile
    slice_t: Annotated[int, Range(1, 1 << 30)]
    local_t: Local
    local_c: Local
    gemm: ProductText
    taps: Taps = 0

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := tiling_why_not(problem, self.out_tile, self.taps):
            return reason
        geo = self.geometry(problem)
        if reason := pixels.conflict(geo, 1, limits):
            return reason
        if self.slice_t % TILE_STEP:
            return f"slice_t={self.slice_t} is no multiple of {TILE_STEP} tiles"
        if self.slice_t > round_up(geo.tiles, TILE_STEP) and self.slice_t > DEFAULT.slice_t:
            return f"slice_t={self.slice_t} is more than the {geo.tiles} tiles there are"
        return common.product_why_not(self.gemm, gemm_problem(geo, self.slice_t), limits)

    def geometry(self, problem: ConvProblem) -> Geometry:
        """Return the sizes of the tiles and blocks."""
        return geometry(problem, self.out_tile, self.taps)

    def multiplied(self, problem: ConvProblem) -> float:
        """Return the multiply-adds of the products over the problem's."""
        return multiplied(problem, self.out_tile, self.taps)

    def tiled(self, problem: ConvProblem) -> GemmProblem:
        """Return the product of all points."""
        return gemm_problem(self.geometry(problem), self.slice_t)

    def outline(self, problem: ConvProblem) -> Outline:
        """Return the plan, in which the product has neither text nor arguments."""
        geo = self.geometry(problem)
        product = Variant.from_text(self.gemm).outline(gemm_problem(geo, self.slice_t))
        before, behind = self.around(problem, geo)
        spaces = (*workspaces(geo, self.slice_t), *product.workspaces)
        return Outline((*before, *product.launches, *behind), spaces, product.counters)

    def around(
        self, problem: ConvProblem, geo: Geometry
    ) -> tuple[tuple[Launch, ...], tuple[Launch, ...]]:
        """Return the launches before the product and those behind it."""
        is_summed = geo.free or slices(geo, self.slice_t) > 1
        sums = (_sum(geo, self).launch(),) if is_summed else ()
        before = _transforms(problem, geo, self.slice_t, self.local_t)
        return before, (*sums, _inverse(problem, geo, self))

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        geo = self.geometry(problem)
        product = common.product_needs(self.gemm, gemm_problem(geo, self.slice_t))
        frames = (
            Frame("winograd_input", input_group(geo, 1, self.local_t)),
            Frame("winograd_input", input_group(geo.gradient, 1, self.local_t)),
            Frame("winograd_gradient", (self.local_c,)),
        )
        spaces = (*workspaces(geo, self.slice_t), *product.workspaces)
        return Needs((*frames, *product.frames), spaces)


DEFAULT = Config(
    out_tile=4, slice_t=256, local_t=32, local_c=32,
    gemm=Variant(gemm_staged.NAME, replace(gemm_staged.DEFAULT, tile_m=64, unroll_k=4)).to_text(),
)  # fmt: skip
TRAITS = Traits(rank=200, transforming=True)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return fits(problem) and problem.direction == "bwd_weights"


@lru_cache(maxsize=64)
def gemm_problem(geo: Geometry, slice_t: int) -> GemmProblem:
    """Return the product of all slices and points: M [filters, channels] = Y [.., slice] V^T.

    Of pixels Y is [slice, filters] and V [slice, channels].
    """
    return GemmProblem(
        geo.filters, geo.summed, slice_t, trans_a=geo.pixels, trans_b=not geo.pixels,
        batch=slices(geo, slice_t) * geo.points,
        free=frozenset({"batch"}) if geo.free else frozenset(),
    )  # fmt: skip


def slices(geo: Geometry, slice_t: int) -> int:
    """Return the number of slices that the tiles fill."""
    return ceil_div(geo.tiles, slice_t)


def guesses(problem: ConvProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs for an untuned problem, best guess first; some may not be valid."""
    found = () if limits.kind == "cpu" else best_tilings(problem)
    return by_rank(_guesses_of(problem, tiling, limits) for tiling in found)


def _guesses_of(problem: ConvProblem, tiling: Tiling, limits: Limits) -> Iterator[Config]:
    geo = geometry(problem, *tiling)
    slice_t = full_slice(geo, limits)
    if broken(Needs((), workspaces(geo, slice_t)), limits):
        return
    for text in product_guesses(gemm_problem(geo, slice_t), limits):
        yield Config(geo.out_tile, slice_t, local_t=128, local_c=64, gemm=text, taps=tiling.taps)


def slice_of(geo: Geometry, count: int) -> int:
    """Return the tiles of a slice, for about `count` slices."""
    return round_up(ceil_div(geo.tiles, count), TILE_STEP)


def full_slice(geo: Geometry, limits: Limits) -> int:
    """Return the tiles of the longest slice that leaves every compute unit its work-items, and
    whose sums keep their digits.
    """  # noqa: D205
    results = geo.points * round_up(geo.filters, 64) * round_up(geo.summed, 64)
    wanted = ITEMS_PER_UNIT * limits.compute_units * 64 / results
    longest = slice_of(geo, next((count for count in SLICES if count >= wanted), SLICES[-1]))
    return min(longest, most_summed(geo) or longest)


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches: both transforms, the product, a sum of slices, the inverse."""
    geo = config.geometry(problem)
    product = Variant.from_text(config.gemm).plan(gemm_problem(geo, config.slice_t))
    middle = tuple(renamed(launch, ROLES) for launch in product.launches)
    before, behind = config.around(problem, geo)
    spaces = (*workspaces(geo, config.slice_t), *product.workspaces)
    return replace(product, launches=(*before, *middle, *behind), workspaces=spaces)


@lru_cache(maxsize=64)
def _transforms(
    problem: ConvProblem, geo: Geometry, slice_t: int, local_t: int
) -> tuple[Launch, Launch]:
    """Return the transforms of both inputs, which most guesses for a problem share."""
    x_axis = LazyText(lambda: common.input_axis(geo, 1))
    y_axis = LazyText(lambda: common.axis_function("input_axis", _gradient_matrix(geo), vector(1)))
    shape: dict[str, Any] = {"tiles": slices(geo, slice_t) * slice_t, "slice_t": slice_t}
    return (
        input_launch(problem.dtype, geo, "v", x_axis, 1, local_t, **shape),
        input_launch(
            problem.dtype, geo.gradient, "gradient", y_axis, 1, local_t, read="OUT_TILE", **shape
        ),
    )


def _gradient_matrix(geo: Geometry) -> Matrix:
    return cook_toom(geo.taps, geo.out_tile).filter


def workspaces(geo: Geometry, slice_t: int) -> common.Workspaces:
    """Return role and bytes of both transformed inputs and of M; the product may have its own."""
    products = slices(geo, slice_t) * geo.points
    return (
        ("v", FLOAT * products * geo.summed * slice_t),
        ("gradient", FLOAT * products * geo.filters * slice_t),
        ("m", FLOAT * products * geo.filters * geo.summed),
    )


def _sum(geo: Geometry, config: Config) -> Sum:
    """Return the sum of the slices, in place of the first."""
    shape = (1, 1, geo.points * geo.filters * geo.summed)
    return Sum(
        gemm_problem(geo, config.slice_t), slices(geo, config.slice_t), shape,
        buffer("m"), local_size=config.local_c, role="m", grows=geo.free,
    )  # fmt: skip


def _inverse(problem: ConvProblem, geo: Geometry, config: Config) -> Launch:
    matrices = cook_toom(geo.taps, geo.out_tile)
    sizes = {"FILTERS": geo.filters, "CHANNELS": geo.summed}
    if geo.blocks > 1:
        sizes["SOURCE_CHANNELS"] = geo.channels

    @LazyText
    def text() -> str:
        return render(
            "winograd_gradient",
            preamble=dtype_preamble(problem.dtype),
            defines=geo.defines(IMAGES),
            taps=geo.taps,
            cut=geo.blocks > 1,
            given=tuple(sizes),
            strided=geo.pixels,
            output_axis=common.axis_function("output_axis", matrices.output, vector(1)),
            local_c=config.local_c,
        )

    return Launch(
        text=text,
        kernel="winograd_gradient",
        global_size=(round_up(geo.filters * geo.summed, config.local_c),),
        local_size=(config.local_c,),
        args=(
            *buffer("m"),
            *winograd_filters.weights(problem),
            *map(Scalar, sizes.values()),
        ),
    )
