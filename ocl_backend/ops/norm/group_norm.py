"""Group normalisation, forward and backward: sums of each group, then one kernel.

Images are read and written as they lie, in planes or channels last, and computed with as floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, launch
from ocl_backend.kernels.memory_formats import arranged, in_pixels
from ocl_backend.kernels.reduction_kernels import Reduction
from ocl_backend.ops.norm import group_norm_planes
from ocl_backend.ops.norm.group_norm_planes import Planes
from ocl_backend.ops.reduce.reductions import SUM, mean, reduce
from ocl_backend.ops.reduce.variances import VARIANCE

DOT = Reduction("dot", "a + b", "0", "x * y")
"""The sum of products with another tensor."""


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


def _spread(numbers: Tensor, shape: tuple[int, ...], last: bool) -> Tensor:
    """Return groups' numbers one for each channel where channels lie last, which are then lanes."""
    return numbers.expand(*shape[:3], 1).contiguous() if last else numbers


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
    kinds = tuple(None if f is None else f.dtype for f in (weight, bias))
    if planes := _planes(x, last, kinds, (batch, groups, channels // groups, pixels), eps):
        return group_norm_planes.forward(planes, x, weight, bias)
    y = torch.empty_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    shape = (batch, groups, channels // groups, pixels)
    rows, results = _groups(x, shape, last), _groups(y, shape, last)
    if last:  # pixels first: channels, which lie together, are then lanes
        center = mean(mean(rows, (3,), True, dtype=wide), (2,), True)
        each = _spread(center, shape, last)
        variance = reduce(VARIANCE, rows, (3,), True, wide, center=each, correction=0)
        variance = mean(variance, (2,), True)
    else:
        center = mean(rows, (2, 3), True, dtype=wide)
        variance = reduce(VARIANCE, rows, (2, 3), True, wide, center=center, correction=0)
    scale = (variance + eps).rsqrt()
    factors = [f.view(groups, -1, 1) for f in (weight, bias) if f is not None]
    if x.numel():
        each, scales = (_spread(t, shape, last) for t in (center, scale))
        given = [rows, each, scales, *factors, results]
        launch(_kernel(x.dtype, wide, kinds), rows.shape, given)
    return y, center.view(batch, groups).to(x.dtype), scale.view(batch, groups).to(x.dtype)


def _planes(
    x: Tensor, last: bool, given: tuple[torch.dtype | None, ...],
    sizes: tuple[int, int, int, int], eps: float = 0.0,
) -> Planes | None:  # fmt: skip
    """Return what one launch normalises; None: others do.

    Args:
        x: dense.
        last: whether channels lie last.
        given: dtypes of weight and bias.
        sizes: batch, groups, channels of each, and pixels.
        eps: is added to variances.
    """
    planes = Planes(x.get_device(), x.dtype, (given[0], given[1]), *sizes, eps)
    return planes if not last and x.numel() and group_norm_planes.serves(planes) else None


@cache
def _backward_kernel(dtype: torch.dtype, wide: torch.dtype) -> Kernel:
    names = "slope", "part", "shift"
    return Kernel(
        "group_norm_backward",
        dtype_of(wide).value,
        (
            Operand("grad", dtype),
            Operand("x", dtype),
            *(Operand(name, wide) for name in names),
            Operand("grad_x", dtype, "output", "", "result"),
        ),
        "const T result = grad * slope + x * part + shift;",
    )


def native_group_norm_backward(
    grad: Tensor, x: Tensor, center: Tensor, scale: Tensor, weight: Tensor | None, batch: int,
    channels: int, pixels: int, groups: int, output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of x, weight and bias that `output_mask` asks for.

    `center` and `scale` are what the forward pass returned: NaN where there are no pixels, which
    makes the weight's gradient NaN, as on the CPU.
    """
    param = x.dtype if weight is None else weight.dtype
    last = in_pixels(x)
    x, grad = (arranged(each.view(x.shape), last) for each in (x, grad))
    wide = torch.promote_types(x.dtype, torch.float32)
    shape = (batch, groups, channels // groups, pixels)
    if planes := _planes(x, last, (None if weight is None else weight.dtype, None), shape):
        tensors = grad, x, center, scale, weight
        return group_norm_planes.backward(planes, tensors, param, output_mask)
    rows, grads = _groups(x, shape, last), _groups(grad, shape, last)
    sums = reduce(SUM, grads, (3,), True, wide)
    dots = reduce(DOT, grads, (3,), True, wide, other=rows)
    center, scale = (each.view(batch, groups, 1, 1).to(wide) for each in (center, scale))
    grad_x = None
    if output_mask[0]:
        factor = None if weight is None else weight.to(wide).view(1, groups, -1, 1)
        each = sums, dots
        total, dot = (t.sum(2, True) if factor is None else (t * factor).sum(2, True) for t in each)
        mean_slope = scale / (shape[2] * pixels)
        part = (total * center - dot) * scale * scale * mean_slope
        shift = -part * center - total * mean_slope
        slope = scale if factor is None else scale * factor
        grad_x = torch.empty_like(x)
        numbers = (_spread(t, shape, last) for t in (slope, part, shift))
        given = [grads, rows, *numbers, _groups(grad_x, shape, last)]
        if x.numel():
            launch(_backward_kernel(x.dtype, wide), rows.shape, given)
    of_weight = of_bias = None
    if output_mask[1]:
        of_weight = ((dots - sums * center) * scale).sum(0).view(channels).to(param)
    if output_mask[2]:
        of_bias = sums.sum(0).view(channels).to(param)
    return grad_x, of_weight, of_bias


OPERATORS: dict[str, Callable[..., Any]] = {
    "native_group_norm": native_group_norm,
    "native_group_norm_backward": native_group_norm_backward,
}
"""Implementations by aten name."""
