"""Weights as lengths times directions, composed of reductions and products of the device.

`torch.nn.utils.parametrizations.weight_norm` calls these for lengths along the first or the last
dimension; for others torch composes the same by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into

HALVES = (torch.float16, torch.bfloat16)


def _others(v: Tensor, dim: int) -> tuple[int, ...]:
    """Return the dimensions that a length is taken over.

    Raises:
        RuntimeError: lengths are asked for along a dimension between the first and the last.
    """
    if dim not in (0, v.dim() - 1):
        raise RuntimeError(f"weight_norm: dimension {dim} of {v.dim()}; give the first or the last")
    return tuple(axis for axis in range(v.dim()) if axis != dim)


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Return v with lengths g, and the lengths that v had, float32 where g has 16 bits.

    Args:
        v: the directions, of any rank.
        g: lengths, 1 in all dimensions but `dim`.
        dim: the first or the last dimension.

    Raises:
        RuntimeError: it is another one.
    """
    kept = torch.float32 if g.dtype in HALVES else g.dtype
    norms = torch.linalg.vector_norm(v, 2, _others(v, dim), keepdim=True, dtype=kept)
    return v * (g / norms).to(v.dtype), norms


def weight_norm_backward(
    grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Return the gradients of v and of g.

    Args:
        grad: of the weights.
        v: the directions.
        g: the lengths asked for.
        norms: the lengths of v, as `weight_norm` returned them.
        dim: as `weight_norm` took it.

    Raises:
        RuntimeError: it is neither the first nor the last dimension.
    """
    along = (grad * v).sum(_others(v, dim), keepdim=True, dtype=norms.dtype) / norms
    across = grad - v * (along / norms).to(v.dtype)
    return across * (g / norms).to(v.dtype), along.to(g.dtype)


OPERATORS: dict[str, Callable[..., Any]] = {
    "_weight_norm_interface": weight_norm,
    "_weight_norm_interface.out": into(weight_norm, "out0", "out1"),
    "_weight_norm_interface_backward": weight_norm_backward,
    "_weight_norm_interface_backward.out": into(weight_norm_backward, "out0", "out1"),
}
"""Implementations by aten name."""
