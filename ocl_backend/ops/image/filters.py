"""What a result of resizing is made of: the items of a dimension under a filter, and their weights.

Both ways to resize take them: products with matrices (`upsampling`), and whole numbers
(`byte_resizing`).
"""

from __future__ import annotations

from math import floor
from typing import Literal

Shape = Literal["linear", "cubic"]


def cubic(x: float, a: float) -> float:
    """Return Keys's cubic convolution kernel (doi:10.1109/TASSP.1981.1163711)."""
    x = abs(x)
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def scale_of(size: int, out: int, align: bool, factor: float | None) -> float:
    """Return the step between items of the result, in items of the image.

    Args:
        size: of the image's dimension.
        out: of the result's.
        align: the middles of the outermost items stay.
        factor: the scale that was asked for.
    """
    if align:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1 / factor if factor else size / out


def near(shape: Shape, row: int, size: int, scale: float, align: bool) -> tuple[int, list[float]]:
    """Return the first of the items around a row's position, and their weights.

    Items beyond the border are those at it, whose weights add up.
    """
    position = row * scale if align else (row + 0.5) * scale - 0.5
    if shape == "linear":
        position = max(position, 0.0)
    base = min(floor(position), size - 1)
    part, reach = min(position - base, 1.0), 1 if shape == "linear" else 2
    begin = max(base - reach + 1, 0)
    weights = [0.0] * (min(base + reach + 1, size) - begin)
    for item in range(base - reach + 1, base + reach + 1):
        away = item - base - part
        weight = max(0.0, 1 - abs(away)) if shape == "linear" else cubic(away, -0.75)
        weights[min(max(item, 0), size - 1) - begin] += weight
    return begin, weights


def wide(shape: Shape, row: int, size: int, scale: float) -> tuple[int, list[float]]:
    """Return the first of the items under a filter, and their weights, which add up to 1."""
    stretch = max(scale, 1.0)
    reach = (1 if shape == "linear" else 2) * stretch
    center = scale * (row + 0.5)
    begin = max(int(center - reach + 0.5), 0)
    away = [
        (item - center + 0.5) / stretch
        for item in range(begin, min(int(center + reach + 0.5), size))
    ]
    parts = [max(0.0, 1 - abs(x)) if shape == "linear" else cubic(x, -0.5) for x in away]
    total = sum(parts) or 1.0
    return begin, [part / total for part in parts]
