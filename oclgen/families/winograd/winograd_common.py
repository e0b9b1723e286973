"""What the Winograd families share: geometry, the transforms' text and that of inputs.

It is no family itself; the families are `winograd_staged`, `winograd_blocked`, `winograd_fused`
and `winograd_weights`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, TypeGuard

from oclgen.families.winograd.winograd_matrices import (
    POINTS,
    Matrix,
    Transforms,
    cook_toom,
    statements,
)
from oclgen.limits import Limits
from oclgen.parameters import Range
from oclgen.plan import (
    WARP,
    Launch,
    LazyText,
    Needs,
    Scalar,
    buffer,
    ceil_div,
    even_part,
    round_up,
)
from oclgen.problem import ConvProblem, GemmProblem, Problem, in_planes
from oclgen.render import dtype_preamble, render, vector
from oclgen.variant import Nested, Variant

Workspaces = tuple[tuple[str, int], ...]
"""Role and bytes of each."""
OUT_TILES = (2, 3, 4, 5, 6)
GUESSED_TILES = (5, 4, 3, 2)
"""Tiles that are guessed on CPUs, where a filter has them: the largest multiply least. Tiles of
6 for 3x3 transform 64 points where those of 4 transform 36."""
KERNELS = (2, 3, 4, 5, 6, 7)
"""Rows and columns of filters for which there are tiles of at least two results a row."""
PRODUCT = Nested(("gemm_register", "gemm_staged"))
"""The families that can do the product between the transforms."""
ProductText = Annotated[str, PRODUCT]
OutTile = Annotated[int, Range(1, 16)]
"""Rows and columns of an output tile; the points known say which there are."""
IMAGES = (
    "BATCH", "CHANNELS", "FILTERS", "IN_H", "IN_W", "OUT_H", "OUT_W", "TILES_H", "TILES_W", "TILES",
)  # fmt: skip
"""Sizes that differ from layer to layer."""
MANY_POINTS = 64
"""Points of the largest tiles: their transforms need most registers and lose most digits."""
MOST_SUMMED = {6: 512, 7: 256}
"""Terms that products of such tiles sum at most, by rows of the filter; of smaller ones as many as
of 6. Then the relative error stays below 1e-5: with 512 channels it is 8e-6, with 1024 1.2e-5, and
of direct sums 2e-6."""
FLOAT = 4
"""Bytes of a workspace element: transformed data is fp32 whatever the problem stores."""


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether F(m x m, 3 x 3) computes it: forward or data, in planes, `fits` with 3x3."""
    return fits(problem, (3,)) and problem.direction != "bwd_weights" and in_planes(problem)


def fits(problem: Problem, kernels: tuple[int, ...] = KERNELS) -> TypeGuard[ConvProblem]:
    """Say whether it has a square kernel of such a size, stride 1, one group, no excess padding."""
    if not isinstance(problem, ConvProblem):
        return False
    p = problem
    ones = (p.stride_h, p.stride_w, p.dilation_h, p.dilation_w, p.groups) == (1, 1, 1, 1, 1)
    square = p.kernel_h == p.kernel_w and p.kernel_h in kernels
    return ones and square and max(p.pad_h, p.pad_w) < p.kernel_h


@dataclass(frozen=True, slots=True)
class Geometry:
    """One convolution in terms that serve every direction.

    `source` [batch, channels, in_h, in_w], correlated with a filter, gives `target`
    [batch, filters, out_h, out_w]. For the gradient of the filter it is the forward one. Both lie
    in memory with the channels of a pixel side by side if `pixels`.

    Backward-data is the same convolution of y with the filter transposed and rotated by half a
    turn, with padding kernel - 1 - p (arXiv:1509.09308, section 3). `free` says that the batch is.
    """

    source: str
    target: str
    batch: int
    channels: int
    filters: int
    in_h: int
    in_w: int
    out_h: int
    out_w: int
    pad_h: int
    pad_w: int
    rotated: bool
    out_tile: int
    kernel: int
    pixels: bool
    free: bool = False

    @property
    def in_tile(self) -> int:
        """Rows and columns of an input tile."""
        return self.out_tile + self.kernel - 1

    @property
    def has_points(self) -> bool:
        """Whether there are interpolation points for tiles of this size."""
        return self.in_tile in POINTS

    @property
    def points(self) -> int:
        """Elements of a transformed tile: the number of independent matrix products."""
        return self.in_tile**2

    @property
    def tiles_h(self) -> int:
        """Tiles along the height of one image."""
        return ceil_div(self.out_h, self.out_tile)

    @property
    def tiles_w(self) -> int:
        """Tiles along the width of one image."""
        return ceil_div(self.out_w, self.out_tile)

    @property
    def tiles(self) -> int:
        """Tiles of the whole batch."""
        return self.batch * self.tiles_h * self.tiles_w

    def defines(self, given: Collection[str] = ()) -> str:
        """Return the sizes as `#define`s, one per line; not `given` ones, nor a free batch's."""
        left_out = (*given, *(("BATCH", "TILES") if self.free else ()))
        return "\n".join(
            f"#define {name} {size}" for name, size in self.sizes.items() if name not in left_out
        )

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes by the names that templates use."""
        return {
            "BATCH": self.batch, "CHANNELS": self.channels, "FILTERS": self.filters,
            "IN_H": self.in_h, "IN_W": self.in_w, "OUT_H": self.out_h, "OUT_W": self.out_w,
            "PAD_H": self.pad_h, "PAD_W": self.pad_w,
            "OUT_TILE": self.out_tile, "IN_TILE": self.in_tile, "POINTS": self.points,
            "TILES_H": self.tiles_h, "TILES_W": self.tiles_w, "TILES": self.tiles,
        }  # fmt: skip

    @property
    def of_images(self) -> dict[str, int]:
        """Those of `sizes` that differ from layer to layer."""
        sizes = self.sizes
        return {name: sizes[name] for name in IMAGES}

    @property
    def gradient(self) -> Geometry:
        """What is read of the forward target's gradient: tiles that do not overlap, no padding."""
        return replace(
            self, source=self.target, channels=self.filters,
            in_h=self.out_h, in_w=self.out_w, pad_h=0, pad_w=0,
        )  # fmt: skip


@lru_cache(maxsize=256)
def geometry(problem: ConvProblem, out_tile: int) -> Geometry:
    """Return the problem in terms of source, filter and target, whatever its direction."""
    forward = problem.direction != "bwd_data"
    c, k = problem.in_channels, problem.out_channels
    x, y = (problem.height, problem.width), (problem.out_h, problem.out_w)
    pads = (problem.pad_h, problem.pad_w)
    pad_h, pad_w = pads if forward else (problem.kernel_h - 1 - pad for pad in pads)
    return Geometry(
        "x" if forward else "y",
        "y" if forward else "x",
        problem.batch,
        *((c, k) if forward else (k, c)),
        *((*x, *y) if forward else (*y, *x)),
        pad_h,
        pad_w,
        rotated=not forward,
        out_tile=out_tile,
        kernel=problem.kernel_h,
        pixels=problem.layout == "nhwc",
        free=bool(problem.free),
    )


def known_tiles(problem: ConvProblem, tiles: Iterable[int] = OUT_TILES) -> tuple[int, ...]:
    """Return those of the output tiles that the problem's filter has, in their order."""
    return tuple(tile for tile in tiles if geometry(problem, tile).has_points)


def multiplied(problem: ConvProblem, out_tile: int) -> float:
    """Return the multiply-adds of the products of transformed tiles over the problem's."""
    geo = geometry(problem, out_tile)
    tiles = geo.points * geo.tiles
    return tiles / (problem.batch * problem.out_h * problem.out_w * geo.kernel**2)


def axis_function(name: str, matrix: Matrix, kind: str) -> str:
    """Return a function that multiplies one row or column of a private tile by `matrix` in place.

    Called for every column and then for every row of an in_tile x in_tile array, it transforms
    the whole tile; elements are `step` apart.

    Args:
        name: of the function.
        matrix: of a transform, as exact fractions.
        kind: type of an element: float or a vector of floats.
    """
    inputs = [f"x{i}" for i in range(len(matrix[0]))]
    outputs = [f"v[{i} * step]" for i in range(len(matrix))]
    body = [f"const {kind} {x} = v[{i} * step];" for i, x in enumerate(inputs)]
    body += statements(matrix, inputs, outputs, kind)
    lines = "\n".join(f"    {line}" for line in body)
    return f"static inline void {name}({kind} *v, const int step)\n{{\n{lines}\n}}"


def input_launch(
    dtype: str,
    geo: Geometry,
    role: str,
    axis: LazyText,
    vec: int,
    local: int,
    *,
    tiles: int,
    read: str = "IN_TILE",
    slice_t: int = 0,
) -> Launch:
    """Return the launch that transforms tiles of the source, the real ones and zeros.

    V is [points, channels, tiles], or in slices [slices, points, channels, slice_t]; of pixels,
    channels come last.

    Args:
        dtype: storage of the source.
        geo: sizes of images and tiles.
        role: of the buffer of V.
        axis: text of `input_axis`.
        vec: tiles of a channel, or of pixels channels of a tile, that a work-item transforms.
        local: work-items of a group, or about as many.
        tiles: tiles to write, those that fill V up included.
        read: rows and columns of a tile that are read from the source.
        slice_t: tiles of a slice; 0: V is not cut.
    """
    shape: dict[str, Any]
    (padded, sizes), group = padded_tiles(geo, tiles), input_group(geo, vec, local)
    if geo.pixels:
        template = "winograd_input_pixels"
        shape = {"vec": vec, "local_c": group[0], "local_t": group[1], "slice": slice_t}
        items = (geo.channels // vec, tiles)
    else:
        template = "winograd_input"
        sizes = geo.of_images | {"TILES_PADDED": tiles} | ({"SLICE": slice_t} if slice_t else {})
        padded = ""
        shape = {"vec_t": vec, "local_t": local, "sliced": bool(slice_t)}
        items = (tiles // vec, geo.channels)

    @LazyText
    def text() -> str:
        return render(
            template,
            preamble=dtype_preamble(dtype),
            defines=geo.defines(sizes) + padded,
            input_axis=str(axis),
            read=read,
            given=tuple(sizes),
            **shape,
        )

    return Launch(
        text=text,
        kernel="winograd_input",
        global_size=(round_up(items[0], group[0]), round_up(items[1], group[1])),
        local_size=group,
        args=(*buffer(geo.source), *buffer(role), *map(Scalar, sizes.values())),
    )


def padded_tiles(geo: Geometry, tiles: int) -> tuple[str, dict[str, int]]:
    """Return how kernels of pixels learn the tiles of V or M: lines of text, or arguments by name.

    Args:
        geo: sizes of images and tiles; of a free batch all tiles are arguments.
        tiles: of V or M, those that fill it up included.
    """
    if geo.free:
        return "", {"TILES": geo.tiles, "TILES_PADDED": tiles}
    return f"\n#define TILES_PADDED {tiles}", {}


def pixels_group(count: int, local: int) -> tuple[int, int]:
    """Return the work-items of a group of about `local`, along `count` vectors of channels and
    along tiles: of the channels at most a warp, in equal parts, so that few work-items are idle.
    """  # noqa: D205
    lanes = even_part(count, min(WARP, local))
    return lanes, local // lanes


def input_axis(geo: Geometry, width: int) -> str:
    """Return `input_axis`, B^T along one axis, on vectors of `width` floats."""
    return axis_function("input_axis", matrices(geo).input, vector(width))


def output_axis(geo: Geometry, width: int) -> str:
    """Return `output_axis`, A^T along one axis, on vectors of `width` floats."""
    return axis_function("output_axis", matrices(geo).output, vector(width))


def matrices(geo: Geometry) -> Transforms:
    """Return the matrices of its tiles."""
    return cook_toom(geo.out_tile, geo.kernel)


def no_points(geo: Geometry) -> str | None:
    """Say with numbers that there are no matrices for such tiles, or None."""
    if geo.has_points:
        return None
    known = ", ".join(str(size - geo.kernel + 1) for size in POINTS if size > geo.kernel)
    return f"out_tile={geo.out_tile} has no matrices for kernels of {geo.kernel}; use {known}"


def most_summed(geo: Geometry) -> int | None:
    """Return the terms that a product of transformed tiles may sum, None where all tiles may be."""
    if geo.points < MANY_POINTS:
        return None
    return MOST_SUMMED[max(geo.kernel, min(MOST_SUMMED))]


def tiles_why_not(geo: Geometry) -> str | None:
    """Say with numbers why the sums over channels cannot be of such tiles, or None."""
    most = most_summed(geo)
    if geo.has_points and most is not None and geo.channels > most:
        return (
            f"out_tile={geo.out_tile} sums {geo.channels} channels of transformed tiles, whose "
            f"errors allow {most}; use a smaller out_tile, or a family that sums products directly"
        )
    return no_points(geo)


@lru_cache(maxsize=4096)
def product_why_not(text: str, product: GemmProblem, limits: Limits) -> str | None:
    """Say why the variant of this text cannot do the product of all points, or None.

    Args:
        text: family and config, as `Variant.to_text` writes them.
        product: the batched product of all points.
        limits: of the device.
    """
    if reason := PRODUCT.why_not(text):
        return f"gemm={text!r}; it must be {reason}"
    variant = Variant.from_text(text)
    # what its plan needs is asked with the plan around it
    if variant.serves(product):
        reason = variant.config.why_not(product, limits)
    else:
        reason = f"it does not compute {product.key()}"
    return f"the product by {variant.family}: {reason}" if reason else None


@lru_cache(maxsize=4096)
def product_needs(text: str, product: GemmProblem) -> Needs:
    """Return what the variant of this text asks of a device for the product of all points."""
    needs: Needs = Variant.from_text(text).config.needs(product)
    return needs


def input_group(geo: Geometry, vec: int, local: int) -> tuple[int, int]:
    """Return the work-group of the transform of inputs: see `input_launch`.

    Args:
        geo: sizes of images and tiles.
        vec: tiles of a channel, or of pixels channels of a tile, of a work-item.
        local: work-items of a group.
    """
    return pixels_group(geo.channels // vec, local) if geo.pixels else (local, 1)
