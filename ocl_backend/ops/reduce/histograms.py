"""Histograms over one and more dimensions, by looking every item up among the bins' edges.

Counting of whole numbers, which needs no edges, is `decompositions.bincount`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.kernels.binning import binned, ends
from ocl_backend.kernels.scatter import NARROW

Range = Sequence[float] | None
HISTC_RANGE = "torch.histc: range of"


def bin_range(x: Tensor, span: Range, dim: int = 0) -> tuple[float, float]:
    """Return the first and the last edge, of `span`, or of the items, which are waited for.

    Args:
        x: the items.
        span: the first and the last edge, or None.
        dim: the dimension that an error names.

    Raises:
        RuntimeError: the span is not finite, or ends before it begins.
    """
    if span is not None:
        low, high = span
    elif x.numel():
        low, high = ends(x)
    else:
        low, high = 0.0, 1.0
    _finite(low, high, f"torch.histogramdd: dimension {dim}'s range")
    if low > high:
        raise RuntimeError("torch.histogram(): max must be larger than min")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def bin_edges(x: Tensor, bins: int, low: float, high: float) -> Tensor:
    """Return bins + 1 edges from `low` to `high`, in x's dtype and on its device."""
    edges = torch.linspace(low, high, bins + 1, dtype=x.dtype, device=x.device)
    edges[-1] = high  # rounding must not leave the largest item outside
    return edges


def counted(x: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """Return how many rows of x [rows, dims] fall into each bin, or their weights' sums.

    A bin takes in its left edge, and the last one its right edge too.
    """
    sizes = [len(edge) - 1 for edge in edges]
    place = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    inside = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for dim, (edge, size) in enumerate(zip(edges, sizes, strict=True)):
        items = x[:, dim].contiguous()
        inside &= (items >= edge[0]) & (items <= edge[-1])
        found = torch.searchsorted(edge.contiguous(), items, right=True) - 1
        place = place * size + found.clamp(0, size - 1)
    place.masked_fill_(~inside, -1)
    total = binned(place, prod(sizes), "own", 0, prod(sizes) - 1, _row_of(weight))
    total = total.to(x.dtype).view(sizes)
    return _dense(total, edges) if density else total


def _row_of(weight: Tensor | None) -> Tensor | None:
    """Return weights as one row, of at least 4 bytes each."""
    return None if weight is None else weight.reshape(-1).to(NARROW.get(weight.dtype, weight.dtype))


def _dense(total: Tensor, edges: Sequence[Tensor]) -> Tensor:
    """Return `total` over its sum and over what its bins extend."""
    total = total / total.sum()
    for dim, edge in enumerate(edges):
        total /= edge.diff().view([-1 if d == dim else 1 for d in range(total.dim())])
    return total


def histogram(
    x: Tensor,
    bins: int = 100,
    *,
    range: Range = None,  # noqa: A002 (the schema's name)
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the histogram of all items over equal bins, and the bins' edges."""
    low, high = bin_range(x, range)
    edges = bin_edges(x, bins, low, high)
    total = binned(x, bins, "edges", low, high, _row_of(weight), edges).to(x.dtype)
    return _dense(total, [edges]) if density else total, edges


def histogram_between(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the histogram of all items between the edges `bins`, and those."""
    return counted(x.reshape(-1, 1), [bins], weight, density), bins.clone()


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:  # noqa: A002
    """Return the histogram of all items over equal bins from `min` to `max`, in x's dtype.

    If the two are equal, the smallest and the largest item take their place. Integers are counted
    as on CUDA: `min` and `max` are truncated, and item i belongs to bin
    floor((i - min) * bins / (max - min)), the largest item to the last one.

    Raises:
        RuntimeError: no bins, bounds that are not finite, or `max` below `min`.
        NotImplementedError: x is of bools.
    """
    if bins <= 0:
        raise RuntimeError(f"torch.histc(): bins must be > 0, but got {bins}")
    if x.dtype is torch.bool:
        raise NotImplementedError("\"histc\" not implemented for 'Bool'; give x.to(torch.uint8)")
    low, high = min, max
    if low == high and x.numel():
        low, high = ends(x)
    _finite(low, high, HISTC_RANGE)
    if not x.is_floating_point():
        low, high = int(low), int(high)
    if low == high:
        low, high = low - 1, high + 1
    if low > high:
        raise RuntimeError(f"torch.histc(): max must be larger than min, but got {low} and {high}")
    if not x.is_floating_point() and (high - low) * bins >= 1 << 63:
        raise RuntimeError(
            f"torch.histc(): {bins} bins from {low} to {high} exceed int64; give fewer, or floats"
        )
    return binned(x, bins, "equal", low, high).to(x.dtype)


def _finite(low: float, high: float, noun: str) -> None:
    """Refuse bounds that are not finite; an error calls them `noun`.

    Raises:
        RuntimeError: one is not.
    """
    if not (abs(low) < torch.inf and abs(high) < torch.inf):
        raise RuntimeError(f"{noun} [{low:g}, {high:g}] is not finite")


def edges_of_dims(
    x: Tensor,
    bins: Sequence[int],
    *,
    range: Range = None,  # noqa: A002 (the schema's name)
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    """Return the edges of equal bins along every column of x [..., dims]."""
    del weight, density
    if len(bins) != x.shape[-1]:
        raise RuntimeError(f"histogramdd: {len(bins)} numbers of bins for {x.shape[-1]} columns")
    rows = x.reshape(-1, x.shape[-1])
    spans = [None] * len(bins) if range is None else list(zip(range[::2], range[1::2], strict=True))
    return [
        bin_edges(rows, size, *bin_range(rows[:, dim], span, dim))
        for dim, (size, span) in enumerate(zip(bins, spans, strict=True))
    ]


def histogram_of_dims(
    x: Tensor,
    bins: Sequence[int],
    *,
    range: Range = None,  # noqa: A002 (the schema's name)
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    """Return the histogram of the rows of x [..., dims] over equal bins."""
    rows = x.reshape(-1, x.shape[-1])
    return counted(rows, edges_of_dims(x, bins, range=range), weight, density)


def histogram_of_dims_between(
    x: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """Return the histogram of the rows of x [..., dims] between the edges `bins`."""
    return counted(x.reshape(-1, x.shape[-1]), bins, weight, density)


OPERATORS: dict[str, Callable[..., Any]] = {
    "histc": histc,
    "histc.out": into(histc),
    "histogram.bin_ct": histogram,
    "histogram.bin_ct_out": into(histogram, "hist", "bin_edges"),
    "histogram.bins_tensor": histogram_between,
    "histogram.bins_tensor_out": into(histogram_between, "hist", "bin_edges"),
    "_histogramdd_bin_edges": edges_of_dims,
    "_histogramdd_from_bin_cts": histogram_of_dims,
    "_histogramdd_from_bin_tensors": histogram_of_dims_between,
}
"""Implementations by aten name."""
