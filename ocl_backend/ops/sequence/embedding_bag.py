"""Gradients of embeddings, and bags of them: sums, means and maxima of rows of a table.

Sums and means have a kernel, the rest is written in terms of other operators; single embeddings are
index_select, and their gradient is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.kernels.bag_sums import are_worth_it, check_offsets, sum_bags
from ocl_backend.ops.tensor.indexing import add_slices, are_widened, index_select

SUM, MEAN, MAX = range(3)
"""torch's numbers of the modes."""


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the bags [bags, features] of weight [rows, features], and what the gradient needs.

    That is, for each of the indices its bag, for each bag its size without padding, and for maxima
    the row that each of a bag's features comes from (-1: none).
    """
    del scale_grad_by_freq, sparse
    bags = len(offsets) - include_last_offset
    if not bags:
        return _without_bags(weight, indices, offsets)
    plain = mode != MAX and weight.is_floating_point() and are_worth_it(weight, indices, bags)
    if plain and weight.shape[1]:
        bag = torch.empty(len(indices), dtype=offsets.dtype, device=indices.device)
        sizes = torch.empty(bags, dtype=torch.int64, device=indices.device)
        out = sum_bags(
            weight, indices, offsets, bags, mode == MEAN, per_sample_weights, padding_idx,
            (bag, sizes),
        )  # fmt: skip
        return out, bag, sizes, sizes.new_empty(0)
    check_offsets(offsets, len(indices))
    bag, sizes, counted = _bags(indices, offsets, bags, padding_idx)
    rows = index_select(weight, 0, indices, operator="embedding_bag")
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if mode == MAX:
        out, where = _maxima(rows, indices, bag, counted, bags)
        return out, bag, sizes, where
    out = weight.new_zeros((bags, weight.shape[1]))
    out.index_add_(0, bag, rows.masked_fill(~counted.unsqueeze(1), 0))
    if mode == MEAN:
        out /= sizes.clamp(min=1).unsqueeze(1)
    return out, bag, sizes, sizes.new_empty(0)


def _without_bags(
    weight: Tensor, indices: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return as `embedding_bag` where there is no bag at all, whatever indices there are."""
    if len(offsets):
        check_offsets(offsets, len(indices))
    none = offsets.new_empty(0)
    return weight.new_empty(0, weight.shape[1]), torch.zeros_like(indices), none, none.clone()


def forward_only(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return as `embedding_bag`; like torch's CPU, of plain sums no more than the bags."""
    bags = len(offsets) - include_last_offset
    if bags and mode == SUM and weight.is_floating_point() and are_worth_it(weight, indices, bags):
        out = sum_bags(weight, indices, offsets, bags, False, per_sample_weights, padding_idx)
        none = offsets.new_empty(0)
        return out, none, offsets.new_zeros(bags), none
    return embedding_bag(
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip


def _bags(
    indices: Tensor, offsets: Tensor, bags: int, padding_idx: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each index's bag, each bag's size without padding, and whether an index counts."""
    places = torch.arange(len(indices), device=indices.device, dtype=offsets.dtype)
    bag = torch.searchsorted(offsets[:bags].contiguous(), places, right=True) - 1
    counted = indices != padding_idx
    sizes = torch.zeros(bags, dtype=torch.int64, device=indices.device)
    return bag, sizes.index_add_(0, bag, counted.long()), counted


def _maxima(
    rows: Tensor, indices: Tensor, bag: Tensor, counted: Tensor, bags: int
) -> tuple[Tensor, Tensor]:
    """Return each bag's maxima (0 if it is empty), and the index of the row that has them first.

    A NaN is the largest, as of `amax`: the CPU passes over one that is not the first of its bag.
    """
    shape = (bags, rows.shape[1])
    rows = rows.masked_fill(~counted.unsqueeze(1), -torch.inf)
    bags_of = bag.unsqueeze(1).expand(rows.shape)
    out = rows.new_full(shape, -torch.inf).scatter_reduce_(0, bags_of, rows, "amax")
    count = len(indices)
    places = torch.arange(count, device=rows.device).unsqueeze(1)
    hits = counted.unsqueeze(1) & ((rows == out.index_select(0, bag)) | rows.isnan())
    first = torch.full(shape, count, device=rows.device)
    first.scatter_reduce_(0, bags_of, torch.where(hits, places, count), "amin")
    empty = first == count
    numbers = torch.cat([indices, indices.new_full((1,), -1)])
    return out.masked_fill_(empty, 0), numbers[first]


def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag: Tensor,
    sizes: Tensor,
    maxima: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Return the gradient of the table, [num_weights, features], a sparse one where asked for."""
    if sparse:  # torch composes it: a row of coordinates for each index
        rows: Tensor = torch.ops.aten._embedding_bag_sparse_backward(
            grad, indices, offsets, bag, sizes, num_weights, scale_grad_by_freq, mode,
            per_sample_weights, padding_idx,
        )  # fmt: skip
        return rows
    return embedding_bag_dense_backward(
        grad, indices, bag, sizes, maxima, num_weights, scale_grad_by_freq, mode,
        per_sample_weights, padding_idx,
    )  # fmt: skip


def embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    bag: Tensor,
    sizes: Tensor,
    maxima: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Return the gradient of the table, [num_weights, features]."""
    total = grad.new_zeros((num_weights, grad.shape[1]))
    if not len(grad):
        return total
    if mode == MAX:
        kept = grad.masked_fill(maxima < 0, 0)
        return total.scatter_add_(0, maxima.clamp(min=0), kept)
    if mode == MEAN:
        grad = grad / sizes.clamp(min=1).unsqueeze(1)
    rows = grad.index_select(0, bag)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if scale_grad_by_freq:
        counts = sizes.new_zeros(num_weights).index_add_(
            0, indices, torch.ones_like(indices, dtype=torch.int64)
        )
        rows = rows / counts.index_select(0, indices).unsqueeze(1)
    if padding_idx >= 0:
        rows = rows.masked_fill((indices == padding_idx).unsqueeze(1), 0)
    return total.index_add_(0, indices, rows)


def per_sample_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """Return the gradient of the samples' weights, [samples]."""
    del offsets, mode  # torch allows weights for sums only
    if not len(grad):
        return grad.new_zeros(len(indices))
    products = grad.index_select(0, bag) * weight.index_select(0, indices)
    return products.sum(1).masked_fill_(indices == padding_idx, 0)


def embedding_dense_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_by_freq: bool
) -> Tensor:
    """Return the gradient of an embedding's weight: [num_weights, features]."""
    features = grad.shape[-1]
    flat = indices.reshape(-1)
    rows = grad.reshape(flat.numel(), features)
    if padding_idx >= 0:
        rows = rows.masked_fill((flat == padding_idx).unsqueeze(1), 0)
    if scale_by_freq:
        ones = torch.ones(flat.shape, dtype=grad.dtype, device=grad.device)
        rows = rows / grad.new_zeros(num_weights).index_add_(0, flat, ones)[flat].unsqueeze(1)
    total = grad.new_empty(num_weights, features)
    dtype = torch.float32 if are_widened(total, rows.numel()) else grad.dtype
    return add_slices(torch.zeros_like(total, dtype=dtype), 0, flat, rows).to(grad.dtype)


def embedding_renorm_(
    weight: Tensor, indices: Tensor, max_norm: float, norm_type: float
) -> Tensor:  # fmt: skip
    """Shorten the rows that are named to a norm of `max_norm`, in place; rows named twice once.

    Args:
        weight: [rows, features].
        indices: of rows, any shape.
        max_norm: the largest norm.
        norm_type: p of the norm.
    """
    flat = indices.reshape(-1)
    rows = index_select(weight, 0, flat, operator="embedding_bag")
    norms = torch.linalg.vector_norm(rows, norm_type, 1, keepdim=True)
    shorter = torch.where(norms > max_norm, max_norm / (norms + 1e-7), 1)
    return weight.index_copy_(0, flat, rows * shorter)


OPERATORS: dict[str, Callable[..., Any]] = {
    "embedding_renorm_": embedding_renorm_,
    "embedding_dense_backward": embedding_dense_backward,
    "_embedding_bag": embedding_bag,
    "_embedding_bag_forward_only": forward_only,
    "_embedding_bag_backward": embedding_bag_backward,
    "_embedding_bag_dense_backward": embedding_bag_dense_backward,
    "_embedding_bag_per_sample_weights_backward": per_sample_weights_backward,
}
"""Implementations by aten name."""
