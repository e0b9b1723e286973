"""Convolutions of images of one pixel by kernels of one pixel: products of two matrices.

They occur in squeeze-and-excitation layers, and in heads after a pooling to one pixel. Families of
products have kernels for few rows, which those of convolutions lack. So a network's layers, with
different channels, share a few short programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from ocl_backend.dispatch import settings
from ocl_backend.ops.linear.matmul import product


def is_product(x: Tensor, w: Tensor, padding: Sequence[int], groups: int) -> bool:
    """Say whether x [batch, in_channels, 1, 1] meets w [out_channels, in_channels, 1, 1]."""
    return groups == 1 and not any(padding) and all(n == 1 for n in chain(x.shape[2:], w.shape[2:]))


def forward(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """Return x wᵀ + bias as images."""
    y = x.new_empty((len(x), len(w), 1, 1))
    return _multiplied(_matrix(x), _matrix(w).t(), y, bias)


def backward(
    grad: Tensor, x: Tensor, w: Tensor, output_mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of x and w that `output_mask` asks for, None for the others."""
    rows, (of_x, of_w, *_) = _matrix(grad), output_mask
    grad_x = _multiplied(rows, _matrix(w), torch.empty_like(x)) if of_x else None
    grad_w = _multiplied(rows.t(), _matrix(x), torch.empty_like(w)) if of_w else None
    return grad_x, grad_w


def _matrix(x: Tensor) -> Tensor:
    """Return [rows, columns, 1, 1] as [rows, columns]."""
    return x.view(x.shape[:2])


def _multiplied(a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None = None) -> Tensor:
    """Write a · b + bias to `out` [rows, columns, 1, 1], and return it."""
    name, bias = ("mm", None) if bias is None else ("addmm", bias.contiguous())
    product(name, a, b, _matrix(out), bias, allow_tf32=settings.conv.allow_tf32)
    return out
