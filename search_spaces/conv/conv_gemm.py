"""What is worth trying for `conv_gemm`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from collections.abc import Sequence

from oclgen.families.conv import conv_gemm
from oclgen.families.conv.conv_gemm_operands import along_k, weights_extents
from oclgen.families.conv.correlation import Correlation, correlations, strung_windows
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem
from search_spaces.blocking import ITEMS_PER_UNIT, idleness, waste
from search_spaces.values import BOTH, Values

Shape = tuple[int, int, int, int, int, int]
"""tile_m, tile_n, tile_k, local_m, local_n and stages, or buffers."""
SEEDS = 8
"""Start points per family: more would leave a short search nothing to find."""
MIN_SLICE = 128
"""Steps of a reduction below which no plane of its own pays."""
PLANE_COST = 16
"""Steps of a reduction that take as long as writing and summing a plane."""
FEW_CHANNELS = 8
"""Channels that do not fill a tile of the reduction."""
SHAPES: tuple[Shape, ...] = (
    (128, 64, 16, 16, 8, 2), (64, 128, 16, 8, 16, 2), (64, 64, 16, 8, 8, 2),
    (128, 128, 16, 8, 16, 2), (128, 128, 16, 16, 16, 2), (32, 128, 16, 8, 16, 2),
    (32, 64, 16, 8, 8, 2), (16, 128, 8, 4, 16, 2),
)  # fmt: skip
"""What to begin with: 64 accumulators, or 32 for few rows."""


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_gemm`; one config on CPUs."""
    if limits.kind == "cpu":
        return {}
    m, n, _ = product_of(problem)
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
        "pad": (0, 4) if along_k(problem) else (0,),
        "buffers": (1, 2),
        "prefetch": BOTH,
        "unroll_k": (8,),
        "taps_outer": tap_orders(problem),
        "split_k": splits_of(problem, limits, 64, 64),
        "m_fastest": BOTH,
    }


def seeds(problem: ConvProblem, limits: Limits) -> list[conv_gemm.Config]:
    """Return start points for `conv_gemm`, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return []
    pad = 4 if along_k(problem) else 0
    return [
        conv_gemm.Config(
            tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, local_m=local_m, local_n=local_n,
            vec_m=4 if tile_m >= 4 * local_m else 2, vec_n=4, pad=pad, buffers=buffers,
            prefetch=True, unroll_k=8, taps_outer=tap_orders(problem)[0], split_k=split_k,
            m_fastest=True,
        )
        for (tile_m, tile_n, tile_k, local_m, local_n, buffers), split_k in fitting(
            problem, limits, SHAPES
        )[:SEEDS]
    ]  # fmt: skip


def fitting(
    problem: ConvProblem, limits: Limits, shapes: Sequence[Shape]
) -> list[tuple[Shape, int]]:
    """Return shapes with splits of the reduction, best guess first.

    The guess counts what tiles at the edges compute in vain, how evenly work-groups fill the
    device, and that small tiles read more, of local and of global memory, per multiply-add.
    """
    m, n, k = product_of(problem)
    ranked = []
    for shape in shapes:
        tile_m, tile_n, _, local_m, local_n, _ = shape
        tiles = len(phases(problem)) * problem.groups * ceil_div(m, tile_m) * ceil_div(n, tile_n)
        reads = 1 + (2 * local_m + 8) / tile_m + (2 * local_n + 8) / tile_n
        for split in splits_of(problem, limits, tile_m, tile_n):
            planes = 1 + (split > 1) * split * PLANE_COST / k
            fills = idleness(tiles * split, local_m * local_n, limits)
            cost = waste(m, tile_m) * waste(n, tile_n) * fills * reads * planes
            ranked.append((cost, shape, split))
    return [(shape, split) for _, shape, split in sorted(ranked)]


def tap_orders(problem: ConvProblem) -> tuple[bool, ...]:
    """Return the orders of the reduction that are worth trying, the better guess first.

    With taps outer a tile of k has one tap, which costs the least; but each tap then has whole
    tiles, which few channels do not fill.
    """
    if problem.direction == "bwd_weights" or problem.kernel_h * problem.kernel_w == 1:
        return (True,)
    return (False, True) if largest(problem).depth < FEW_CHANNELS else (True, False)


def largest(problem: ConvProblem) -> Correlation:
    """Return the correlation with the most work."""
    return max(correlations(problem), key=lambda part: part.results * part.reduction)


def phases(problem: ConvProblem) -> tuple[Correlation, ...]:
    """Return the correlations that a problem is made of, or what stands for its one product."""
    if problem.direction == "bwd_weights":
        return (strung_windows(problem),)
    return correlations(problem)


def product_of(problem: ConvProblem) -> tuple[int, int, int]:
    """Return m, n and k of one group's implicit product, the largest of several."""
    if problem.direction == "bwd_weights":
        return weights_extents(problem)
    part = largest(problem)
    return part.channels, part.batch * part.results, part.reduction


def splits_of(problem: ConvProblem, limits: Limits, tile_m: int, tile_n: int) -> tuple[int, ...]:
    """Return planes up to twice what gives every compute unit its work-items."""
    m, n, k = product_of(problem)
    tiles = len(phases(problem)) * problem.groups * ceil_div(m, tile_m) * ceil_div(n, tile_n)
    items = tile_m * tile_n // 64
    wanted = 2 * ITEMS_PER_UNIT * limits.compute_units / (tiles * items)
    choices = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    return tuple(s for s in choices if s == 1 or (s <= wanted and k >= MIN_SLICE * s))
