"""The operands of `conv_mma`: images as pixels of whole chunks, weights as tiles, sizes as text.

It knows no matrix instruction and no parameter but the tile; the family's rule stands with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import prod

from oclgen.families.conv.conv_gemm_operands import Sizes, Texts, phases
from oclgen.families.conv.correlation import Correlation
from oclgen.families.gemm.gemm_mma_tiles import Layout, pack_rows
from oclgen.families.parts import packing
from oclgen.families.parts import planes as planes_of
from oclgen.families.parts.expressions import defines
from oclgen.families.parts.strided_weights import slice_channels, strided_weights
from oclgen.plan import Arg, Launch, LazyText, Scalar, buffer, ceil_div, round_up
from oclgen.problem import DTYPES, ConvProblem, GemmProblem
from oclgen.render import render

GATHER_ITEMS = 256
"""Pixels that a work-group gathers a chunk of each."""
FEW_CHUNKS = 2
"""Chunks of channels up to which turning through local memory would leave most of it idle."""
SIDE_BY_SIDE = 64
"""Channels up to which groups share a tile, the least that one has: with fewer it is as slow."""
SUM_ITEMS, SUM_DEPTHS, MANY_TAPS = 256, 32, 100
"""Work-items, at most, of a work-group that sums weights. It sums all taps of a multiple of 32
depths of a channel, as many as give each of them a weight, or of all depths if they are fewer; of
16 where taps would fill local memory. Work-items are as many as share its weights evenly in rounds.
"""
IN_FLIGHT = 16
"""Loads that such a work-item begins before it adds: 8 are slower with hundreds of planes."""


def chunk(problem: ConvProblem) -> int:
    """Return the elements of 16 bytes."""
    return packing.CHUNK_BYTES // DTYPES[problem.dtype]


@lru_cache(maxsize=256)
def together(problem: ConvProblem) -> int:
    """Return how many groups are one product, whose weights are zero between groups.

    Channels of a product fill chunks, since each begins one. As many groups as fill a tile cost
    what one of them does; all of them need no whole chunks.
    """
    wide, groups = chunk(problem), problem.groups
    channels = problem.in_channels // groups, problem.out_channels // groups
    whole = [
        count
        for count in range(1, groups + 1)
        if groups % count == 0 and not any(count * each % wide for each in channels)
    ]
    fitting = [count for count in whole if count * max(channels) <= SIDE_BY_SIDE]
    return (fitting[-1:] or whole[:1] or [groups])[0]


def products(problem: ConvProblem) -> int:
    """Return how many products there are."""
    return problem.groups // together(problem)


@lru_cache(maxsize=256)
def merged(problem: ConvProblem) -> ConvProblem:
    """Return the convolution without groups that one of the products computes."""
    count = products(problem)
    return replace(
        problem,
        in_channels=problem.in_channels // count,
        out_channels=problem.out_channels // count,
        groups=1,
    )


@dataclass(frozen=True, slots=True)
class Image:
    """x or y as the product reads it: [batch, pixels, channels], channels in whole chunks.

    In "nhwc" with channels that fill chunks that is how it lies; else it is copied first.
    """

    problem: ConvProblem
    role: str

    @property
    def channels(self) -> int:
        """Channels as the problem counts them."""
        return self.problem.in_channels if self.role == "x" else self.problem.out_channels

    @property
    def pixels(self) -> int:
        """Pixels of one image."""
        p = self.problem
        return p.height * p.width if self.role == "x" else p.out_h * p.out_w

    @property
    def padded(self) -> int:
        """Channels rounded up to whole chunks."""
        return round_up(self.channels, chunk(self.problem))

    @property
    def in_place(self) -> bool:
        """Whether it is read as it lies."""
        return self.problem.layout == "nhwc" and self.channels == self.padded

    @property
    def elements(self) -> int:
        """Elements of all pixels with their padding, of slices once."""
        if self.problem.volume and self.role == self.problem.read:
            return prod(self.problem.buffers[self.role])
        return self.problem.batch * self.pixels * self.padded

    @property
    def workspaces(self) -> tuple[tuple[str, int], ...]:
        """The workspace that a copy of it wants, if there is one."""
        size = self.elements * DTYPES[self.problem.dtype]
        return () if self.in_place else ((f"pixels_{self.role}", size),)

    def argument(self) -> tuple[Arg, Arg]:
        """Return the argument of a kernel that reads it."""
        return buffer(self.role if self.in_place else f"pixels_{self.role}")

    def launches(self) -> tuple[Launch, ...]:
        """Return the launch that copies it, if there is one."""
        if self.in_place:
            return ()
        few = self.padded <= FEW_CHUNKS * chunk(self.problem)
        return (self._gather() if few else pack_rows(self._rows),)

    @property
    def _rows(self) -> packing.Packing:
        """The copy as a packing: pixels are rows of one tile, channels are steps of k."""
        problem, role = self.problem, self.role
        planes = problem.layout == "nchw"
        row = Scalar(self.pixels if planes else self.channels)
        image = Scalar(self.pixels * self.channels, "long")
        return packing.Packing(
            workspace=f"pixels_{role}",
            source=(*buffer(role), row, image),
            dtype=problem.dtype,
            along_k=not planes,
            batch=problem.batch,
            extent=self.pixels,
            k=self.channels,
            tile=self.pixels,
            tile_k=self.padded,
            elem_bytes=DTYPES[problem.dtype],
            batch_stride=self.pixels * self.padded,
        )

    def _gather(self) -> Launch:
        wide = chunk(self.problem)

        @LazyText
        def text() -> str:
            return render(
                "conv_mma_gather",
                word="uint" if wide == 4 else "ushort",
                chunk=wide,
                channels=self.channels,
                padded=self.padded,
                pixels=self.pixels,
                planes=self.problem.layout == "nchw",
                tf32=self.problem.dtype == "tf32",
            )

        return Launch(
            text=text,
            kernel="conv_mma_gather",
            global_size=(
                round_up(self.pixels, GATHER_ITEMS), self.padded // wide, self.problem.batch
            ),
            local_size=(GATHER_ITEMS, 1, 1),
            args=(*buffer(self.role), *self.argument()),
        )  # fmt: skip


@lru_cache(maxsize=64)
def images(problem: ConvProblem) -> tuple[Image, ...]:
    """Return the images that the product reads."""
    roles = {"fwd": "x", "bwd_data": "y", "bwd_weights": "yx"}[problem.direction]
    return tuple(Image(problem, role) for role in roles)


@lru_cache(maxsize=64)
def copies(problem: ConvProblem) -> tuple[Launch, ...]:
    """Return the launches that copy those of these images that are not read in place."""
    return tuple(launch for image in images(problem) for launch in image.launches())


def product(problem: ConvProblem) -> GemmProblem:
    """Return the implicit product, as large as the phases' are together; one of `products`.

    Results of "nhwc" are pixels by channels, those of "nchw" channels by pixels, so that neighbours
    of a row are neighbours in memory; k is taps by channels, and in the gradient of the weights,
    channels by taps and channels, pixels.
    """
    problem = merged(problem)
    if problem.direction == "bwd_weights":
        y, x = images(problem)
        taps = problem.kernel_h * problem.kernel_w
        pixels = problem.batch * y.pixels
        return GemmProblem(y.padded, taps * x.padded, pixels, problem.dtype, trans_a=True)
    part = phases(problem)[0]
    pixels = max(each.batch * each.results for each in phases(problem))
    k = reduction(problem, part)
    m, n = (part.channels, pixels) if problem.layout == "nchw" else (pixels, part.channels)
    return GemmProblem(m, n, k, problem.dtype, trans_b=True)


def reduction(problem: ConvProblem, part: Correlation) -> int:
    """Return the length of k: channels in whole chunks, of every tap."""
    return max(part.rows.taps * part.cols.taps, 1) * round_up(part.depth, chunk(problem))


def _tile_elements(problem: ConvProblem, part: Correlation, layout: Layout) -> int:
    """Return the elements of a phase's packed weights."""
    k = reduction(problem, part) if part.reduction else 0
    return packing.packed_elements(part.channels, k, layout.tile, layout.tile_k)


def _steps(problem: ConvProblem, part: Correlation, layout: Layout) -> int:
    """Return the tiles along k; a phase without taps has none."""
    return ceil_div(reduction(problem, part), layout.tile_k) if part.reduction else 0


@lru_cache(maxsize=64)
def packed_bytes(problem: ConvProblem, layout: Layout) -> int:
    """Return the bytes of the workspace of packed weights."""
    return max(products(problem) * _packed_elements(problem, layout), 1) * layout.elem_bytes


def _packed_elements(problem: ConvProblem, layout: Layout) -> int:
    """Return the elements of the packed weights of one product."""
    one = merged(problem)
    return sum(_tile_elements(one, part, layout) for part in phases(one))


@lru_cache(maxsize=64)
def pack(problem: ConvProblem, layout: Layout) -> Launch | None:
    """Return the launch that packs the weights of every phase, None if no tap meets anything."""
    parts = phases(merged(problem))
    if not parts[0].reduction:
        return None
    wide, each = chunk(problem), phases(problem)[0]
    sizes = [
        one | {
            "PRODUCTS": products(problem), "ROWS": round_up(one["CHANNELS"], layout.tile),
            "TAP_DEPTH": one["DEPTH_PADDED"], "K_PADDED": one["STEPS"] * layout.tile_k,
            "PACKED_STEP": _packed_elements(problem, layout),
        }
        for one in _phase_sizes(problem, layout)
    ]  # fmt: skip
    forward = problem.direction == "fwd"
    tile = f"row / {layout.tile} * (K_PADDED / {layout.tile_k}) + k / {layout.tile_k}"
    within = layout.chunk_at(f"(row % {layout.tile})", f"k % {layout.tile_k}")
    return packing.Taps(
        dtype=problem.dtype,
        source=strided_weights(problem),
        packed=buffer(packing.PACKED),
        phases=sizes,
        place=f"({tile}) * (long){layout.tile * layout.tile_k} + ({within}) * {wide}",
        group_step=f"{each.channels} * w_channel" if forward else f"{each.depth} * w_depth",
        chunk=wide,
        taps_first=True,
        together=together(problem),
        channels=each.channels,
        depth=each.depth,
        slice=slice_channels(problem),
    ).launch(of_weights=True)


def sizes_text(problem: ConvProblem, layout: Layout) -> str:
    """Return the sizes of all phases as macros; those that differ are tables by `phase`."""
    more: Texts = {"PIXELS": "(BATCH * RESULTS)"} if problem.free else {}
    if products(problem) > 1:
        more |= {
            "READ_PITCH": images(problem)[0].padded,
            "PACKED_STEP": _packed_elements(problem, layout),
        }
    return defines(
        [sizes | more | volume_sizes(problem) for sizes in _phase_sizes(problem, layout)]
    )


def _phase_sizes(problem: ConvProblem, layout: Layout) -> list[Sizes]:
    """Return the sizes of every phase by name."""
    one = merged(problem)
    parts = phases(one)
    firsts = accumulate((_tile_elements(one, part, layout) for part in parts), initial=0)
    return [
        _sizes(problem, part) | {"STEPS": _steps(one, part, layout), "PACKED_FIRST": first}
        for part, first in zip(parts, firsts, strict=False)
    ]


def volume_sizes(problem: ConvProblem) -> Texts:
    """Return the sizes of a volume, {} if there is none."""
    volume = problem.volume
    if volume is None:
        return {}
    return {
        "SLICES": volume.size, "WINDOWS": volume.windows, "TAPS_D": volume.taps,
        "STRIDE_D": volume.stride, "PAD_D": volume.pad, "DILATION_D": volume.dilation,
        "SLICE_CHANNELS": problem.buffers[problem.read][-1],
    }  # fmt: skip


def _sizes(problem: ConvProblem, part: Correlation) -> Sizes:
    nhwc = problem.layout == "nhwc"
    written, channels = part.rows.written * part.cols.written, part.channels * products(problem)
    return part.axis_sizes() | {
        "PIXELS": part.batch * part.results, "RESULTS": part.results,
        "CHANNELS": part.channels, "DEPTH": part.depth,
        "DEPTH_PADDED": round_up(part.depth, chunk(problem)),
        # where a result is stored: strides between images, pixels and channels
        "IMAGE_STEP": channels * written, "PIXEL_STEP": channels if nhwc else 1,
        "CHANNEL_STEP": 1 if nhwc else written,
    }  # fmt: skip


def weights_plane_bytes(p: ConvProblem) -> int:
    """Return the bytes of a plane of sums of the gradient of the weights."""
    return 4 * p.out_channels * p.kernel_h * p.kernel_w * Image(merged(p), "x").padded


def stores_weights(p: ConvProblem, planes: int) -> bool:
    """Say whether a gradient of weights needs no plane: the product stores it where it belongs.

    So it does where the columns of a row of the product are neighbours in w, groups apart.
    """
    dense = p.turns_weights or p.kernel_h * p.kernel_w == 1
    return planes == 1 and dense and p.volume is None and together(p) == 1


@lru_cache(maxsize=64)
def sum_weights(p: ConvProblem, planes: int) -> Launch:
    """Return the launch that adds the planes into the gradient of the weights."""
    taps, depth = p.kernel_h * p.kernel_w, p.in_channels // p.groups
    padded = Image(merged(p), "x").padded
    most = max(SUM_ITEMS // taps // SUM_DEPTHS, 1) * SUM_DEPTHS
    span = min(most if taps <= MANY_TAPS else SUM_DEPTHS // 2, depth)
    whole = planes_of.sum_weights(p, planes, padded, span, together(p))
    rounds = ceil_div(taps * span, SUM_ITEMS)
    items = round_up(ceil_div(taps * span, rounds), SUM_DEPTHS)
    return replace(whole, local_size=items, in_flight=IN_FLIGHT).launch()


def weights_sizes(p: ConvProblem) -> str:
    """Return the sizes of the gradient of the weights as macros."""
    one, (all_y, all_x) = merged(p), images(p)
    y, x = images(one)
    pitches = {"Y_PITCH": all_y.padded, "X_PITCH": all_x.padded} if products(p) > 1 else {}
    return defines([pitches | volume_sizes(p) | {
        "PIXELS": "(BATCH * (OUT_H * OUT_W))" if p.free else p.batch * y.pixels,
        "CHANNELS": one.out_channels, "CHANNELS_PADDED": y.padded,
        "DEPTH": one.in_channels, "DEPTH_PADDED": x.padded, "HEIGHT": p.height, "WIDTH": p.width,
        "OUT_H": p.out_h, "OUT_W": p.out_w, "KERNEL_W": p.kernel_w,
        "TAPS": p.kernel_h * p.kernel_w, "STRIDE_H": p.stride_h, "STRIDE_W": p.stride_w,
        "PAD_H": p.pad_h, "PAD_W": p.pad_w, "DILATION_H": p.dilation_h, "DILATION_W": p.dilation_w,
    }])  # fmt: skip
