"""Operands of `conv_gemm` and `conv_async` as text: where the product's A, B and C lie in memory.

It knows sizes and tiles; the product itself, its parameters and their rule are the family's. Texts
here are for images in planes; those for images in channels_last are `conv_gemm_pixels`'.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any, Literal, NamedTuple

from oclgen.families.conv.correlation import (
    Correlation,
    correlations,
    operands,
    reads_in_place,
    windows,
)
from oclgen.families.parts import packing
from oclgen.families.parts.expressions import defines
from oclgen.families.parts.packing import PACKED
from oclgen.plan import LazyText, ceil_div, round_up
from oclgen.problem import ConvProblem
from oclgen.render import render

OUTSIDE = -1_000_000_000
"""A place that no tap brings back into an image."""
LOAD_WIDTHS = (4, 2, 1)
"""Elements per load of packed weights, widest first: 128 bits is what GPUs load at once."""
QUAD = 4
"""Words that `cp.async` copies at once, if they are aligned."""
Sizes = dict[str, int]
Texts = dict[str, int | str]
"""Sizes by name as templates have them: of a free batch text, in which BATCH is an argument."""


class Tiles(NamedTuple):
    """The parameters that operands depend on: tile, work-items that load it, order of k, and how.

    `copied` says that loads are `cp.async`, straight into local memory.
    """

    m: int
    n: int
    k: int
    work_items: int
    taps_outer: bool
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Product:
    """C [m, n] = A [m, k] B [k, n] of each group and phase, as text; m and n are the largest.

    `a_type` is the type of A's elements. From any multiple of `run` on, `run` columns of C (rows
    where `along` says so) are neighbours in memory. `wide` names the caller's operands of which
    `QUAD` neighbours are copied at once, if they are aligned.
    """

    m: int
    n: int
    phases: int
    text: LazyText
    a_type: str
    run: int
    wide: str = ""
    along: Literal["n", "m"] = "n"

    def runs(self, width: int) -> bool:
        """Say whether chunks of `width` columns, or rows, are neighbours in C."""
        return width > 1 and self.run % width == 0


def width_a(tiles: Tiles) -> int | None:
    """Return how many packed weights a work-item loads at once, None if tiles do not divide."""
    for width in LOAD_WIDTHS:
        chunk = tiles.work_items * width
        even = chunk % tiles.m == 0 or tiles.m % chunk == 0
        if even and tiles.m % width == 0 and tiles.m * tiles.k % chunk == 0:
            return width
    return None


def copiers(work_items: int, across: int, down: int) -> int:
    """Return how many work-items share a tile of `down` rows of `across` loads in whole rows.

    Where a row has more loads than there are work-items, each takes the same number of them.

    Args:
        work_items: of the work-group.
        across: loads of a row of the tile.
        down: rows of the tile.

    Returns:
        At most `work_items`: a divisor of `across`, or `across` times a divisor of `down`.
    """
    if across > work_items:
        loads = next(
            count
            for count in range(2, across + 1)
            if across % count == 0 and across // count <= work_items
        )
        return across // loads
    rows = work_items // across
    return across * next(count for count in range(rows, 0, -1) if down % count == 0)


def width_b(problem: ConvProblem, tiles: Tiles) -> int:
    """Return how many columns of x a work-item loads at once: neighbours that stay together."""
    parts = [part for part in phases(problem) if part.reduction]
    together = all(reads_in_place(part) and part.results % QUAD == 0 for part in parts)
    return QUAD if tiles.copied and tiles.taps_outer and tiles.n % QUAD == 0 and together else 1


def along_k(problem: ConvProblem) -> bool:
    """Say whether neighbours of what is gathered are steps of k: copies of it turn."""
    return (problem.layout == "nchw") == (problem.direction == "bwd_weights")


def columns_grow(problem: ConvProblem) -> bool:
    """Say whether C has columns of a free batch; the gradient of the weights sums over it."""
    return bool(problem.free) and problem.direction != "bwd_weights"


def role_a(problem: ConvProblem) -> str:
    """Return the buffer that holds A: what is given, or weights that are packed first."""
    return operands(problem)[0] if problem.direction == "bwd_weights" else PACKED


@lru_cache(maxsize=64)
def phases(problem: ConvProblem) -> tuple[Correlation, ...]:
    """Return the problem's correlations, those with most taps first: they take longest."""
    return tuple(sorted(correlations(problem), key=lambda part: -part.reduction))


def k_padded(part: Correlation, tiles: Tiles) -> int:
    """Return the length of k in whole tiles; where taps are outer, each tap has whole tiles."""
    if tiles.taps_outer:
        return part.rows.taps * part.cols.taps * round_up(part.depth, tiles.k)
    return round_up(part.reduction, tiles.k)


def packed_elements(part: Correlation, tiles: Tiles) -> int:
    """Return the floats of a correlation's packed weights."""
    return part.groups * packing.packed_elements(part.channels, k_padded(part, tiles), tiles.m)


def of_correlations(problem: ConvProblem, tiles: Tiles) -> Product:
    """Return the product of a problem that is made of correlations, with packed weights."""
    parts = phases(problem)
    columns_at_once = width_b(problem, tiles)

    @LazyText
    def text() -> str:
        return render(
            "conv_gemm_correlation",
            free=bool(problem.free),
            sizes=size_text(problem, tiles),
            tables={} if tiles.taps_outer else _tables(problem, tiles),
            taps_outer=tiles.taps_outer,
            one_tap=all(part.rows.taps * part.cols.taps <= 1 for part in parts),
            checked=not all(part.inside for part in parts),
            ragged=tiles.taps_outer and parts[0].depth % tiles.k > 0,
            full=all(part.reduction % tiles.k == 0 for part in parts),
            copied=tiles.copied,
            width_a=QUAD if tiles.copied else width_a(tiles),
            width_b=columns_at_once,
            tile_n=tiles.n,
            work_items=tiles.work_items,
            copiers_a=loading(tiles, tiles.m // QUAD, tiles.k),
            copiers_b=loading(tiles, tiles.n // columns_at_once, tiles.k),
        )

    whole = all(part.rows.whole and part.cols.whole for part in parts)
    columns = max(part.batch * part.results for part in parts)
    run = parts[0].results if whole else 1
    wide = "b" if columns_at_once > 1 else ""
    return Product(parts[0].channels, columns, len(parts), text, "float", run, wide)


def of_weights(problem: ConvProblem, tiles: Tiles) -> Product:
    """Return the product that is the gradient of the weights."""
    m, n, _ = weights_extents(problem)

    @LazyText
    def text() -> str:
        return render(
            "conv_gemm_weights",
            **weights_values(problem, tiles),
            copiers_a=loading(tiles, tiles.k, tiles.m),
            copiers_b=loading(tiles, tiles.k, tiles.n),
        )

    return Product(m, n, 1, text, "elem_t", n)


def weights_values(problem: ConvProblem, tiles: Tiles) -> dict[str, Any]:
    """Return the values that the templates of gradients of weights share in both layouts."""
    return {
        "free": bool(problem.free),
        "sizes": defines([weights_sizes(problem, tiles)]),
        "checked": not windows(problem).inside,
        "strung": reads_in_place(windows(problem)),
        "full": weights_extents(problem)[0] % tiles.m == 0,
        "copied": tiles.copied,
        "work_items": tiles.work_items,
    }


def loading(tiles: Tiles, across: int, down: int) -> int:
    """Return how many work-items load an operand: all, except for `cp.async` as many as share it.

    Args:
        tiles: the tile, its work-items, and whether `cp.async` loads it.
        across: loads of a row of the tile.
        down: rows of the tile.
    """
    return copiers(tiles.work_items, across, down) if tiles.copied else tiles.work_items


def weights_extents(p: ConvProblem) -> tuple[int, int, int]:
    """Return m, n and k of the gradient of the weights, per group."""
    taps = p.kernel_h * p.kernel_w
    return p.out_channels // p.groups, p.in_channels // p.groups * taps, p.batch * p.out_h * p.out_w


def index_type(problem: ConvProblem) -> str:
    """Return the type that holds any element's index: int where no buffer is longer."""
    elements = (prod(shape) for shape in problem.buffers.values())
    return "int" if max(elements) < 2**31 else "long"


def size_text(problem: ConvProblem, tiles: Tiles) -> str:
    """Return the sizes of every phase as macros."""
    columns = {"N": "(BATCH * (RESULTS_H * RESULTS_W))"} if problem.free else {}
    return defines([{**sizes, **columns} for sizes in phase_sizes(problem, tiles)])


def phase_sizes(problem: ConvProblem, tiles: Tiles) -> list[Sizes]:
    """Return the sizes of every phase by name."""
    parts = phases(problem)
    packed = accumulate((packed_elements(part, tiles) for part in parts), initial=0)
    table = accumulate((k_padded(part, tiles) for part in parts), initial=0)
    return [
        _correlation_sizes(part, tiles) | {"PACKED_FIRST": packed_first, "TABLE_FIRST": first}
        for part, packed_first, first in zip(parts, packed, table, strict=False)
    ]


def _tables(problem: ConvProblem, tiles: Tiles) -> dict[str, list[int]]:
    """Return by k what a step adds to a column's index, row and column; phases in a row."""
    index, down, across = [], [], []
    for part in phases(problem):
        rows, cols = part.rows, part.cols
        for k in range(part.reduction):
            channel, tap = divmod(k, rows.taps * cols.taps)
            down.append(tap // cols.taps * rows.tap_step)
            across.append(tap % cols.taps * cols.tap_step)
            index.append(channel * rows.read * cols.read + down[-1] * cols.read + across[-1])
        beyond = k_padded(part, tiles) - part.reduction
        index += [0] * beyond
        down += [OUTSIDE] * beyond
        across += [OUTSIDE] * beyond
    return {"STEP_INDEX": index, "STEP_H_OF": down, "STEP_W_OF": across}


def weights_sizes(p: ConvProblem, tiles: Tiles) -> Texts:
    """Return the sizes of the gradient of the weights."""
    m, n, k = weights_extents(p)
    return {
        "M": m, "N": n, "K": "(BATCH * (OUT_H * OUT_W))" if p.free else k,
        "GROUPS": p.groups, "DEPTH": p.in_channels // p.groups,
        "HEIGHT": p.height, "WIDTH": p.width, "OUT_H": p.out_h, "OUT_W": p.out_w,
        "KERNEL_H": p.kernel_h, "KERNEL_W": p.kernel_w,
        "STRIDE_H": p.stride_h, "STRIDE_W": p.stride_w, "PAD_H": p.pad_h, "PAD_W": p.pad_w,
        "DILATION_H": p.dilation_h, "DILATION_W": p.dilation_w,
        "STEPS": "((K + TILE_K - 1) / TILE_K)" if p.free else ceil_div(k, tiles.k),
    }  # fmt: skip


def _correlation_sizes(part: Correlation, tiles: Tiles) -> Sizes:
    length = k_padded(part, tiles)
    return part.axis_sizes() | {
        "M": part.channels, "N": part.batch * part.results, "K": part.reduction,
        "STEPS": length // tiles.k, "K_PADDED": length,
        "M_PADDED": round_up(part.channels, tiles.m),
        "GROUPS": part.groups, "DEPTH": part.depth,
        "DEPTH_PADDED": round_up(part.depth, tiles.k), "KERNEL_W": part.kernel_w,
        "WEIGHT_OUT": part.weight_out, "WEIGHT_IN": part.weight_in,
        "WEIGHT_GROUP": part.weight_group,
    }  # fmt: skip
