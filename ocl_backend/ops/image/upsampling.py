"""Resizing that is a product with a matrix per dimension: antialiased, and bicubic's gradient.

Every row of a matrix holds the weights of one output item, so a gradient is the product with the
transposed one. The other ways to resize are torch's decompositions; bytes are `byte_resizing`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import floor
from typing import Any, Literal

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from ocl_backend.dispatch.outputs import into
from ocl_backend.ops.image import byte_resizing
from ocl_backend.ops.image.byte_resizing import cubic
from ocl_backend.runtime import capture

Filter = Literal["cubic", "triangle", "wide cubic"]
"""`cubic` takes the four items around a position; the others widen where they shrink an image."""
SHAPES: dict[Filter, byte_resizing.Shape] = {"triangle": "linear", "wide cubic": "cubic"}


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
        if x.dtype is torch.uint8:
            shape = SHAPES[name]
            return out.copy_(byte_resizing.resized(x, output_size, shape, align, factors, True))
        if not x.is_floating_point():
            raise RuntimeError(
                f"antialiased resizing is not implemented for {x.dtype}; use floats or bytes"
            )
        # a dimension that keeps its size stays as it is, whatever its factor
        pairs = zip([*factors, None, None], output_size, x.shape[2:], strict=False)
        kept = [None if out_size == size else factor for factor, out_size, size in pairs]
        rows, columns = _matrices(name, x.shape[2:], output_size, align, kept, x)
        return out.copy_(_applied(rows, x, columns.T))

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


def _composed(name: str, shape: byte_resizing.Shape) -> Callable[..., Tensor]:
    """Return a way to resize that torch decomposes, with whole numbers for bytes."""
    decomposed = decomposition_table[getattr(torch.ops.aten, name).default]

    def forward(
        x: Tensor,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Tensor:
        factors = scales_h, scales_w
        if x.dtype is torch.uint8:
            return byte_resizing.resized(x, output_size, shape, align_corners, factors, False)
        if 0 in (*x.shape[2:], *output_size):
            raise RuntimeError(f"resizing of {[*x.shape]} to {[*output_size]}")
        result: Tensor = decomposed(x, output_size, align_corners, *factors)
        return result

    return forward


BILINEAR = _composed("upsample_bilinear2d", "linear")
BICUBIC = _composed("upsample_bicubic2d", "cubic")

OPERATORS: dict[str, Callable[..., Any]] = {
    "upsample_bilinear2d": BILINEAR,
    "upsample_bilinear2d.out": into(BILINEAR),
    "upsample_bicubic2d": BICUBIC,
    "upsample_bicubic2d.out": into(BICUBIC),
    "upsample_bicubic2d_backward.grad_input": _backward("cubic"),
    "_upsample_bilinear2d_aa.out": _forward("triangle"),
    "_upsample_bilinear2d_aa_backward.grad_input": _backward("triangle"),
    "_upsample_bicubic2d_aa.out": _forward("wide cubic"),
    "_upsample_bicubic2d_aa_backward.grad_input": _backward("wide cubic"),
}
"""Implementations by aten name."""
