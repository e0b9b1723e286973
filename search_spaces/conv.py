"""What is worth trying for the convolution families, and why, with configs to begin with.

It says nothing about what is valid; that is each family's `why_not`. Winograd has its own file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import product
from typing import Any

from oclgen.correlation import Correlation, correlations, strung_windows
from oclgen.families import (
    FAMILIES,
    conv_gemm,
    conv_register,
    conv_register_weights,
    depthwise,
    depthwise_weights,
)
from oclgen.families.conv_as_gemm import lowered
from oclgen.families.conv_gemm_operands import weights_extents
from oclgen.limits import Limits
from oclgen.plan import ceil_div, round_up
from oclgen.problem import ConvProblem
from search_spaces import gemm, gemm_pairs

Value = int | bool | str
Values = Mapping[str, tuple[Value, ...]]
ValuesOf = Callable[[Any, Limits], Values]
SeedsOf = Callable[[Any, Limits], list[Any]]
BOTH = (False, True)

REGISTERS = 28
"""Vectors of accumulators that leave room for operands in a file of 32."""
VECS = (1, 2, 3, 4)
SEEDS = 8
"""Start points per family: more would leave a short search nothing to find."""
GROUPS_PER_UNIT = 8
"""Work-groups that hide each other's latency on a compute unit of a GPU."""
ITEMS_PER_UNIT = 256
"""Work-items with many registers each that keep a GPU's compute unit busy."""
MIN_SLICE = 128
"""Steps of a reduction below which no plane of its own pays."""
PLANE_COST = 16
"""Steps of a reduction that take as long as writing and summing a plane."""
FEW_CHANNELS = 8
"""Channels that do not fill a tile of the reduction."""
GEMM_SHAPES = (
    (128, 64, 16, 16, 8), (64, 128, 16, 8, 16), (64, 64, 16, 8, 8), (128, 128, 16, 8, 16),
    (128, 128, 16, 16, 16), (32, 128, 16, 8, 16), (32, 64, 16, 8, 8), (16, 128, 8, 4, 16),
)  # fmt: skip
"""tile_m, tile_n, tile_k, local_m, local_n to begin with: 64 accumulators, or 32 for few rows."""


def register_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_register`; none on GPUs."""
    if limits.kind == "gpu":
        return {}
    part = _largest(problem)
    return {
        # images share weights, which pays where a row has few results
        "images": _shared(problem),
        "item_x": _even_cuts(part.cols.results),
        "vec": _vectors(part.channels, limits),
        "vecs": VECS,
        "unroll": (1, 2),
        "taps_outer": BOTH,
        # weights that outgrow the second cache want positions fastest, large images channels
        "channels_fastest": BOTH,
    }


def register_seeds(problem: ConvProblem, limits: Limits) -> list[conv_register.Config]:
    """Return start points for `conv_register`, best guess first; some may not be valid."""
    if limits.kind == "gpu":
        return []
    part = _largest(problem)
    shapes = [
        (
            _cost(n * x, vecs) * waste(part.cols.results, x) * _lanes(part, vec, vecs),
            n,
            x,
            vec,
            vecs,
        )
        for n, x, vec, vecs in product(
            _shared(problem), _even_cuts(part.cols.results), _vectors(part.channels, limits), VECS
        )
        if n * x * vecs <= REGISTERS
    ]
    return [
        conv_register.Config(n, x, vec, vecs, 1, taps_outer, channels_fastest)
        for _, n, x, vec, vecs in sorted(shapes)[: SEEDS // 2]
        for taps_outer, channels_fastest in ((False, False), (True, True))
    ]


def register_weights_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_register_weights`."""
    if limits.kind == "gpu":
        return {}
    part = strung_windows(problem)
    return {
        "item_c": _inputs(part),
        "vec": _vectors(part.channels, limits),
        "vecs": VECS,
        "unroll": (1, 2),
        # more planes balance the units and keep packed y in the second cache
        "split": tuple(s for s in (1, 2, 4, 8, 16, 32) if s <= part.batch * part.rows.results),
        "outputs_fastest": BOTH,
    }


def register_weights_seeds(
    problem: ConvProblem, limits: Limits
) -> list[conv_register_weights.Config]:
    """Return start points for `conv_register_weights`, ranked as those of `conv_register`."""
    if limits.kind == "gpu":
        return []
    part = strung_windows(problem)
    taps = part.cols.taps
    shapes = [
        (_cost(c * taps, vecs) * waste(part.depth, c) * _lanes(part, vec, vecs), c, vec, vecs)
        for c, vec, vecs in product(_inputs(part), _vectors(part.channels, limits), VECS)
        if c * vecs * taps <= REGISTERS
    ]
    return [
        conv_register_weights.Config(c, vec, vecs, 1, split, False)
        for _, c, vec, vecs in sorted(shapes)[: SEEDS // 2]
        for split in (1, min(problem.batch, 8))
    ]


def gemm_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_gemm`; one config on CPUs."""
    if limits.kind == "cpu":
        return {}
    m, n, _ = _product(problem)
    weights = problem.direction == "bwd_weights"
    return {
        "tile_m": tuple(tile for tile in (16, 32, 64, 128) if tile == 16 or tile < 2 * m),
        "tile_n": tuple(tile for tile in (32, 64, 128) if tile == 32 or tile < 2 * n),
        "tile_k": (8, 16),
        "local_m": (4, 8, 16),
        "local_n": (8, 16),
        # 128 bits is the widest read of local memory
        "vec_m": (2, 4),
        "vec_n": (2, 4),
        # tiles that are filled along k meet bank conflicts; a pad of 4 keeps vectors aligned
        "pad": (0, 4) if weights else (0,),
        "buffers": (1, 2),
        "prefetch": BOTH,
        "unroll_k": (8,),
        "taps_outer": _tap_orders(problem),
        "split_k": _splits(problem, limits, 64, 64),
        "m_fastest": BOTH,
    }


def gemm_seeds(problem: ConvProblem, limits: Limits) -> list[conv_gemm.Config]:
    """Return start points for `conv_gemm`, best guess first; some may not be valid.

    The guess counts what tiles at the edges compute in vain, how evenly work-groups fill the
    device, and that small tiles read more, of local and of global memory, per multiply-add.
    """
    if limits.kind == "cpu":
        return []
    m, n, k = _product(problem)
    ranked = []
    for shape in GEMM_SHAPES:
        tile_m, tile_n, _, local_m, local_n = shape
        tiles = len(_phases(problem)) * problem.groups * ceil_div(m, tile_m) * ceil_div(n, tile_n)
        reads = 1 + (2 * local_m + 8) / tile_m + (2 * local_n + 8) / tile_n
        for split in _splits(problem, limits, tile_m, tile_n):
            planes = 1 + (split > 1) * split * PLANE_COST / k
            fills = idleness(tiles * split, local_m * local_n, limits)
            cost = waste(m, tile_m) * waste(n, tile_n) * fills * reads * planes
            ranked.append((cost, shape, split))
    return [_gemm_seed(problem, *shape, split) for _, shape, split in sorted(ranked)[:SEEDS]]


def idleness(groups: int, work_items: int, limits: Limits) -> float:
    """Return the time over that of a full device, for `groups` work-groups on a GPU.

    Units wait for the last groups, and hide no latency with few work-items each.
    """
    rounds = ceil_div(groups, limits.compute_units)
    hidden = min(rounds * work_items / ITEMS_PER_UNIT, 1)
    return rounds * limits.compute_units / groups / hidden


def _gemm_seed(
    problem: ConvProblem,
    tile_m: int,
    tile_n: int,
    tile_k: int,
    local_m: int,
    local_n: int,
    split_k: int,
) -> conv_gemm.Config:
    return conv_gemm.Config(
        tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, local_m=local_m, local_n=local_n,
        vec_m=4 if tile_m >= 4 * local_m else 2, vec_n=4,
        pad=4 if problem.direction == "bwd_weights" else 0, buffers=2, prefetch=True, unroll_k=8,
        taps_outer=_tap_orders(problem)[0], split_k=split_k, m_fastest=True,
    )  # fmt: skip


def _tap_orders(problem: ConvProblem) -> tuple[bool, ...]:
    """Return the orders of the reduction that are worth trying, the better guess first.

    With taps outer a tile of k has one tap, which costs the least; but each tap then has whole
    tiles, which few channels do not fill.
    """
    if problem.direction == "bwd_weights" or problem.kernel_h * problem.kernel_w == 1:
        return (True,)
    return (False, True) if _largest(problem).depth < FEW_CHANNELS else (True, False)


def depthwise_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise`."""
    return _patch_values(max(part.cols.results for part in correlations(problem)), limits)


def depthwise_seeds(problem: ConvProblem, limits: Limits) -> list[depthwise.Config]:
    """Return start points for `depthwise`, best guess first; some may not be valid."""
    width = max(part.cols.results for part in correlations(problem))
    return [depthwise.Config(*patch) for patch in _patches(width, limits)]


def depthwise_weights_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise_weights`."""
    if limits.kind == "cpu":
        return {**_patch_values(problem.out_w, limits), "local_k": (1,), "split": (1, 2, 4, 8)}
    return {
        "patch_h": (1, 2, 4, 7, 8, 14),
        "patch_w": (1, 2, 4),
        "vec": (1, 2, 4),
        "guarded": (True,),
        "local_size": (32, 64, 128, 256),
        "local_k": (1, 32, 64, 128, 256),
        "split": (1, 2, 4, 8, 16, 32, 64),
    }


def depthwise_weights_seeds(problem: ConvProblem, limits: Limits) -> list[depthwise_weights.Config]:
    """Return start points for `depthwise_weights`, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return [
            depthwise_weights.Config(*patch, local_k=1, split=1)
            for patch in _patches(problem.out_w, limits)
        ]
    # neighbours along a row read neighbours, and enough planes for every unit
    split = 1 << (ceil_div(GROUPS_PER_UNIT * limits.compute_units, problem.groups) - 1).bit_length()
    return [
        depthwise_weights.Config(patch_h, patch_w, patch_w, True, local, local, min(split, most))
        for patch_h, patch_w, local in ((8, 1, 128), (4, 1, 64), (14, 1, 64), (4, 2, 128))
        for most in (64, 8)
    ]


def as_gemm(family: str, values: ValuesOf, seeds: SeedsOf) -> tuple[ValuesOf, SeedsOf]:
    """Return the values and seeds of a 1x1 convolution's `family` from those of its product's."""

    def lowered_values(problem: ConvProblem, limits: Limits) -> Values:
        return values(lowered(problem), limits)

    def lowered_seeds(problem: ConvProblem, limits: Limits) -> list[Any]:
        kind = FAMILIES[family].Config
        return [kind(**asdict(seed)) for seed in seeds(lowered(problem), limits)]

    return lowered_values, lowered_seeds


SPACES: dict[str, tuple[ValuesOf, SeedsOf]] = {
    "conv_register": (register_values, register_seeds),
    "conv_register_weights": (register_weights_values, register_weights_seeds),
    "conv_gemm": (gemm_values, gemm_seeds),
    "depthwise": (depthwise_values, depthwise_seeds),
    "depthwise_weights": (depthwise_weights_values, depthwise_weights_seeds),
    "conv_as_gemm_pairs": as_gemm("conv_as_gemm_pairs", gemm_pairs.values, gemm_pairs.seeds),
    "conv_as_gemm_register": as_gemm(
        "conv_as_gemm_register", gemm.register_values, gemm.register_seeds
    ),
    "conv_as_gemm_staged": as_gemm("conv_as_gemm_staged", gemm.staged_values, gemm.staged_seeds),
    "conv_as_gemm_async": as_gemm("conv_as_gemm_async", gemm.async_values, gemm.async_seeds),
    "conv_as_gemm_mma": as_gemm("conv_as_gemm_mma", gemm.mma_values, gemm.mma_seeds),
}
"""Values and seeds of every family here."""


def waste(extent: int, block: int) -> float:
    """Return what is computed over what is wanted when `extent` is cut into whole blocks."""
    return round_up(extent, block) / extent


def _largest(problem: ConvProblem) -> Correlation:
    """Return the correlation with the most work."""
    return max(conv_register.parts_of(problem), key=lambda part: part.results * part.reduction)


def _cost(broadcasts: int, vecs: int) -> float:
    """Return an estimate of the time per multiply-add: one, plus what the loads add.

    Vectors come from the second cache and count four times a broadcast from the first.
    """
    return 1 + (2 * vecs + broadcasts / 2) / (broadcasts * vecs)


def _lanes(part: Correlation, vec: int, vecs: int) -> float:
    """Return the time per channel, which idle lanes of the last vectors lengthen."""
    return waste(part.channels, vec * vecs) / vec


def _shared(problem: ConvProblem) -> tuple[int, ...]:
    """Return how many images may share loaded weights."""
    return tuple(n for n in (1, 2, 4) if problem.batch % n == 0)


def _inputs(part: Correlation) -> tuple[int, ...]:
    """Return numbers of input channels whose taps have accumulators in registers."""
    most = min(max(REGISTERS // part.cols.taps, 1), part.depth)
    return tuple(c for c in (*range(1, 9), 10, 12, 14) if c <= most)


def _even_cuts(width: int) -> tuple[int, ...]:
    """Return block sizes from 4 to 28 that cut a row most evenly: the longest of the best ones."""
    sizes = sorted(
        range(min(4, width), min(REGISTERS, width) + 1), key=lambda x: (waste(width, x), -x)
    )
    return tuple(sorted(sizes[:6]))


def _vectors(channels: int, limits: Limits) -> tuple[int, ...]:
    """Return the device's vector width and its half, or less where there are fewer channels."""
    width = limits.native_float_width
    while width > 1 and width >= 2 * channels:
        width //= 2
    return (width, width // 2) if width > 4 else (width,)


def _phases(problem: ConvProblem) -> tuple[Correlation, ...]:
    """Return the correlations that a problem is made of, or what stands for its one product."""
    if problem.direction == "bwd_weights":
        return (strung_windows(problem),)
    return correlations(problem)


def _product(problem: ConvProblem) -> tuple[int, int, int]:
    """Return m, n and k of one group's implicit product, the largest of several."""
    if problem.direction == "bwd_weights":
        return weights_extents(problem)
    part = _largest(problem)
    return part.channels, part.batch * part.results, part.reduction


def _splits(problem: ConvProblem, limits: Limits, tile_m: int, tile_n: int) -> tuple[int, ...]:
    """Return planes up to twice what gives every compute unit its work-items."""
    m, n, k = _product(problem)
    tiles = len(_phases(problem)) * problem.groups * ceil_div(m, tile_m) * ceil_div(n, tile_n)
    items = tile_m * tile_n // 64
    wanted = 2 * ITEMS_PER_UNIT * limits.compute_units / (tiles * items)
    choices = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    return tuple(s for s in choices if s == 1 or (s <= wanted and k >= MIN_SLICE * s))


def _patch_values(width: int, limits: Limits) -> dict[str, tuple[Value, ...]]:
    if limits.kind == "cpu":
        lanes = limits.native_float_width
        return {
            "patch_h": (1, 2, 4, 7, 8, 14),
            # whole rows have static edges; halves keep the window of wide rows in the first cache
            "patch_w": tuple({min(width, 128), min(ceil_div(width, 2), 64)}),
            "vec": tuple({lanes, max(lanes // 2, 1)}),
            "guarded": (False,),
            # a work-group costs some 0.2 us to start: small planes share it
            "local_size": (1, 4, 16),
        }
    return {
        "patch_h": (1, 2, 4, 7, 8),
        "patch_w": (1, 2, 4, 7, 8),
        "vec": (1, 2, 4),
        "guarded": BOTH,
        "local_size": (32, 64, 128, 256),
    }


def _patches(width: int, limits: Limits) -> list[tuple[int, int, int, bool, int]]:
    """Return (patch_h, patch_w, vec, guarded, local_size) to begin with."""
    if limits.kind == "cpu":
        lanes = limits.native_float_width
        return [(h, min(width, 128), lanes, False, local) for h in (4, 7, 14) for local in (1, 4)]
    return [(h, w, 1, True, 128) for h, w in ((4, 4), (2, 4), (4, 2), (1, 4), (7, 7))]
