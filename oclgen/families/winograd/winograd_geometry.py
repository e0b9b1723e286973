"""The sizes of a convolution that the Winograd families cut into tiles, and its filter into blocks.

A filter that is cut is a sum of convolutions by blocks of `taps` x `taps`: block (i, j) reads the
image `taps` i rows and `taps` j columns further on. So each pair of a block and a channel is one
channel of the products between the transforms, and images are transformed once for each block. A
block that hangs over the filter's end is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, NamedTuple, TypeGuard

from oclgen.families.winograd.winograd_matrices import POINTS
from oclgen.parameters import Range
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem, Problem, in_planes

OutTile = Annotated[int, Range(1, 16)]
"""Rows and columns of an output tile; the points known say which there are."""
Taps = Annotated[int, Range(0, 16)]
"""Rows and columns of a block of the filter; 0: the whole filter is one."""
OUT_TILES = (2, 3, 4, 5, 6)
IMAGES = (
    "BATCH", "CHANNELS", "FILTERS", "IN_H", "IN_W", "OUT_H", "OUT_W", "TILES_H", "TILES_W", "TILES",
    "SOURCE_CHANNELS",
)  # fmt: skip
"""Sizes that differ from layer to layer."""
MANY_POINTS = 64
"""Points of the largest tiles: their transforms need most registers and lose most digits."""
MOST_SUMMED = {6: 512, 7: 256}
"""Terms that products of such tiles sum at most, by rows of a block; of smaller ones as many as
of 6. Then the relative error stays below 1e-5: with 512 channels it is 8e-6, with 1024 1.2e-5, and
of direct sums 2e-6."""
FEW_POINTS_SUMMED = 4096
"""Terms that sums of tiles of fewer points have at most: with 2304 the error is 5.5e-6, with 6912
9.5e-6."""


class Tiling(NamedTuple):
    """How results are cut into tiles of `out_tile` and the filter into blocks of `taps`."""

    out_tile: int
    taps: int = 0


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether F(m x m, 3 x 3) computes it: forward or data, in planes, `fits` with 3x3."""
    return (
        fits(problem)
        and (problem.kernel_h, problem.kernel_w) == (3, 3)
        and problem.direction != "bwd_weights"
        and in_planes(problem)
    )


def fits(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether it has filters of 2x2 or more, stride 1, one group, no excess padding."""
    if not isinstance(problem, ConvProblem):
        return False
    p = problem
    ones = (p.stride_h, p.stride_w, p.dilation_h, p.dilation_w, p.groups) == (1, 1, 1, 1, 1)
    return (
        ones and min(p.kernel_h, p.kernel_w) > 1 and p.pad_h < p.kernel_h and p.pad_w < p.kernel_w
    )


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
    taps: int
    kernel_h: int
    kernel_w: int
    pixels: bool
    free: bool = False

    @property
    def in_tile(self) -> int:
        """Rows and columns of an input tile."""
        return self.out_tile + self.taps - 1

    @property
    def blocks_w(self) -> int:
        """Blocks of the filter, along the width."""
        return ceil_div(self.kernel_w, self.taps)

    @property
    def blocks(self) -> int:
        """Blocks of the filter."""
        return ceil_div(self.kernel_h, self.taps) * self.blocks_w

    @property
    def summed(self) -> int:
        """Channels of the products: those of the source for each block, the first block's first."""
        return self.blocks * self.channels

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
        """The sizes by the names that templates use; `CHANNELS` are those of the products."""
        found = {
            "BATCH": self.batch, "CHANNELS": self.summed, "FILTERS": self.filters,
            "IN_H": self.in_h, "IN_W": self.in_w, "OUT_H": self.out_h, "OUT_W": self.out_w,
            "PAD_H": self.pad_h, "PAD_W": self.pad_w,
            "OUT_TILE": self.out_tile, "IN_TILE": self.in_tile, "POINTS": self.points,
            "TILES_H": self.tiles_h, "TILES_W": self.tiles_w, "TILES": self.tiles,
        }  # fmt: skip
        if self.blocks == 1:
            return found
        return found | {
            "SOURCE_CHANNELS": self.channels, "BLOCKS_W": self.blocks_w, "TAPS": self.taps,
            "KERNEL_H": self.kernel_h, "KERNEL_W": self.kernel_w,
        }  # fmt: skip

    @property
    def of_images(self) -> dict[str, int]:
        """Those of `sizes` that differ from layer to layer."""
        sizes = self.sizes
        return {name: sizes[name] for name in IMAGES if name in sizes}

    @property
    def gradient(self) -> Geometry:
        """What is read of the forward target's gradient: tiles that do not overlap, no padding."""
        return replace(
            self, source=self.target, channels=self.filters,
            in_h=self.out_h, in_w=self.out_w, pad_h=0, pad_w=0,
            kernel_h=self.taps, kernel_w=self.taps,
        )  # fmt: skip


@lru_cache(maxsize=256)
def geometry(problem: ConvProblem, out_tile: int, taps: int = 0) -> Geometry:
    """Return the problem in terms of source, filter and target, whatever its direction.

    Args:
        problem: which `fits`.
        out_tile: rows and columns of a tile of the target.
        taps: those of a block of the filter; 0: the longer side of the filter is one block.
    """
    forward = problem.direction != "bwd_data"
    c, k = problem.in_channels, problem.out_channels
    x, y = (problem.height, problem.width), (problem.out_h, problem.out_w)
    pads = (problem.pad_h, problem.pad_w)
    ends = (problem.kernel_h - 1 - problem.pad_h, problem.kernel_w - 1 - problem.pad_w)
    pad_h, pad_w = pads if forward else ends
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
        taps=taps or max(problem.kernel_h, problem.kernel_w),
        kernel_h=problem.kernel_h,
        kernel_w=problem.kernel_w,
        pixels=problem.layout == "nhwc",
        free=bool(problem.free),
    )


@lru_cache(maxsize=64)
def tilings(problem: ConvProblem) -> tuple[Tiling, ...]:
    """Return the tilings that there are points for: of the whole filter, and of its blocks.

    Blocks that multiply no less than a tile of the whole filter, or than its taps, are left out.
    """
    sides = problem.kernel_h, problem.kernel_w
    tiles = OUT_TILES if sides[0] == sides[1] else ()
    whole = [Tiling(tile) for tile in tiles if geometry(problem, tile).has_points]
    least = min([1.0, *(multiplied(problem, *one) for one in whole)])
    cut = (
        Tiling(size - taps + 1, taps)
        for size in POINTS
        for taps in range(2, min(size - 1, max(sides)))
    )
    return (*whole, *(one for one in cut if multiplied(problem, *one) < least))


def multiplied(problem: ConvProblem, out_tile: int, taps: int = 0) -> float:
    """Return the multiply-adds of the products of transformed tiles over the problem's.

    Args:
        problem: which `fits`.
        out_tile: rows and columns of a tile of results.
        taps: those of a block of the filter; 0: it is whole.
    """
    geo = geometry(problem, out_tile, taps)
    tiles = geo.points * geo.tiles * geo.blocks
    return tiles / (problem.batch * problem.out_h * problem.out_w * geo.kernel_h * geo.kernel_w)


def no_points(geo: Geometry) -> str | None:
    """Say with numbers that there are no matrices for such tiles, or None."""
    if geo.has_points:
        return None
    known = ", ".join(str(size - geo.taps + 1) for size in POINTS if size > geo.taps)
    if not known:
        return f"there are no matrices for blocks of {geo.taps} taps; use fewer taps"
    return f"out_tile={geo.out_tile} has no matrices for kernels of {geo.taps}; use {known}"


def most_summed(geo: Geometry) -> int | None:
    """Return the terms that a product of transformed tiles may sum, None where all tiles may be."""
    if geo.points < MANY_POINTS:
        return None
    return MOST_SUMMED[max(geo.taps, min(MOST_SUMMED))]


def tiling_why_not(problem: ConvProblem, out_tile: int, taps: int) -> str | None:
    """Say with numbers why the filter cannot be cut so, or None.

    Args:
        problem: which `fits`.
        out_tile: rows and columns of a tile of results.
        taps: those of a block of the filter; 0: it is whole.
    """
    longest = max(problem.kernel_h, problem.kernel_w)
    if taps >= longest or taps == 1:
        return f"taps={taps} cuts no filter of {longest} rows or columns; use 0, or 2 to {longest}"
    if not taps and problem.kernel_h != problem.kernel_w:
        return f"a filter of {problem.kernel_h}x{problem.kernel_w} is no square; cut it by taps"
    return no_points(geometry(problem, out_tile, taps))


def slices_of(geo: Geometry) -> int:
    """Return the fewest slices of the sums over channels that keep their digits."""
    return ceil_div(geo.summed, most_summed(geo) or FEW_POINTS_SUMMED)


def tiles_why_not(geo: Geometry, slices: int = 1) -> str | None:
    """Say with numbers why the sums over channels cannot be of such tiles, or None.

    Args:
        geo: sizes, with points.
        slices: of the sums, which are added afterwards.
    """
    most, summed = most_summed(geo) or FEW_POINTS_SUMMED, ceil_div(geo.summed, slices)
    if summed <= most:
        return None
    return (
        f"out_tile={geo.out_tile} sums {summed} channels of transformed tiles, whose errors allow "
        f"{most}; use a smaller out_tile, or a family that sums products directly"
    )
