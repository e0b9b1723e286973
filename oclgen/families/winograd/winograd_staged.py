"""Staged Winograd convolution: filter and input transforms, batched GEMM, inverse transform.

The product itself is not written here: any GEMM family's plan does it, in_tile^2 matrices at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeGuard

from oclgen.families.gemm import gemm_staged
from oclgen.families.gemm.gemm_parts import aligned_preamble
from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.families.winograd import winograd_common as common
from oclgen.families.winograd import winograd_filters
from oclgen.families.winograd import winograd_pixels as pixels
from oclgen.families.winograd.winograd_common import FLOAT, ProductText
from oclgen.families.winograd.winograd_geometry import (
    Geometry,
    OutTile,
    Taps,
    Tiling,
    fits,
    geometry,
    multiplied,
    slices_of,
    tiles_why_not,
    tiling_why_not,
)
from oclgen.families.winograd.winograd_inputs import input_group, input_launch, pixels_group
from oclgen.families.winograd.winograd_products import best_tilings, by_rank, product_guesses
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits, broken
from oclgen.parameters import Local, Vector
from oclgen.plan import (
    Buffer,
    Frame,
    Launch,
    LazyText,
    Needs,
    Offset,
    Outline,
    Plan,
    Scalar,
    buffer,
    ceil_div,
    round_up,
)
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render
from oclgen.variant import Variant

NAME = "winograd_staged"

TILE_STEP = 16
"""Tiles are padded to a multiple of this: no vector of them is ever split."""
ROLES = {"a": "u", "b": "v", "c": "m"}
ROLES_OF_PIXELS = {"a": "v", "b": "u", "c": "m"}


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters: output tile, shape of the transforms' work-items, and the product's config.

    `vec_t` and `local_t` are tiles of a work-item and work-items of a group; of pixels a work-item
    takes `vec_t` channels of one tile.
    `gemm` is the text of the product's `Variant`. `taps` are rows and columns of a block of the
    filter, 0 where it is whole.
    """

    FREE = frozenset({"batch"})

    out_tile: OutTile
    vec_t: Vector
    local_t: Local
    vec_k: Vector
    local_k: Local
    gemm: ProductText
    taps: Taps = 0

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := tiling_why_not(problem, self.out_tile, self.taps):
            return reason
        geo = self.geometry(problem)
        if self.vec_t not in VECTOR_WIDTHS or self.vec_k not in VECTOR_WIDTHS:
            return f"vec_t={self.vec_t} vec_k={self.vec_k}: vector widths are {VECTOR_WIDTHS}"
        if geo.filters % self.vec_k:
            return f"vec_k={self.vec_k} does not divide the {geo.filters} filters"
        if reason := pixels.conflict(geo, self.vec_t, limits):
            return reason
        if reason := common.product_why_not(self.gemm, gemm_problem(geo), limits):
            return reason
        return tiles_why_not(geo, Variant.from_text(self.gemm).config.split_k)

    def geometry(self, problem: ConvProblem) -> Geometry:
        """Return the sizes of the tiles and blocks."""
        return geometry(problem, self.out_tile, self.taps)

    def multiplied(self, problem: ConvProblem) -> float:
        """Return the multiply-adds of the products over the problem's."""
        return multiplied(problem, self.out_tile, self.taps)

    def tiled(self, problem: ConvProblem) -> GemmProblem:
        """Return the product of all points."""
        return gemm_problem(self.geometry(problem))

    def outline(self, problem: ConvProblem) -> Outline:
        """Return the plan, in which the product has neither text nor arguments."""
        geo = self.geometry(problem)
        product = Variant.from_text(self.gemm).outline(gemm_problem(geo))
        filters, images, results = self.transforms(problem, geo)
        launches = filters, images, *product.launches, results
        return Outline(launches, (*workspaces(geo), *product.workspaces), product.counters)

    def transforms(self, problem: ConvProblem, geo: Geometry) -> tuple[Launch, Launch, Launch]:
        """Return the launches around the product: of filters, of images, and of results."""
        return _transforms(problem, geo, self.vec_t, self.local_t, self.vec_k, self.local_k)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        geo = self.geometry(problem)
        product = common.product_needs(self.gemm, gemm_problem(geo))
        frames = (
            Frame("winograd_filter", (self.local_k, 1)),
            Frame("winograd_input", input_group(geo, self.vec_t, self.local_t)),
            Frame("winograd_output", _output_group(geo, self)),
        )
        return Needs((*frames, *product.frames), (*workspaces(geo), *product.workspaces))


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether it is a forward or backward-data convolution of 2x2 or more, stride 1."""
    return fits(problem) and problem.direction != "bwd_weights"


@lru_cache(maxsize=64)
def gemm_problem(geo: Geometry) -> GemmProblem:
    """Return the product of all points: M [filters, tiles] = U^T [channels, filters] V.

    Of pixels it is M [tiles, filters] = V [tiles, channels] U, so that what neighbouring work-items
    transform are neighbours on both sides.
    """
    tiles = round_up(geo.tiles, TILE_STEP)
    free = frozenset({"m" if geo.pixels else "n"}) if geo.free else frozenset()
    if geo.pixels:
        return GemmProblem(tiles, geo.filters, geo.summed, batch=geo.points, free=free)
    return GemmProblem(geo.filters, tiles, geo.summed, trans_a=True, batch=geo.points, free=free)


DEFAULT = Config(
    out_tile=4, vec_t=1, local_t=32, vec_k=1, local_k=32,
    # CPUs prefer other families to this one, so the product is one for GPUs
    gemm=Variant(gemm_staged.NAME, replace(gemm_staged.DEFAULT, tile_m=64, unroll_k=4)).to_text(),
)  # fmt: skip
TRAITS = Traits(rank=190, transforming=True)


def guesses(problem: ConvProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs for an untuned problem, best guess first; some may not be valid."""
    return by_rank(_guesses_of(problem, tiling, limits) for tiling in best_tilings(problem))


def _guesses_of(problem: ConvProblem, tiling: Tiling, limits: Limits) -> Iterator[Config]:
    geo = geometry(problem, *tiling)
    if pixels.conflict(geo, 1, limits) or broken(Needs((), workspaces(geo)), limits):
        return
    on_cpu = limits.kind == "cpu"
    for text in product_guesses(gemm_problem(geo), limits, slices_of(geo)):
        yield Config(
            geo.out_tile,
            vec_t=limits.native_float_width if on_cpu else 1,
            local_t=1 if on_cpu else 128,
            vec_k=1,
            local_k=1 if on_cpu else 32,
            gemm=text,
            taps=tiling.taps,
        )


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches: filter transform, input transform, product, inverse transform."""
    geo = config.geometry(problem)
    product = Variant.from_text(config.gemm).plan(gemm_problem(geo))
    roles = ROLES_OF_PIXELS if geo.pixels else ROLES
    filters, images, results = config.transforms(problem, geo)
    launches = (filters, images, *(renamed(one, roles) for one in product.launches), results)
    return replace(product, launches=launches, workspaces=(*workspaces(geo), *product.workspaces))


@lru_cache(maxsize=64)
def _transforms(
    problem: ConvProblem, geo: Geometry, vec_t: int, local_t: int, vec_k: int, local_k: int
) -> tuple[Launch, Launch, Launch]:
    """Return the launches around the product, which most guesses for a problem share."""
    axis = LazyText(lambda: common.input_axis(geo, vec_t))
    tiles = round_up(geo.tiles, TILE_STEP)
    return (
        winograd_filters.filter_launch(problem, _filters(geo), vec_k, local_k, 1),
        input_launch(problem.dtype, geo, "v", axis, vec_t, local_t, tiles=tiles),
        _output_launch(problem, geo, vec_t, local_t),
    )


def _output_group(geo: Geometry, config: Config) -> tuple[int, int]:
    """Return the work-group of the inverse transform."""
    if geo.pixels:
        return pixels_group(geo.filters // config.vec_t, config.local_t)
    return config.local_t, 1


def workspaces(geo: Geometry) -> common.Workspaces:
    """Return role and bytes of U, V and M; the product may have its own besides."""
    tiles = round_up(geo.tiles, TILE_STEP)
    return (
        ("u", _filters(geo).bytes),
        ("v", FLOAT * geo.points * geo.summed * tiles),
        ("m", FLOAT * geo.points * geo.filters * tiles),
    )


def _filters(geo: Geometry) -> winograd_filters.FilterLayout:
    """Return U as the product wants it: dense [points, channels, filters]."""
    return winograd_filters.FilterLayout(geo, panel=geo.filters)


def renamed(launch: Launch, roles: dict[str, str]) -> Launch:
    """Return the product's launch with the workspaces that stand for its a, b and c."""
    args = [
        type(arg)(roles.get(arg.role, arg.role)) if isinstance(arg, (Buffer, Offset)) else arg
        for arg in launch.args
    ]
    return replace(launch, args=tuple(args))


def _output_launch(problem: ConvProblem, geo: Geometry, vec_t: int, local_t: int) -> Launch:
    tiles = round_up(geo.tiles, TILE_STEP)
    if geo.pixels:
        return pixels.output_launch(problem, geo, vec_t, local_t, tiles=tiles)
    sizes = geo.of_images | {"TILES_PADDED": tiles}

    @LazyText
    def text() -> str:
        return render(
            "winograd_output",
            preamble=f"{dtype_preamble(problem.dtype)}\n{aligned_preamble(problem.dtype)}",
            defines=geo.defines(sizes),
            given=tuple(sizes),
            output_axis=common.output_axis(geo, vec_t),
            **epilogue(problem, "(target + offset_target)"),
            run=_run(geo) if vec_t == 1 else 1,
            vec_t=vec_t,
            local_t=local_t,
        )

    return Launch(
        text=text,
        kernel="winograd_output",
        global_size=(round_up(ceil_div(geo.tiles, vec_t), local_t), geo.filters),
        local_size=(local_t, 1),
        args=(*buffer("m"), *terms(problem), *buffer(geo.target), *map(Scalar, sizes.values())),
    )


def _run(geo: Geometry) -> int:
    """Return how many results of a row one store can take in every tile: up to 128 bits."""
    return next(run for run in (4, 2, 1) if geo.out_tile % run == 0 and geo.out_w % run == 0)
