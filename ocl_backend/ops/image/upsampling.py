"""Antialiased resizing, which is a product with a matrix per dimension.

Every row of a matrix holds the weights of one output item, so a gradient is the product with the
transposed one. The other ways to resize are `resizing`'s; bytes are `byte_resizing`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.ops.image import byte_resizing, resizing
from ocl_backend.ops.image.filters import Shape, scale_of, wide
from ocl_backend.runtime import capture
from ocl_backend.runtime.tables import as_table

Filter = Literal["triangle", "wide cubic"]
"""They widen where they shrink an image."""
SHAPES: dict[Filter, Shape] = {"triangle": "linear", "wide cubic": "cubic"}


@lru_cache(maxsize=256)
@capture.aside()
def weights(
    name: Filter,
    size: int,
    out: int,
    align: bool,
    factor: float | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Return the [out, size] matrix that resizes `size` items to `out`.

    `align` keeps the middles of the outermost items; `factor` is the scale that was asked for.
    Weights are rounded from float64, so that images of doubles lose nothing.
    """
    scale = scale_of(size, out, align, factor)
    matrix = torch.zeros((out, size), dtype=torch.float64)
    for row in range(out):
        first, taps = wide(SHAPES[name], row, size, scale)
        matrix[row, first : first + len(taps)] = torch.tensor(taps, dtype=torch.float64)
    return as_table(matrix.to(dtype).to(device))


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
        weights(name, size, out, align, factor, like.dtype, like.device)
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


def _between(shape: Shape) -> Callable[..., Tensor]:
    """Return a way to resize by the items around a position, with whole numbers for bytes."""
    reach = 1 if shape == "linear" else 2

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
        return resizing.interpolated(x, output_size, align_corners, *factors, reach=reach)

    return forward


BILINEAR = _between("linear")
BICUBIC = _between("cubic")

OPERATORS: dict[str, Callable[..., Any]] = {
    **resizing.operators(),
    "upsample_bilinear2d": BILINEAR,
    "upsample_bilinear2d.out": into(BILINEAR),
    "upsample_bicubic2d": BICUBIC,
    "upsample_bicubic2d.out": into(BICUBIC),
    "_upsample_bilinear2d_aa.out": _forward("triangle"),
    "_upsample_bilinear2d_aa_backward.grad_input": _backward("triangle"),
    "_upsample_bicubic2d_aa.out": _forward("wide cubic"),
    "_upsample_bicubic2d_aa_backward.grad_input": _backward("wide cubic"),
}
"""Implementations by aten name."""
