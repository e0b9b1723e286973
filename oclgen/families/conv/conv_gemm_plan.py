"""What the families of implicit GEMM share around their product: its rule, packing and planes.

`conv_gemm_operands` says where operands lie; the product itself is the families'.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeGuard

from oclgen.families.conv import conv_gemm_operands, conv_gemm_pixels
from oclgen.families.conv.conv_as_gemm import lowered
from oclgen.families.conv.conv_gemm_operands import (
    Product,
    Tiles,
    columns_grow,
    index_type,
    packed_elements,
    phase_sizes,
    phases,
    role_a,
    weights_extents,
)
from oclgen.families.conv.correlation import correlations, operands, output_elements
from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.families.parts.packing import PACKED, Taps
from oclgen.families.parts.planes import (
    PLANES,
    WEIGHTS_ITEMS,
    planes_bytes,
    sum_planes,
    sum_weights,
)
from oclgen.families.parts.strided_weights import strided_weights
from oclgen.limits import Limits
from oclgen.plan import (
    AnyLaunch,
    Launch,
    LazyText,
    Outline,
    Plan,
    Scalar,
    Spread,
    buffer,
    ceil_div,
)
from oclgen.problem import ConvProblem, Problem, in_planes
from oclgen.render import render

PACK_CHANNELS = 8
"""Channels that one work-item packs: a cache line of weights where taps are few."""
MAX_TAPS = 16
"""Rows, and columns, of taps that 32 bits tell apart."""
FEW_DEPTHS = 8
"""Depths of a filter's tap that are read together at least: 32 bytes, as GPUs do."""
MAX_TABLE = 4096
"""Steps of all reductions whose taps are looked up: three ints each, of 64 KiB of constants."""


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the families compute such a problem: in planes, any convolution.

    In channels_last, all but products and filters of one channel, which have families of their own.
    """
    if not isinstance(problem, ConvProblem) or problem.layout == "nchw":
        return in_planes(problem)
    return lowered(problem) is None and not problem.groups == problem.in_channels > 1


def layout_why_not(problem: ConvProblem, limits: Limits) -> str | None:
    """Say why images that lie so are not read on such a device, or None."""
    if problem.layout == "nchw":
        return None
    if limits.kind == "cpu":
        return "on CPUs images in channels_last are copied, for families that were made for CPUs"
    if max(problem.kernel_h, problem.kernel_w) > MAX_TAPS:
        return (
            f"a kernel of {problem.kernel_h}x{problem.kernel_w} in channels_last has more than "
            f"{MAX_TAPS} rows or columns of taps, for each of which there is a bit"
        )
    return None


def product_of(problem: ConvProblem, tiles: Tiles) -> Product:
    """Return the implicit product that a problem is."""
    weights = problem.direction == "bwd_weights"
    if problem.layout == "nchw":
        build = conv_gemm_operands.of_weights if weights else conv_gemm_operands.of_correlations
    else:
        build = conv_gemm_pixels.of_weights if weights else conv_gemm_pixels.of_correlations
    return build(problem, tiles)


def reduction_why_not(problem: ConvProblem, tiles: Tiles, split_k: int) -> str | None:
    """Say with numbers why the reduction cannot be ordered or split so, or None.

    Args:
        problem: of any direction and layout.
        tiles: `k` is the depth of a tile, `taps_outer` the order.
        split_k: slices of the reduction; right from 1 to the number of tiles along it.
    """
    if not tiles.taps_outer:
        if problem.direction == "bwd_weights":
            return "taps_outer=False says how weights are summed over; bwd_weights does not"
        looked_up = sum(part.reduction for part in correlations(problem))
        if problem.layout == "nchw" and looked_up > MAX_TABLE:
            return (
                f"taps_outer=False looks up {looked_up} steps in a table; at most {MAX_TABLE} "
                "fit. Use taps_outer=True"
            )
    steps = _steps(problem, tiles.k, tiles.taps_outer)
    if not 1 <= split_k <= steps:
        return f"split_k={split_k}, but the reduction has only {steps} tiles"
    return None


@lru_cache(maxsize=256)
def _steps(problem: ConvProblem, tile_k: int, taps_outer: bool) -> int:
    """Return the tiles along k of the deepest product."""
    if problem.direction == "bwd_weights":
        return ceil_div(weights_extents(problem)[2], tile_k)
    return max(
        max(
            part.rows.taps * part.cols.taps * ceil_div(part.depth, tile_k)
            if taps_outer
            else ceil_div(part.reduction, tile_k)
            for part in correlations(problem)
        ),
        1,
    )


def outline(
    kernel: str, problem: ConvProblem, tiles: Tiles, split_k: int, local_bytes: int
) -> Outline:
    """Return the plan around the product's `kernel` without the product's text and arguments.

    Args:
        kernel: name of the product's kernel.
        problem: what the plan computes.
        tiles: `work_items` are the product's work-group.
        split_k: slices of the reduction, each a plane of fp32 where there are several.
        local_bytes: local memory of the product's work-group.
    """
    product = spread_of(kernel, problem, tiles, split_k, product_of(problem, tiles), local_bytes)
    launches: tuple[Launch | Spread, ...] = _around(problem, tiles, split_k, product)
    if problem.turns_weights and split_k > 1:  # the sum may ask for more than the product
        launches = (*launches[:-1], _sum(problem, split_k).spread)
    return Outline(launches, workspaces(problem, tiles, split_k))


def workspaces(problem: ConvProblem, tiles: Tiles, split_k: int) -> tuple[tuple[str, int], ...]:
    """Return role and bytes of packed weights and of planes, those that the plan has.

    Args:
        problem: what the plan computes.
        tiles: weights are packed in whole tiles of `m` x `k`.
        split_k: slices of the reduction.

    Returns:
        Pairs (`PACKED`, bytes) and (`PLANES`, bytes), each at most once.
    """
    sizes = []
    if role_a(problem) == PACKED:
        floats = sum(packed_elements(part, tiles) for part in phases(problem))
        sizes.append((PACKED, 4 * max(floats, 1)))
    if split_k > 1:
        sizes.append((PLANES, planes_bytes(problem, split_k)))
    return tuple(sizes)


def plan_of(problem: ConvProblem, tiles: Tiles, split_k: int, launch: Launch) -> Plan:
    """Return the product's launch between the packing of weights and the sum of its planes.

    Args:
        problem: what the plan computes.
        tiles: as weights are packed for the product.
        split_k: slices of the reduction, as the product was written for.
        launch: the product, as `launch_of` returns it.
    """
    launches = _around(problem, tiles, split_k, launch)
    return Plan(launches, workspaces(problem, tiles, split_k))


def _around(
    problem: ConvProblem, tiles: Tiles, split_k: int, product: AnyLaunch
) -> tuple[Launch | AnyLaunch, ...]:
    launches: list[Launch | AnyLaunch] = [product]
    if role_a(problem) == PACKED and any(part.reduction for part in phases(problem)):
        launches.insert(0, pack(problem, tiles))
    if split_k > 1:
        launches.append(_sum(problem, split_k))
    return tuple(launches)


@lru_cache(maxsize=64)
def _sum(problem: ConvProblem, split_k: int) -> Launch:
    """Return the launch that adds the planes; a caller may replace strides of turned weights."""
    if not problem.turns_weights:
        return sum_planes(problem, split_k).launch()
    taps, depth = problem.kernel_h * problem.kernel_w, problem.in_channels // problem.groups
    span = min(max(WEIGHTS_ITEMS // taps, FEW_DEPTHS), depth)
    return sum_weights(problem, split_k, depth, span).launch()


def launch_of(
    kernel: str,
    problem: ConvProblem,
    tiles: Tiles,
    split_k: int,
    product: Product,
    local_bytes: int,
    **values: Any,
) -> Launch:
    """Return the product's launch.

    Args:
        kernel: name of the kernel and of its template.
        problem: what the plan computes.
        tiles: tile of C and work-items.
        split_k: slices of the reduction.
        product: where operands lie, `product_of` the same problem and tiles.
        local_bytes: local memory of a work-group.
        **values: what the template has of its own.
    """
    summed = split_k > 1
    _, b, c = operands(problem)
    tiles_m, tiles_n = ceil_div(product.m, tiles.m), ceil_div(product.n, tiles.n)
    given = _growing(problem, tiles_n)

    @LazyText
    def text() -> str:
        return render(
            kernel,
            **epilogue(problem, "c", summed),
            operands=str(product.text),
            phases=product.phases,
            tiles_m=tiles_m,
            tiles_n="TILES_N" if "TILES_N" in given else tiles_n,
            given=tuple(given),
            index=index_type(problem),
            split_k=split_k,
            along=product.along,
            groups_first=_groups_first(problem),
            plane_elements=_plane_elements(problem),
            **values,
        )

    inputs = (*buffer(role_a(problem)), *buffer(b), *terms(problem, summed))
    args = (*inputs, *buffer(PLANES if summed else c), *map(Scalar, given.values()))
    return spread_of(kernel, problem, tiles, split_k, product, local_bytes).launch(text, args)


def spread_of(
    kernel: str,
    problem: ConvProblem,
    tiles: Tiles,
    split_k: int,
    product: Product,
    local_bytes: int,
) -> Spread:
    """Return the sizes of the product's launch.

    Args:
        kernel: its name.
        problem: what the plan computes.
        tiles: tile of C and work-items.
        split_k: slices of the reduction.
        product: where operands lie.
        local_bytes: local memory of a work-group.
    """
    across, down = (problem.groups, 1) if _groups_first(problem) else (1, problem.groups)
    across *= ceil_div(product.m, tiles.m) * ceil_div(product.n, tiles.n)
    return Spread(
        kernel=kernel,
        global_size=(across * tiles.work_items, down * product.phases * split_k),
        local_size=(tiles.work_items, 1),
        local_bytes=local_bytes,
    )


def _groups_first(problem: ConvProblem) -> bool:
    """Say whether work-groups of a pixel's groups are neighbours, as they are in memory."""
    return problem.layout == "nhwc" and problem.groups > 1


def _growing(problem: ConvProblem, tiles_n: int) -> dict[str, int]:
    """Return the product's sizes that grow with a free batch: arguments of its kernel."""
    columns = {"TILES_N": tiles_n} if columns_grow(problem) else {}
    return {"BATCH": problem.batch, **columns} if problem.free else {}


def _plane_elements(problem: ConvProblem) -> str:
    """Return the text of the elements of a plane, which is as large as the output."""
    elements = output_elements(problem)
    if columns_grow(problem):
        return f"({elements // problem.batch}L * BATCH)"
    return f"{elements}L"


@lru_cache(maxsize=64)
def pack(problem: ConvProblem, tiles: Tiles) -> Launch:
    """Return the launch that packs the weights of every phase."""
    nhwc = problem.layout == "nhwc"
    sizes = [
        one | {
            "PRODUCTS": one["GROUPS"], "CHANNELS": one["M"], "ROWS": one["M_PADDED"],
            "TAP_DEPTH": one["DEPTH_PADDED" if tiles.taps_outer else "DEPTH"],
            "PACKED_STEP": one["K_PADDED"] * one["M_PADDED"],
        }
        for one in phase_sizes(problem, tiles)
    ]  # fmt: skip
    return Taps(
        dtype=problem.dtype,
        source=strided_weights(problem),
        packed=buffer(PACKED),
        phases=sizes,
        place="(long)k * ROWS + row",
        group_step="DEPTH * w_depth" if problem.direction == "bwd_data" else "CHANNELS * w_channel",
        chunk=PACK_CHANNELS,
        widened=True,
        shares_text=True,
        channels_first=not (nhwc or tiles.taps_outer),
    ).launch(of_weights=True)
