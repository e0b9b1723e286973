"""`masked_fill` out of place by one launch: torch would copy its operand, then fill the copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.kernels.dimensions import broadcast_shapes
from ocl_backend.ops.math.pointwise import implementation
from ocl_backend.ops.math.pointwise_kernels import Call

_filled = implementation(Call.of("masked_fill", torch.ops.aten.masked_fill.Scalar))


def masked_fill(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """Return x with `value` where `mask` holds, both broadcast; the result is contiguous."""
    shape = broadcast_shapes(x.shape, mask.shape)
    is_plain = tuple(x.shape) == shape and x.is_contiguous() and x.is_floating_point()
    if is_plain and mask.dtype is torch.bool and mask.is_contiguous() and mask.device == x.device:
        return _filled(x, mask, value)
    return x.expand(shape).clone(memory_format=torch.contiguous_format).masked_fill_(mask, value)


OPERATORS: dict[str, Callable[..., Any]] = {"masked_fill.Scalar": masked_fill}
"""Implementations by aten name."""
