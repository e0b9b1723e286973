"""Resizing that is a product with a matrix per dimension: antialiased, and bicubic's gradient.

Every row of a matrix holds the weights of one output item, so a gradient is the product with the
transposed one. The other ways to resize are torch's decompositions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import floor
from typing import Any, Literal

import torch
from torch import Tensor

from ocl_backend.runtime import capture

Filter = Literal["cubic", "triangle", "wide cubic"]
"""`cubic` takes the four items around a position; the others widen where they shrink an image."""


def cubic(x: float, a: float) -> float:
    """Return Keys's cubic convolution kernel (doi:10.1109/TASSP.1981.1163711)."""
    x = abs(x)
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


@lru_cache(maxsize=256)
@capture.aside()
def weights(
    name: Filter, size: int, out: int, align: bool, factor: float | None, device: torch.device
) -> Tensor:
    """Return the [out, size] matrix of float32 that resizes `size` items to `out`.

    `align` keeps the middles of the outermost items; `factor` is the scale that was asked for.
    """
    if align:
        scale = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        scale = 1 / factor if factor else size / out
    matrix = torch.zeros((out, size), dtype=torch.float64)
    for row in range(out):
        taps = _near(row, size, scale, align) if name == "cubic" else _wide(name, row, size, scale)
        for item, weight in taps:
            matrix[row, item] += weight
    return matrix.to(torch.float32).to(device)


def _near(row: int, size: int, scale: float, align: bool) -> list[tuple[int, float]]:
    """Return the four items around a row's position, held at the border, with their weights."""
    position = row * scale if align else (row + 0.5) * scale - 0.5
    base = floor(position)
    around = range(base - 1, base + 3)
    return [(min(max(at, 0), size - 1), cubic(position - at, -0.75)) for at in around]


def _wide(name: Filter, row: int, size: int, scale: float) -> list[tuple[int, float]]:
    """Return the items under a filter as wide as the step between rows, weights adding up to 1."""
    stretch = max(scale, 1.0)
    reach = (1 if name == "triangle" else 2) * stretch
    center = scale * (row + 0.5)
    first = max(int(center - reach + 0.5), 0)
    last = min(int(center + reach + 0.5), size)
    distances = [(item + 0.5 - center) / stretch for item in range(first, last)]
    if name == "triangle":
        parts = [max(0.0, 1 - abs(distance)) for distance in distances]
    else:
        parts = [cubic(distance, -0.5) for distance in distances]
    total = sum(parts) or 1.0
    return [(first + k, part / total) for k, part in enumerate(parts)]


def _matrices(
    name: Filter,
    sizes: Sequence[int],
    outs: Sequence[int],
    align: bool,
    factors: Sequence[float | None],
    like: Tensor,
) -> list[Tensor]:
    given = [*factors, None, None][:2]
    return [
        weights(name, size, out, align, factor, like.device).to(like.dtype)
        for size, out, factor in zip(sizes, outs, given, strict=True)
    ]


def _applied(rows: Tensor, x: Tensor, columns: Tensor) -> Tensor:
    """Return rows · x · columns for every plane of x [batch, channels, h, w]."""
    return torch.matmul(rows, torch.matmul(x, columns))


def _forward(name: Filter) -> Callable[..., Tensor]:
    def forward(
        x: Tensor, output_size: Sequence[int], align: bool, *factors: float | None, out: Tensor
    ) -> Tensor:
        values = x.float() if x.dtype is torch.uint8 else x
        if not values.is_floating_point():
            raise RuntimeError(
                f"antialiased resizing is not implemented for {x.dtype}; use floats or bytes"
            )
        rows, columns = _matrices(name, x.shape[2:], output_size, align, factors, values)
        result = _applied(rows, values, columns.T)
        return out.copy_(result if values is x else result.round().clamp(0, 255))

    return forward


def _backward(name: Filter) -> Callable[..., Tensor]:
    def backward(
        grad: Tensor,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align: bool,
        *factors: float | None,
        grad_input: Tensor,
    ) -> Tensor:
        rows, columns = _matrices(name, input_size[2:], output_size, align, factors, grad)
        return grad_input.copy_(_applied(rows.T, grad, columns))

    return backward


OPERATORS: dict[str, Callable[..., Any]] = {
    "upsample_bicubic2d_backward.grad_input": _backward("cubic"),
    "_upsample_bilinear2d_aa.out": _forward("triangle"),
    "_upsample_bilinear2d_aa_backward.grad_input": _backward("triangle"),
    "_upsample_bicubic2d_aa.out": _forward("wide cubic"),
    "_upsample_bicubic2d_aa_backward.grad_input": _backward("wide cubic"),
}
"""Implementations by aten name."""
