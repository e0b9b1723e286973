"""Convolution on a GPU's matrix units, all directions, by implicit GEMM: fp16, bf16 and tf32.

It is not for fp32 that has to be fp32, nor for groups of one channel. Groups are products of their
own, narrow ones several at a time. The units, their tiles and the rule of what fits are those of
`gemm_mma`, asked about the implicit product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeGuard

from oclgen.families.conv import conv_mma_operands as parts
from oclgen.families.conv.conv_gemm_operands import phases
from oclgen.families.conv.correlation import output_elements
from oclgen.families.gemm import gemm_mma
from oclgen.families.gemm.gemm_mma_tiles import Layout
from oclgen.families.gemm.gemm_parts import aligned_preamble, slice_length
from oclgen.families.parts.blocking import ITEMS_PER_UNIT, best_split, none_empty
from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.families.parts.mma_shapes import Shape, ranked
from oclgen.families.parts.packing import PACKED
from oclgen.families.parts.planes import PLANES, planes_bytes, sum_of_planes
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl import ptx
from oclgen.parameters import Parts, Range, Stages, Tile, Warps
from oclgen.plan import (
    AnyLaunch,
    Arg,
    Launch,
    LazyText,
    Outline,
    Plan,
    Scalar,
    Spread,
    buffer,
    ceil_div,
)
from oclgen.problem import DTYPES, ConvProblem, GemmProblem, Problem, Volume
from oclgen.render import dtype_preamble, render

NAME = "conv_mma"

MAX_KERNEL = 15
"""Rows and columns of taps, each of which has a bit in half a word, and one that has none."""
MAX_VOLUME_KERNEL = 10
"""Taps of each of three dimensions, whose bits share a word."""
MOST_TILES = 32
"""Tiles of 64 x 64 per compute unit up to which the reduction is worth splitting."""
MIN_SLICE = 256
"""Steps of the reduction below which no plane of its own pays."""
NARROW, LONG_K = 32, 2048
"""Columns of narrow tiles, and steps from which they wait for reads alone."""
SHORT = (
    Shape("wgmma", 64, 32, 64, 4, 1, 6, 1), Shape("wgmma", 64, 32, 128, 4, 1, 4, 1),
    Shape("wgmma", 128, 32, 128, 4, 1, 5, 1), Shape("mma", 128, 32, 128, 4, 1, 4, 0),
)  # fmt: skip
LONG = (
    Shape("wgmma", 64, 32, 128, 4, 1, 8, 1), Shape("wgmma", 64, 32, 128, 4, 1, 6, 1),
    Shape("wgmma", 128, 32, 128, 4, 1, 5, 1), Shape("mma", 64, 32, 128, 4, 1, 6, 0),
)  # fmt: skip
"""Shapes for few channels in channels_last. 24 to 144 channels, 3x3 at 56x56: 0.056 ms in place of
0.060 with tiles of 64 columns; 16 to 32, 1x1: 0.039 and 0.066 (H200, bf16). They overlap reads by
small steps, or by many stages. In planes, where channels are rows, narrow tiles gain nothing."""
SHAPES = (
    Shape("wgmma", 128, 128, 64, 4, 1, 2, 0), Shape("wgmma", 128, 128, 32, 4, 1, 5, 1),
    Shape("wgmma", 128, 64, 64, 4, 1, 3, 0), Shape("wgmma", 64, 128, 64, 4, 1, 3, 0),
    Shape("wgmma", 64, 256, 32, 4, 1, 4, 1), Shape("wgmma", 128, 64, 32, 4, 1, 6, 1),
    Shape("wgmma", 64, 64, 64, 4, 1, 5, 1), Shape("wgmma", 128, 192, 32, 4, 1, 4, 1),
    Shape("mma", 128, 128, 64, 2, 2, 2, 0), Shape("mma", 128, 64, 64, 2, 2, 3, 0),
    Shape("mma", 64, 128, 64, 2, 2, 3, 0), Shape("mma", 64, 64, 64, 2, 2, 4, 0),
    Shape("mma", 64, 64, 32, 2, 2, 4, 0), Shape("wgmma", 64, 64, 128, 4, 1, 2, 0),
    Shape("mma", 64, 64, 128, 2, 2, 2, 0),
)  # fmt: skip
"""Shapes of guesses for 48 KiB of local memory, which hold two or three steps of 64 bytes, or twice
as many of 32."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legends stand at the heads of its templates."""

    FREE = frozenset({"batch"})
    VOLUMES = True

    unit: str
    tile_m: Tile
    tile_n: Tile
    tile_k: Tile
    warps_m: Warps
    warps_n: Warps
    stages: Stages
    pending: Annotated[int, Range(0, 16)]
    split_k: Parts
    group_m: Parts

    def gemm(self, problem: ConvProblem) -> gemm_mma.Config:
        """Return the same tiles as parameters of the implicit product; weights are packed."""
        forward = problem.direction != "bwd_weights"
        pack_a = forward and problem.layout == "nchw"
        return gemm_mma.Config(
            self.unit, self.tile_m, self.tile_n, self.tile_k, self.warps_m, self.warps_n,
            stages=self.stages, pending=self.pending, split_k=self.split_k, group_m=self.group_m,
            pack_a=pack_a, pack_b=forward > pack_a,
        )  # fmt: skip

    def tiled(self, problem: ConvProblem) -> GemmProblem:
        """Return the implicit product, its rows pixels in channels_last."""
        return _products(problem)

    def with_best_split(self, problem: ConvProblem, limits: Limits) -> Config:
        """Return this config with the slices of the reduction that `problem` wants.

        Two work-groups fill a unit.
        """
        split = _best_split(problem, limits, self.tile_m, self.tile_n, self.tile_k)
        return replace(self, split_k=split)

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        return self.gemm(problem).conflict(_product(problem), limits)

    def outline(self, problem: ConvProblem) -> Outline:
        """Return the plan without the product's text and arguments."""
        launches = _around(problem, self, _spread(problem, self))
        return Outline(launches, _workspaces(problem, self))


DEFAULT = Config(
    unit="mma", tile_m=64, tile_n=64, tile_k=32, warps_m=2, warps_n=2, stages=2, pending=0,
    split_k=1, group_m=8,
)  # fmt: skip
TRAITS = Traits(rank=110, instructions=frozenset({"mma", "wgmma"}))


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        isinstance(problem, ConvProblem)
        and problem.dtype in gemm_mma.DTYPES_SERVED
        and not 1 < problem.groups == problem.in_channels == problem.out_channels
        and max(problem.kernel_h, problem.kernel_w) <= MAX_KERNEL
        and not _stores_apart(problem)
        and (problem.volume is None or _serves_volume(problem, problem.volume))
    )


def _stores_apart(problem: ConvProblem) -> bool:
    """Say whether results of a phase lie apart in planes: a store then writes one item.

    That takes two to eight times as long as the same in pixels, copies not counted (H200).
    """
    strided = problem.stride_h * problem.stride_w > 1
    return problem.layout == "nchw" and problem.direction == "bwd_data" and strided


def _serves_volume(problem: ConvProblem, volume: Volume) -> bool:
    """Say whether channels of slices fill chunks, and all taps have bits of a mask."""
    taps = volume.taps, problem.kernel_h, problem.kernel_w
    whole = problem.buffers[problem.read][-1] % parts.chunk(problem) == 0
    return whole and max(taps) <= MAX_VOLUME_KERNEL


def _best_split(problem: ConvProblem, limits: Limits, tile_m: int, tile_n: int, tile_k: int) -> int:
    """Return the slices of the reduction with which such tiles take least time."""
    whole = _product(problem)
    tiles = ceil_div(whole.m, tile_m) * ceil_div(whole.n, tile_n)
    count = parts.products(problem) * tiles
    split = best_split(count, whole.k, limits, ITEMS_PER_UNIT // 2)
    return none_empty(whole.k, split, tile_k)


def guesses(problem: ConvProblem, limits: Limits) -> Iterator[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    whole, size = _product(problem), DTYPES[problem.dtype]

    def split_of(shape: Shape) -> int:
        tile_k = shape.row_bytes // size
        return _best_split(problem, limits, shape.tile_m, shape.tile_n, tile_k)

    wide = ranked(whole.m, whole.n, parts.products(problem), limits.compute_units, split_of)
    few = (SHORT if whole.k < LONG_K else LONG) if whole.n <= NARROW else ()
    return (
        Config(
            shape.unit, shape.tile_m, shape.tile_n, shape.row_bytes // size, shape.warps_m,
            shape.warps_n, shape.stages, shape.pending, split_k=split_of(shape), group_m=4,
        )
        for shape in (*few, *wide, *SHAPES)
        if shape.unit in limits.instructions
        and shape.tile_m <= max(whole.m, 64)
        and shape.tile_n <= max(whole.n, 64)
    )  # fmt: skip


def splits(problem: ConvProblem, limits: Limits) -> tuple[int, ...]:
    """Return powers of two up to what fills the device several times with its smallest tiles."""
    whole = _product(problem)
    tiles = parts.products(problem) * ceil_div(whole.m, 64) * ceil_div(whole.n, 64)
    most = min(MOST_TILES * limits.compute_units // tiles, whole.k // MIN_SLICE, 512)
    return tuple(1 << place for place in range(max(most, 1).bit_length()))


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the copies of images and weights, the product, and the sum of its planes, if any."""
    of_weights = problem.direction == "bwd_weights"
    product = (_of_weights if of_weights else _of_correlations)(problem, config)
    return Plan(_around(problem, config, product), _workspaces(problem, config))


def _around(
    problem: ConvProblem, config: Config, product: AnyLaunch
) -> tuple[Launch | AnyLaunch, ...]:
    """Return the product's launch between the copies before it and the sum behind it."""
    copies = parts.copies(problem)
    if problem.direction == "bwd_weights":
        stored = parts.stores_weights(problem, config.split_k)
        return *copies, product, *(() if stored else (parts.sum_weights(problem, config.split_k),))
    packed = parts.pack(problem, _weights_layout(problem, config))
    added = (sum_of_planes(problem, config.split_k),) if config.split_k > 1 else ()
    return *copies, *((packed,) if packed else ()), product, *added


_product = lru_cache(maxsize=256)(parts.product)


@lru_cache(maxsize=64)
def _products(problem: ConvProblem) -> GemmProblem:
    """Return the implicit product of all groups."""
    return replace(_product(problem), batch=parts.products(problem))


def _weights_layout(problem: ConvProblem, config: Config) -> Layout:
    return config.gemm(problem).layout(_product(problem), "a" if problem.layout == "nchw" else "b")


def _workspaces(problem: ConvProblem, config: Config) -> tuple[tuple[str, int], ...]:
    sizes = [space for image in parts.images(problem) for space in image.workspaces]
    if problem.direction == "bwd_weights":
        if not parts.stores_weights(problem, config.split_k):
            sizes.append((PLANES, config.split_k * parts.weights_plane_bytes(problem)))
        return tuple(sizes)
    sizes.append((PACKED, parts.packed_bytes(problem, _weights_layout(problem, config))))
    if config.split_k > 1:
        sizes.append((PLANES, planes_bytes(problem, config.split_k)))
    return tuple(sizes)


class Mask(NamedTuple):
    """Bits of a row of results that say which taps meet the image: rows', columns', and depth's.

    The first of each, from 0 for rows; `beyond` is one that no tap of a row has.
    """

    columns: int
    beyond: int
    depth: int | None = None

    @property
    def meets(self) -> str:
        """The text that says whether the current tap of row `i` meets the image."""
        text = f"reach[i] >> tap_h & reach[i] >> ({self.columns} + tap_w)"
        deep = "" if self.depth is None else f" & reach[i] >> ({self.depth} + tap_d)"
        return f"{text}{deep} & 1"


OF_PLANES, OF_VOLUMES = Mask(16, MAX_KERNEL), Mask(11, MAX_VOLUME_KERNEL, 22)


def _of_correlations(problem: ConvProblem, config: Config) -> Launch:
    split = config.split_k > 1
    image = parts.images(problem)[0]

    @LazyText
    def text() -> str:
        launched, nhwc = phases(parts.merged(problem)), problem.layout == "nhwc"
        neighbours = launched[0].channels if nhwc else launched[0].results
        return render(
            NAME,
            **_common(problem, config),
            sizes=parts.sizes_text(problem, _weights_layout(problem, config)),
            **epilogue(problem, split=split),
            staging=config.gemm(problem).staging(_product(problem)),
            pixels="a" if nhwc else "b",
            side_by_side=parts.together(problem),
            slice=_slice(problem, config) // config.tile_k,
            in_place=image.in_place,
            run=_run(problem, config, neighbours),
            whole=all(part.rows.whole and part.cols.whole for part in launched),
            mask=OF_VOLUMES if problem.volume else OF_PLANES,
        )

    out = PLANES if split else problem.output
    operands = (*image.argument(), *buffer(PACKED))
    args = (*operands, *terms(problem, split), *buffer(out))
    return _launch(problem, config, text, args)


def _run(problem: ConvProblem, config: Config, neighbours: int) -> int:
    """Return the results of one vector store, where `neighbours` lie side by side."""
    most = 4 if config.split_k > 1 else parts.chunk(problem)
    return next(width for width in (8, 4, 2, 1) if width <= most and neighbours % width == 0)


def _of_weights(problem: ConvProblem, config: Config) -> Launch:
    images, stored = parts.images(problem), parts.stores_weights(problem, config.split_k)

    @LazyText
    def text() -> str:
        return render(
            f"{NAME}_weights",
            **_common(problem, config),
            staging=config.gemm(problem).staging(_product(problem)) if stored else None,
            sizes=parts.weights_sizes(problem),
            slice="SLICE" if problem.free else _slice(problem, config),
            in_place=any(image.in_place for image in images),
        )

    out = problem.output if stored else PLANES
    args = (*images[0].argument(), *images[1].argument(), *buffer(out))
    return _launch(problem, config, text, args)


def _growing(problem: ConvProblem, config: Config) -> dict[str, int]:
    """Return the sizes that grow with a free batch: arguments of both kernels."""
    if not problem.free:
        return {}
    product = _product(problem)
    if problem.direction == "bwd_weights":
        return {"BATCH": problem.batch, "SLICE": _slice(problem, config)}
    if problem.layout == "nhwc":
        return {"BATCH": problem.batch, "TILES_M": ceil_div(product.m, config.tile_m)}
    return {"BATCH": problem.batch, "TILES_N": ceil_div(product.n, config.tile_n)}


def _plane_elements(problem: ConvProblem) -> str:
    """Return the text of the elements of a plane of partial results."""
    elements = output_elements(problem)
    return f"({elements // problem.batch}L * BATCH)" if problem.free else str(elements)


def _common(problem: ConvProblem, config: Config) -> dict[str, Any]:
    """Return what both kernels are rendered with."""
    product, gemm = _product(problem), config.gemm(problem)
    a, b = (gemm.layout(product, role) for role in "ab")
    values = {name: value for name, value in asdict(config).items() if name != "pending"}
    elements = max(image.elements for image in parts.images(problem))
    given = _growing(problem, config)
    sweep: str | int = config.group_m * ceil_div(product.n, config.tile_n)
    if "TILES_N" in given:
        sweep = f"({config.group_m} * TILES_N)"
    return values | {
        "dtype": problem.dtype,
        "elem_bytes": DTYPES[problem.dtype],
        "preamble": f"{dtype_preamble(problem.dtype)}\n{aligned_preamble(problem.dtype)}",
        "units": gemm_mma.units(product, gemm, _unrounded(problem)),
        "groups": parts.products(problem),
        "a": a, "b": b, "blocks_m": gemm.blocks[0], "blocks_n": gemm.blocks[1],
        "ahead": gemm.ahead,
        "tiles_m": "TILES_M" if "TILES_M" in given else ceil_div(product.m, config.tile_m),
        "sweep": sweep,
        "given": tuple(given),
        "index": "int" if max(elements, output_elements(problem)) < 2**31 else "long",
        "elements": _plane_elements(problem),
        "volume": problem.volume is not None,
    }  # fmt: skip


def _unrounded(problem: ConvProblem) -> str:
    """Return the sides of the product that no copy has rounded: images that are read in place."""
    images = parts.images(problem)
    sides = "ab" if problem.direction == "bwd_weights" else "a"
    return "".join(side for side, image in zip(sides, images, strict=True) if image.in_place)


def _slice(problem: ConvProblem, config: Config) -> int:
    """Return the steps of the reduction in each slice."""
    return slice_length(_product(problem).k, config.split_k, config.tile_k)


def _spread(problem: ConvProblem, config: Config) -> Spread:
    """Return the sizes of the product's launch."""
    product, gemm = _product(problem), config.gemm(problem)
    tiles = ceil_div(product.m, config.tile_m) * ceil_div(product.n, config.tile_n)
    items = gemm.work_items
    across, local_bytes = tiles * parts.products(problem) * items, gemm.local_bytes(product)
    if problem.direction == "bwd_weights":
        sizes = (across, config.split_k, 1)
        return Spread(f"{NAME}_weights", sizes, (items, 1, 1), local_bytes)
    sizes = (across, len(phases(parts.merged(problem))), config.split_k)
    return Spread(NAME, sizes, (items, 1, 1), local_bytes)


def _launch(problem: ConvProblem, config: Config, text: LazyText, args: tuple[Arg, ...]) -> Launch:
    if config.unit == "wgmma":
        rendered, text = text, LazyText(lambda: ptx.with_target(str(rendered), "sm_90a"))
    growing = map(Scalar, _growing(problem, config).values())
    return _spread(problem, config).launch(text, (*args, *growing))
