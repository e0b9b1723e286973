"""Arithmetic on sparse tensors of coordinates (COO), and on those by rows or columns through them.

Items are gathered and added by the operators of strided tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import check_cast
from ocl_backend.dtypes import UnsupportedDtypeError

SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
BEFORE_STRIDED = (torch.sparse_csr, torch.sparse_csc)
"""Layouts that are the left operand of a sum with a strided tensor; torch refuses the others."""


def broadcast_to(x: Tensor, size: Sequence[int]) -> Tensor:
    """Return a COO tensor that repeats x over dimensions of size 1, and over new ones in front.

    torch's composition asks for a kernel, `flatten_indices`, that devices cannot register, where
    checks of sparse tensors are on.
    """
    indices, values = x._indices(), x._values()
    count, front = values.shape[0], len(size) - x.dim()
    if front < 0 or any(n not in (1, m) for n, m in zip(x.shape, size[front:], strict=True)):
        raise RuntimeError(f"a sparse tensor of {list(x.shape)} does not broadcast to {[*size]}")
    sparse = front + len(indices)
    repeated = [d for d in range(sparse) if d < front or x.shape[d - front] != size[d]]
    kept = [d for d in range(sparse) if d not in repeated]
    sizes = [size[d] for d in repeated]
    times = prod(sizes)
    rows = list[Tensor]()
    for d in range(sparse):
        if d in repeated:
            inner = prod(sizes[repeated.index(d) + 1 :])
            turn = torch.arange(times, device=x.device)
            rows.append((turn // max(inner, 1) % max(size[d], 1)).repeat(count))
        else:
            rows.append(indices[d - front].repeat_interleave(times))
    spread = values.unsqueeze(1).expand(count, times, *size[sparse:]).flatten(0, 1)
    sorted_still = not (repeated and kept) or kept[-1] < repeated[0]
    places = torch.stack(rows) if rows else indices.new_empty(0, count * times)
    return of_parts(size, places, spread, x.is_coalesced() and sorted_still)


def of_parts(shape: Sequence[int], indices: Tensor, values: Tensor, coalesced: bool) -> Tensor:
    """Return a COO tensor of a shape, its parts not looked at."""
    made: Tensor = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors(
        len(indices),
        values.dim() - 1,
        list(shape),
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        is_coalesced=coalesced,
    )
    return made


def coalesce(x: Tensor) -> Tensor:
    """Return a COO tensor whose places are distinct and sorted; values of one place are added."""
    if x.is_coalesced():
        return x
    indices, values = x._indices(), x._values()
    sizes = x.shape[: len(indices)]
    if values.shape[0] < 2:
        return of_parts(x.shape, indices.clone(), values.clone(), True)
    steps = [prod(sizes[dim + 1 :]) for dim in range(len(sizes))]
    place = sum(
        (row * step for row, step in zip(indices, steps, strict=True)), indices.new_zeros(())
    )
    places, member = torch.unique(place.expand(values.shape[0]), return_inverse=True)
    sums = values.new_zeros((len(places), *values.shape[1:])).index_add_(0, member, values)
    found = [places // step % size for step, size in zip(steps, sizes, strict=True)]
    rows = torch.stack(found) if found else indices.new_empty(0, len(places))
    return of_parts(x.shape, rows, sums, True)


def _dense_sum(x: Tensor, sparse: Tensor, alpha: float) -> Tensor:
    """Add a COO tensor to a strided one in its place."""
    if x.shape != sparse.shape:
        raise RuntimeError(
            "add: expected 'self' and 'other' to have same size, but self has size "
            f"{list(x.shape)} while other has size {list(sparse.shape)}"
        )
    indices, values = sparse._indices(), sparse._values()
    if not len(indices):
        return x.add_(values.sum(0, dtype=values.dtype), alpha=alpha)
    scaled = values if alpha == 1 else values.to(torch.result_type(x, sparse)) * alpha
    return x.index_put_(tuple(indices), scaled.to(x.dtype), accumulate=True)


def _apart(x: Tensor) -> Tensor:
    """Return a COO tensor for a sparse one of any layout."""
    return x if x.layout is torch.sparse_coo else x.to_sparse()


def _unlike_sum(x: Tensor, other: Tensor, alpha: float) -> Tensor:
    """Return the sum of two COO tensors that divide their dimensions differently: one is empty."""
    if not other._nnz():
        return x.clone()
    if not x._nnz():
        values = other._values().clone() if alpha == 1 else other._values() * alpha
        return of_parts(other.shape, other._indices().clone(), values, other.is_coalesced())
    raise RuntimeError(
        f"add: tensors with {x.sparse_dim()} and {other.sparse_dim()} sparse dimensions, and "
        f"{x._nnz()} and {other._nnz()} items; both must have as many sparse dimensions"
    )


def add(x: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    """Return the sum of a strided and a sparse tensor, or of two sparse ones."""
    dtype = torch.result_type(x, other)
    if other.layout not in SPARSE:
        if x.layout not in BEFORE_STRIDED:
            raise RuntimeError(
                "add(sparse, dense) is not supported. Use add(dense, sparse) instead."
            )
        # of the two, torch scales the sparse one, whichever comes first
        return _dense_sum(other.to(dtype, copy=True), _apart(x), alpha)
    if x.layout not in SPARSE:
        return _dense_sum(x.to(dtype, copy=True), _apart(other), alpha)
    one, two = _apart(x), _apart(other)
    if one.shape != two.shape:
        raise RuntimeError(
            f"add: sparse tensors of shapes {list(x.shape)} and {list(other.shape)}; give both one"
        )
    if one.sparse_dim() != two.sparse_dim():
        return _unlike_sum(x, other, alpha).to(dtype)
    values = [one._values().to(dtype), two._values().to(dtype) * alpha]
    joined = of_parts(
        x.shape, torch.cat([one._indices(), two._indices()], 1), torch.cat(values), coalesced=False
    )
    if x.layout is torch.sparse_coo:
        return coalesce(joined) if one.is_coalesced() and two.is_coalesced() else joined
    return _compressed(coalesce(joined), x)


def _compressed(joined: Tensor, like: Tensor) -> Tensor:
    """Return a COO tensor in the compressed layout of another; rows with its positions' dtype."""
    made = joined.to_sparse(layout=like.layout)
    if like.layout is not torch.sparse_csr or like.crow_indices().dtype == torch.int64:
        return made
    rows, columns = made.crow_indices().int(), made.col_indices().int()
    return torch.sparse_csr_tensor(rows, columns, made.values(), made.shape, check_invariants=False)


def add_(x: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    """Add a sparse tensor in place."""
    check_cast(torch.result_type(x, other), x.dtype)
    if x.layout not in SPARSE and other.layout in SPARSE:
        return _dense_sum(x, _apart(other), alpha)
    return _written(add(x, other, alpha=alpha), x)


def _written(result: Tensor, target: Tensor) -> Tensor:
    """Write a result to a sparse or strided target of its shape, and return that.

    Compressed rows take only as many items as they have.
    """
    if target.layout in SPARSE[1:] and target._nnz() != result._nnz():
        target.resize_as_sparse_(result)
    return target.copy_(result)


def sub(x: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    """Return the difference of a strided and a sparse tensor, or of two sparse ones."""
    return add(x, other, alpha=-alpha)


def sub_(x: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    """Subtract a sparse tensor in place."""
    return add_(x, other, alpha=-alpha)


def sparse_mask(x: Tensor, mask: Tensor) -> Tensor:
    """Return the items of a strided tensor at the places of a COO one, duplicates included."""
    if x.layout in SPARSE or mask.layout is not torch.sparse_coo:
        raise UnsupportedDtypeError("masks by rows, and masks of sparse tensors")
    indices = mask._indices()
    values = x[tuple(indices)] if len(indices) else x.expand(mask._nnz(), *x.shape)
    return of_parts(mask.shape, indices.clone(), values, mask.is_coalesced())


def mm(x: Tensor, y: Tensor) -> Tensor:
    """Return the product of a sparse and a strided matrix: rows of the latter, scaled and added."""
    if x.layout not in SPARSE or y.layout in SPARSE:
        raise UnsupportedDtypeError("products of a strided and a sparse matrix, or of two sparse")
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[0]:
        raise RuntimeError(
            f"mm takes matrices whose inner sizes agree, not {list(x.shape)} and {list(y.shape)}"
        )
    found = _apart(x)
    if found.sparse_dim() != 2:
        raise UnsupportedDtypeError("matrices with a dense dimension")
    (row, column), values = found._indices(), found._values()
    return y.new_zeros(x.shape[0], y.shape[1]).index_add_(0, row, values[:, None] * y[column])


def addmm(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return `beta` times a strided tensor and `alpha` times a product as of `mm`."""
    product = mm(x, y) if alpha == 1 else mm(x, y) * alpha
    return product if beta == 0 else product.add_(bias, alpha=beta)


def addmm_(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Write `addmm`'s result to its first operand."""
    return _written(addmm(bias, x, y, beta=beta, alpha=alpha), bias)


def addmv_out(
    bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor
) -> Tensor:
    """Write `addmm`'s result for a vector to `out`."""
    result = addmm(bias.expand(x.shape[0])[:, None], x, y[:, None], beta=beta, alpha=alpha)
    return out.resize_(x.shape[0]).copy_(result[:, 0])


def _into(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return `function` with a strided or sparse `out`."""

    def write(*args: Any, out: Tensor, **kwargs: Any) -> Tensor:
        result = function(*args, **kwargs)
        if out.layout not in SPARSE:
            out.resize_(result.shape)
        return _written(result, out)

    return write


def to_dense(
    x: Tensor, dtype: torch.dtype | None = None, masked_grad: bool | None = None
) -> Tensor:
    """Return a COO tensor as a strided one; values of one place are added."""
    return _dense_sum(torch.zeros(x.shape, dtype=dtype or x.dtype, device=x.device), x, 1)


COMMON: dict[str, Callable[..., Any]] = {
    "add.Tensor": add,
    "add_.Tensor": add_,
    "add.out": _into(add),
    "sub.Tensor": sub,
    "sub_.Tensor": sub_,
    "sub.out": _into(sub),
    "mm": mm,
    "mm.out": _into(mm),
    "addmm": addmm,
    "addmm_": addmm_,
    "addmm.out": _into(addmm),
    "sparse_mask": sparse_mask,
}
"""Implementations by aten name, of all sparse layouts."""

OPERATORS: dict[str, Callable[..., Any]] = {
    **COMMON,
    "_coalesce": coalesce,
    "_to_dense": to_dense,
    "_sparse_broadcast_to": broadcast_to,
}
BY_ROWS = {**COMMON, "addmv.out": addmv_out}
