"""Tiles of a convolution's implicit product: which of them cover it and fill a GPU best.

`conv_gemm` and `conv_async` make their guesses from it. It knows no parameter except the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from oclgen.families.conv.conv_gemm_operands import weights_extents
from oclgen.families.conv.correlation import Correlation, correlations
from oclgen.families.parts.blocking import best_split, idleness, round_splits, slicing, waste
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem

Shape = tuple[int, int, int, int, int, int]
"""tile_m, tile_n, tile_k, local_m, local_n and stages, or buffers."""
MOST_GUESSES = 8
"""Guesses per family: more would leave a short search nothing to find."""
PROBLEMS = 64
"""LRU bound. All guesses for a problem ask for its product."""
FEW_CHANNELS = 8
"""Channels that do not fill a tile of the reduction."""


def fitting(problem: ConvProblem, limits: Limits, shapes: Sequence[Shape]) -> list[Shape]:
    """Return shapes, best guess first, at most `MOST_GUESSES`.

    The guess counts what tiles at the edges compute in vain, how evenly work-groups fill the
    device, and that small tiles read more, of local and of global memory, per multiply-add.

    Args:
        problem: a convolution, as a product of m x n x k.
        limits: of the device.
        shapes: tiles to rank, each with the slices of k that `best_split` has for it.
    """
    m, n, k = product_of(problem)
    ranked = []
    for shape in shapes:
        tile_m, tile_n, _, local_m, local_n, _ = shape
        tiles, items = tiles_of(problem, tile_m, tile_n), local_m * local_n
        reads = 1 + (2 * local_m + 8) / tile_m + (2 * local_n + 8) / tile_n
        split = best_split(tiles, k, limits, items)
        fills = idleness(tiles * split, items, limits) * slicing(k, split)
        ranked.append((waste(m, tile_m) * waste(n, tile_n) * fills * reads, shape))
    return [shape for _, shape in sorted(ranked)[:MOST_GUESSES]]


def tap_orders(problem: ConvProblem) -> tuple[bool, ...]:
    """Return the orders of the reduction that are worth trying, the better guess first.

    With taps outer a tile of k has one tap, which costs the least; but each tap then has whole
    tiles, which few channels do not fill.
    """
    if problem.direction == "bwd_weights" or problem.kernel_h * problem.kernel_w == 1:
        return (True,)
    return (False, True) if _largest(problem).depth < FEW_CHANNELS else (True, False)


@lru_cache(maxsize=PROBLEMS)
def product_of(problem: ConvProblem) -> tuple[int, int, int]:
    """Return m, n and k of one group's implicit product, the largest of several."""
    if problem.direction == "bwd_weights":
        return weights_extents(problem)
    part = _largest(problem)
    return part.channels, part.batch * part.results, part.reduction


def tiles_of(problem: ConvProblem, tile_m: int, tile_n: int) -> int:
    """Return the tiles of the products of all groups and phases.

    Args:
        problem: a convolution.
        tile_m: rows of a tile.
        tile_n: columns of a tile.
    """
    m, n, _ = product_of(problem)
    phases = 1 if problem.direction == "bwd_weights" else len(correlations(problem))
    return phases * problem.groups * ceil_div(m, tile_m) * ceil_div(n, tile_n)


def splits_of(problem: ConvProblem, limits: Limits, tile_m: int, tile_n: int) -> tuple[int, ...]:
    """Return the splits of the reduction that fill whole rounds of the compute units best, 1 first.

    Args:
        problem: a convolution.
        limits: of the device: its compute units.
        tile_m: rows of a tile.
        tile_n: columns of a tile.
    """
    return round_splits(tiles_of(problem, tile_m, tile_n), product_of(problem)[2], limits)


def best_split_of(
    problem: ConvProblem, limits: Limits, tile_m: int, tile_n: int, work_items: int
) -> int:
    """Return the slices of the reduction with which such tiles are expected to take least time.

    Args:
        problem: a convolution.
        limits: of the device: its compute units.
        tile_m: rows of a tile.
        tile_n: columns of a tile.
        work_items: of a work-group.
    """
    count = tiles_of(problem, tile_m, tile_n)
    return best_split(count, product_of(problem)[2], limits, work_items)


def _largest(problem: ConvProblem) -> Correlation:
    """Return the correlation with the most work."""
    return max(correlations(problem), key=lambda part: part.results * part.reduction)
