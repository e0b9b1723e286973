"""What each item of a result takes from a dimension: taps, as tables that kernels read.

Resizing, padding and pooled means, and all their gradients, take a weighted sum of a few items
along each dimension by itself. `axis_sums` computes them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ocl_backend.kernels.windows import Adaptive, Regular

Items = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]
Way = Literal["reflection", "replication", "circular"]
MOST_EQUAL = 4
"""Taps that a kernel has in its text; of more it asks a table where an item's begin."""


class Taps(NamedTuple):
    """Along one dimension: result `o` has the taps `begin[o]` to `begin[o + 1]`.

    Each is an item of `size` and its weight.
    """

    begin: Items
    item: Items
    weight: Weights
    size: int

    @property
    def results(self) -> int:
        """Items of the result."""
        return len(self.begin) - 1

    @property
    def equal(self) -> int:
        """Taps of each result, if all have as many and few; else 0."""
        counts = np.diff(self.begin)
        few = len(counts) > 0 and 0 < counts[0] <= MOST_EQUAL and (counts == counts[0]).all()
        return int(counts[0]) if few else 0

    @property
    def is_copy(self) -> bool:
        """Whether each result is an item."""
        return self.equal == 1 and bool((self.weight == 1).all())

    @property
    def run(self) -> tuple[int, int, int]:
        """The longest row of results that are a row of items: its begin, its end, first item."""
        single = np.diff(self.begin) == 1
        at = np.minimum(self.begin[:-1], max(len(self.item) - 1, 0))
        if not len(self.item):
            return 0, 0, 0
        single &= self.weight[at] == 1
        shift = np.where(single, self.item[at] - np.arange(len(single)), np.iinfo(np.int64).min)
        cuts = np.flatnonzero(np.diff(shift)) + 1
        begins, ends = np.r_[0, cuts], np.r_[cuts, len(shift)]
        lengths = np.where(single[begins], ends - begins, 0)
        best = int(lengths.argmax())
        if not lengths[best]:
            return 0, 0, 0
        return int(begins[best]), int(ends[best]), int(self.item[at[begins[best]]])

    def transposed(self) -> Taps:
        """Return those of the gradient: each item takes from the results that took it."""
        results = np.repeat(np.arange(self.results), np.diff(self.begin))
        order = np.argsort(self.item, kind="stable")
        begin = np.searchsorted(self.item[order], np.arange(self.size + 1))
        return Taps(begin, results[order], self.weight[order], self.results)


def same(size: int) -> Taps:
    """Return the taps of a dimension that stays as it is."""
    return _single(np.arange(size), size)


def _single(item: Items, size: int) -> Taps:
    return Taps(np.arange(len(item) + 1), item, np.ones(len(item)), size)


def nearest(size: int, out: int, factor: float | None, shift: float, exact: bool) -> Taps:
    """Return the taps of resizing by copies, in the CPU's arithmetic.

    Args:
        size: of the image's dimension.
        out: of the result's.
        factor: the scale that was asked for.
        shift: 0.5: an item is the one where its middle lies; 0: where its begin does.
        exact: in float64 rather than float32.
    """
    real = np.dtype(np.float64 if exact else np.float32)
    scale = np.array(1 / factor if factor and factor > 0 else size / out, real)
    at = np.arange(out).astype(real) + np.array(shift, real)
    return _single(np.minimum(np.floor(at * scale).astype(np.int64), size - 1), size)


def interpolated(size: int, out: int, reach: int, scale: float, align: bool) -> Taps:
    """Return the taps of linear (a reach of 1) or cubic (2) interpolation.

    Items beyond the border are those at it.

    Args:
        size: of the image's dimension.
        out: of the result's.
        reach: items on either side of a position.
        scale: step between items of the result, in items of the image.
        align: the middles of the outermost items stay.
    """
    rows = np.arange(out, dtype=np.float64)
    position = rows * scale if align else (rows + 0.5) * scale - 0.5
    if reach == 1:
        position = np.maximum(position, 0.0)
    base = np.minimum(np.floor(position), size - 1)
    part = np.minimum(position - base, 1.0)
    steps = np.arange(1 - reach, reach + 1)
    away = np.abs(steps[None, :] - part[:, None])
    weight = np.maximum(0.0, 1 - away) if reach == 1 else _cubic(away)
    item = np.clip(base.astype(np.int64)[:, None] + steps, 0, size - 1)
    begin = np.arange(out + 1) * len(steps)
    return Taps(begin, item.reshape(-1), weight.reshape(-1), size)


def _cubic(x: Weights, a: float = -0.75) -> Weights:
    """Return Keys's cubic convolution kernel of distances (doi:10.1109/TASSP.1981.1163711)."""
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, inner, np.where(x < 2, outer, 0.0))


def padded(size: int, before: int, after: int, way: Way) -> Taps:
    """Return the taps of a padding by items of the dimension.

    Args:
        size: of the dimension.
        before: items that are added at its begin; negative: cut off.
        after: the same at its end.
        way: whether they are reflected, those at the border, or those from the other end.
    """
    at = np.arange(-before, size + after)
    if way == "circular":
        return _single(at % size, size)
    if way == "reflection":
        at = np.abs(at)
        at = (size - 1) - np.abs(size - 1 - at)
    return _single(np.clip(at, 0, size - 1), size)


def means(windows: Regular | Adaptive, size: int, out: int, divisor: int = 0) -> Taps:
    """Return the taps of means of windows.

    Args:
        windows: along the dimension.
        size: of it.
        out: windows.
        divisor: of all means; 0: a window's items.
    """
    first, last, count = (part.numpy() for part in windows.bounds(size, out))
    step = windows.dilation
    counts = np.maximum(0, -(-(last - first) // step))
    begin = np.r_[0, np.cumsum(counts)]
    within = np.arange(begin[-1]) - np.repeat(begin[:-1], counts)
    weight = np.ones(out) / divisor if divisor else 1 / np.maximum(count, 1)
    return Taps(begin, np.repeat(first, counts) + within * step, np.repeat(weight, counts), size)
