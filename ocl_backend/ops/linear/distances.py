"""Distances between the rows of matrices, in any norm, and their gradients.

Written in terms of other operators; Euclidean distances of many rows are a product, by torch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isinf
from typing import Any

import torch
from torch import Tensor

from ocl_backend.ops.reduce.reductions import vector_norm


def cdist(a: Tensor, b: Tensor, p: float, mode: int | None) -> Tensor:
    """Return p-norm distances of the rows of a [.., m, k] and b [.., n, k]: [.., m, n]."""
    del mode  # torch asks for a product by another operator
    return _norms(a.unsqueeze(-2) - b.unsqueeze(-3), p)


def cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distance: Tensor) -> Tensor:
    """Return the gradient of a [.., m, k] from grad and distance [.., m, n]."""
    difference = a.unsqueeze(-2) - b.unsqueeze(-3)
    return _spread(difference, grad.unsqueeze(-1), distance.unsqueeze(-1), p).sum(-2)


def pdist(x: Tensor, p: float = 2) -> Tensor:
    """Return p-norm distances of every pair of rows of x [n, k]: [n · (n - 1) / 2]."""
    first, second = _pairs(x)
    return _norms(x[first] - x[second], p)


def pdist_backward(grad: Tensor, x: Tensor, p: float, distance: Tensor) -> Tensor:
    """Return the gradient of x [n, k] from those of its pairs."""
    first, second = _pairs(x)
    parts = _spread(x[first] - x[second], grad.unsqueeze(-1), distance.unsqueeze(-1), p)
    return torch.zeros_like(x).index_add_(0, first, parts).index_add_(0, second, -parts)


def _norms(differences: Tensor, p: float) -> Tensor:
    """Return the norms of rows; those of rows without items are 0, of which no maximum exists."""
    if not differences.shape[-1]:
        return differences.new_zeros(differences.shape[:-1])
    return vector_norm(differences, p, -1)


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers of both rows of each pair, in the order of the distances."""
    rows = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return rows[0], rows[1]


def _spread(difference: Tensor, grad: Tensor, distance: Tensor, p: float) -> Tensor:
    """Return grad · d distance / d difference; 0 where the distance has no derivative."""
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return difference.sign() * grad
    if isinf(p):
        return difference.sign() * grad * (difference.abs() == distance)
    steep = difference.sign() * difference.abs().pow(p - 1) * grad / distance.pow(p - 1)
    flat = (distance == 0) | (difference == 0)
    return steep.masked_fill(flat, 0)


OPERATORS: dict[str, Callable[..., Any]] = {
    "_cdist_forward": cdist,
    "_cdist_backward": cdist_backward,
    "_pdist_forward": pdist,
    "_pdist_backward": pdist_backward,
}
"""Implementations by aten name."""
