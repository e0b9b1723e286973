"""Which calls of torch's `rms_norm` are one launch, above autograd.

torch composes it of squares, means and products, except on devices that it knows by name. Few rows
without gradients stay composed: loose chains take those operators with what stands beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.composite import COMPOSED, are_plain, is_transformed

SERVED = torch.float32, torch.float16, torch.bfloat16, torch.float64

FEW_ROWS = 64
"""Rows of tokens, whose chain of operators is one launch with the products behind it."""

_libraries: list[Any] = []


def register() -> None:
    """Let `rms_norm` serve torch's operator on the device, with autograd or without."""
    library: Any = torch.library.Library  # torch types neither the class nor its methods
    _libraries.append(library("aten", "IMPL"))
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        _libraries[0].impl("rms_norm", rms_norm, key)


def rms_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Return x [..., *normalized_shape] over the root of the mean of its rows' squares.

    Args:
        x: floats.
        normalized_shape: of a row: x's last dimensions.
        weight: of that shape, or None.
        eps: is added to the mean; None: that of float32, of float64 for doubles.
    """
    if _is_served(x, normalized_shape, weight):
        result: Tensor = torch.ops.aten._fused_rms_norm(x, normalized_shape, weight, eps)[0]
        return result
    composed: Tensor = torch.ops.aten.rms_norm.default._op_dk(
        COMPOSED, x, normalized_shape, weight, eps
    )
    return composed


def _is_served(x: Tensor, shape: Sequence[int], weight: Tensor | None) -> bool:
    """Say whether one kernel computes a call, and is faster than a chain of operators."""
    given = [x] if weight is None else [x, weight]
    if not are_plain(given) or is_transformed():
        return False
    if x.dtype not in SERVED or any(t.device != x.device or t.dtype is not x.dtype for t in given):
        return False
    if torch.is_grad_enabled() and any(t.requires_grad for t in given):
        return True
    return x.numel() > FEW_ROWS * prod(shape)
