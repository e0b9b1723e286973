"""Operands of `conv_gemm` and `conv_async` for images in channels_last, as text.

The channels of a pixel are neighbours. So copies run along the reduction where those of planes run
along the results, and the reverse. What holds for both layouts is in `conv_gemm_operands`.
"""

from __future__ import annotations

from oclgen.families.conv.conv_gemm_operands import (
    QUAD,
    Product,
    Tiles,
    loading,
    phases,
    size_text,
    weights_extents,
    weights_values,
    width_a,
)
from oclgen.plan import LazyText
from oclgen.problem import ConvProblem
from oclgen.render import render


def of_correlations(problem: ConvProblem, tiles: Tiles) -> Product:
    """Return the product of a problem that is made of correlations, with packed weights."""
    parts = phases(problem)
    lengths = [part.depth if tiles.taps_outer else part.reduction for part in parts]

    @LazyText
    def text() -> str:
        return render(
            "conv_gemm_pixels",
            free=bool(problem.free),
            sizes=size_text(problem, tiles),
            taps_outer=tiles.taps_outer,
            one_tap=all(part.rows.taps * part.cols.taps <= 1 for part in parts),
            checked=not all(part.inside for part in parts),
            ragged=any(length % tiles.k for length in lengths),
            copied=tiles.copied,
            width_a=QUAD if tiles.copied else width_a(tiles),
            work_items=tiles.work_items,
            copiers_a=loading(tiles, tiles.m // QUAD, tiles.k),
            copiers_b=loading(tiles, tiles.k, tiles.n),
        )

    rows, columns = parts[0].channels, max(part.batch * part.results for part in parts)
    return Product(rows, columns, len(parts), text, "float", run=rows, along="m")


def of_weights(problem: ConvProblem, tiles: Tiles) -> Product:
    """Return the product that is the gradient of the weights, [rows, taps and channels]."""
    m, n, _ = weights_extents(problem)
    depth = problem.in_channels // problem.groups
    width = {
        "a": QUAD if tiles.copied and m % QUAD == 0 else 1,
        "b": QUAD if tiles.copied and depth % QUAD == 0 else 1,
    }

    @LazyText
    def text() -> str:
        return render(
            "conv_gemm_pixels_weights",
            **weights_values(problem, tiles),
            width_a=width["a"],
            width_b=width["b"],
            tile_m=tiles.m,
            tile_n=tiles.n,
            copiers_a=loading(tiles, tiles.m // width["a"], tiles.k),
            copiers_b=loading(tiles, tiles.n // width["b"], tiles.k),
        )

    wide = "".join(name for name, words in width.items() if words > 1)
    return Product(m, n, 1, text, "elem_t", run=n, wide=wide)
