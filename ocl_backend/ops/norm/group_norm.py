"""Group normalisation, forward: sums of each group, then one kernel. Its gradient is torch's.

Images are read and written as they lie, in planes or channels last, and computed with as floats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, launch
from ocl_backend.kernels.memory_formats import in_pixels
from ocl_backend.ops.reduce.reductions import mean, reduce
from ocl_backend.ops.reduce.variances import VARIANCE


@cache
def _kernel(dtype: torch.dtype, wide: torch.dtype, given: tuple[torch.dtype | None, ...]) -> Kernel:
    """Return the kernel that normalises.

    Args:
        dtype: of x and the result.
        wide: of means and scales.
        given: dtypes of weight and bias, None where there are none.
    """
    names = zip(("weight", "bias"), given, strict=True)
    factors = [Operand(name, kind) for name, kind in names if kind is not None]
    weight, bias = given
    text = "(x - center) * scale" if weight is None else "(x - center) * (scale * weight)"
    text += "" if bias is None else " + bias"
    return Kernel(
        "group_norm",
        dtype_of(wide).value,
        (
            Operand("x", dtype),
            Operand("center", wide),
            Operand("scale", wide),
            *factors,
            Operand("y", dtype, "output", "", "result"),
        ),
        f"const T result = {text};",
    )


def _groups(x: Tensor, shape: tuple[int, ...], last: bool) -> Tensor:
    """Return x, contiguous or with channels last, as a view [batch, groups, channels, pixels]."""
    if not last:
        return x.view(shape)
    batch, groups, channels, pixels = shape
    flat = x.movedim(1, -1).view(batch, pixels, groups, channels)
    return flat.permute(0, 2, 3, 1)


def native_group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x normalised by group, mean and 1 / deviation [batch, groups]; channels_last is kept.

    The last two are of x's dtype.
    """
    last = in_pixels(x)
    x = x if last else x.contiguous()
    y = torch.empty_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    shape = (batch, groups, channels // groups, pixels)
    rows, results = _groups(x, shape, last), _groups(y, shape, last)
    center = mean(rows, (2, 3), True, dtype=wide)
    variance = reduce(VARIANCE, rows, (2, 3), True, wide, center=center, correction=0)
    scale = (variance + eps).rsqrt()
    factors = [f.view(groups, -1, 1) for f in (weight, bias) if f is not None]
    if x.numel():
        kinds = tuple(None if f is None else f.dtype for f in (weight, bias))
        launch(
            _kernel(x.dtype, wide, kinds), rows.shape, [rows, center, scale, *factors, results]
        )
    return y, center.view(batch, groups).to(x.dtype), scale.view(batch, groups).to(x.dtype)


OPERATORS: dict[str, Callable[..., Any]] = {"native_group_norm": native_group_norm}
"""Implementations by aten name."""
