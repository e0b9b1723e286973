"""Reductions over any dimensions: sums, products, extremes and where they are, variances, norms.

What each combines is a table here; how it is spread over a device is in `reduction_kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, isinf, nan, prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import in_dtype_of_out, into, stored
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.dimensions import axis_of
from ocl_backend.kernels.reduction_kernels import Reduction, Spec, run
from ocl_backend.kernels.vectors import are_aligned
from ocl_backend.ops.reduce import positions
from ocl_backend.ops.reduce.loose_mean import loose_mean

Dims = Sequence[int] | int | None
Number = int | float | bool

MOST_DIMS = 64
"""Torch's own limit."""

TRUTH = "x != (X)(0) ? (T)(1) : (T)(0)"
LARGER = "a > b || a != a ? a : b"
SMALLER = "a < b || a != a ? a : b"

SUM = Reduction("sum", "a + b", "0")
DOT = Reduction("dot", "a + b", "0", "x * y")
MEAN = Reduction("mean", "a + b", "0", finish="acc / count")
PRODUCT = Reduction("prod", "a * b", "1")
ANY = Reduction("any", "a > b ? a : b", "0", TRUTH)
ALL = Reduction("all", "a < b ? a : b", "1", TRUTH)
NORM_1 = Reduction("norm_1", "a + b", "0", "fabs(x)")
NORM_2 = Reduction("norm_2", "a + b", "0", "x * x", "sqrt(acc)")
WHERE = Reduction(
    "where_extreme",
    "a < b ? a : b",
    "0x7fffffffffffffffL",
    "x == center || x != x ? position : 0x7fffffffffffffffL",
)


def extreme(dtype: torch.dtype, largest: bool) -> Reduction:
    """Return amax or amin; a NaN wins."""
    if dtype.is_floating_point:
        worst = "-INFINITY" if largest else "INFINITY"
    elif dtype is torch.bool:
        worst = "0" if largest else "1"
    else:
        limits = torch.iinfo(dtype)
        # the smallest long has no literal of its own
        worst = f"({limits.min + 1}L - 1)" if largest else f"{limits.max}L"
    name = "amax" if largest else "amin"
    return Reduction(name, LARGER if largest else SMALLER, worst)


def dims_of(dims: Dims, rank: int) -> tuple[int, ...]:
    """Return the dimensions to reduce, counted from 0 and sorted; all if none are given."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    given = [dims] if isinstance(dims, int) else dims
    if rank > MOST_DIMS:
        raise RuntimeError(f"only tensors with up to {MOST_DIMS} dims are supported")
    wrapped = sorted(axis_of(dim, rank) for dim in given)
    if len(set(wrapped)) < len(wrapped):
        raise RuntimeError(f"dimensions {list(given)} name one twice; name each once")
    return tuple(wrapped) if rank else ()


def reduce(
    reduction: Reduction,
    x: Tensor,
    dims: Dims,
    keepdim: bool,
    dtype: torch.dtype,
    compute: torch.dtype | None = None,
    center: Tensor | None = None,
    correction: float = 0,
    other: Tensor | None = None,
) -> Tensor:
    """Return `x` reduced over `dims` as `dtype`, combined in `compute` (default: `dtype`).

    `center` has x's shape with reduced dimensions of size 1, `other` x's shape and strides.
    `finish` divides by the number of items less `correction`, at least 0.
    """
    if (compute or dtype) is torch.bool and x.is_floating_point():
        x = x.bool()  # as a uchar, 0.5 would be 0
    reduced = dims_of(dims, x.dim())
    shape = tuple(1 if dim in reduced else size for dim, size in enumerate(x.shape))
    count = prod(x.shape[dim] for dim in reduced)
    value = dtype_of(compute or dtype).value
    out = torch.empty(shape, dtype=dtype, device=x.device)
    if out.numel() and count:
        center_strides = [] if center is None else [_still(center.stride(), reduced)]
        spec = Spec(
            reduction,
            dtype_of(x.dtype).value if center is not None or reduction.by_position else value,
            value,
            (x.dtype, dtype, None if center is None else center.dtype),
            tuple(x.shape),
            reduced,
            (x.stride(), _still(out.stride(), reduced), *center_strides),
            max(count - correction, 0),
            are_aligned(t.data_ptr() for t in (x, out, center, other) if t is not None),
            None if other is None else other.dtype,
        )
        if reduction is MEAN and keepdim and (rule := loose_mean(x.get_device(), spec)):
            rule.enqueue((x.data_ptr(), out.data_ptr()))
        else:
            run(x.get_device(), spec, x, out, center, other)
    elif out.numel():
        out.fill_(EMPTY.get(reduction.name, 0))
    if keepdim or not reduced:
        return out
    return out.view([size for dim, size in enumerate(x.shape) if dim not in reduced])


EMPTY = {"prod": 1, "all": 1, "mean": nan, "var": nan, "std": nan}
"""The result of a reduction of no items, if it is not 0."""


def _still(strides: Sequence[int], reduced: Sequence[int]) -> tuple[int, ...]:
    return tuple(0 if dim in reduced else stride for dim, stride in enumerate(strides))


def _sum_dtype(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return dtype
    dtype_of(x.dtype)  # refuses complex numbers, whose operators are others, also where none are
    return x.dtype if x.dtype.is_floating_point else torch.int64


def sum_(
    x: Tensor, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Sum; integers and bools as int64."""
    return reduce(SUM, x, dims, keepdim, _sum_dtype(x, dtype))


def dots_of_rows(x: Tensor, y: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the dot products of the rows of `x` and `y`; products are not rounded.

    Args:
        x: [..., items], of a dtype that becomes `dtype` or its wider register without a loss.
        y: of the same shape; with the same strides nothing is copied.
        dtype: of the result.
    """
    if x.stride() != y.stride():
        x, y = x.contiguous(), y.contiguous()
    return reduce(DOT, x, -1, False, dtype, other=y)


def mean(
    x: Tensor, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Mean of floats."""
    wanted = dtype or x.dtype
    dtype_of(wanted)  # a complex mean is not an error
    if not wanted.is_floating_point:
        raise RuntimeError(f"mean: {x.dtype} has no mean of its own; pass dtype=torch.float32")
    return reduce(MEAN, x, dims, keepdim, wanted)


def prod_(
    x: Tensor, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Product; integers and bools as int64."""
    return reduce(PRODUCT, x, dims, keepdim, _sum_dtype(x, dtype))


def any_(x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether any item is not zero."""
    return _truth(ANY, x, dims, keepdim)


def all_(x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether no item is zero."""
    return _truth(ALL, x, dims, keepdim)


def _truth(reduction: Reduction, x: Tensor, dims: Dims, keepdim: bool) -> Tensor:
    # torch keeps uint8 here for the sake of old code, and reduces no dimension where none is named
    dtype = torch.uint8 if x.dtype is torch.uint8 else torch.bool
    if isinstance(dims, Sequence) and not dims:
        return (x != 0).to(dtype)
    return reduce(reduction, x, dims, keepdim, dtype, x.dtype)


def _written(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the out form of `any_` or `all_`: bytes have outputs of bool, too."""

    def run(*args: Any, out: Tensor, **kwargs: Any) -> Tensor:
        if out.dtype not in (torch.bool, torch.uint8):
            raise RuntimeError(f"any and all write bools or bytes, not {out.dtype}")
        return stored(function(*args, **kwargs).bool(), out)

    return run


def count_nonzero(x: Tensor, dims: Dims = None) -> Tensor:
    """Return how many items are not zero, as int64."""
    return sum_(x != 0, dims)


def amax(x: Tensor, dims: Dims = (), keepdim: bool = False) -> Tensor:
    """Largest item; a NaN wins."""
    return _extreme(x, dims, keepdim, True)


def amin(x: Tensor, dims: Dims = (), keepdim: bool = False) -> Tensor:
    """Smallest item; a NaN wins."""
    return _extreme(x, dims, keepdim, False)


def _extreme(x: Tensor, dims: Dims, keepdim: bool, largest: bool) -> Tensor:
    dtype_of(x.dtype)  # complex numbers have no kernel: the CPU says what extremes of no rows are
    reduced = dims_of(dims, x.dim())
    if any(x.shape[dim] == 0 for dim in reduced):
        raise IndexError(
            f"the largest or smallest of no items does not exist: shape {tuple(x.shape)}, "
            f"reduced dimensions {list(reduced)}"
        )
    return reduce(extreme(x.dtype, largest), x, reduced or (), keepdim, x.dtype)


def _where(x: Tensor, best: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Return the first position along `dim` of `best`, which keeps the dimension."""
    return reduce(WHERE, x, (dim,), keepdim, torch.int64, center=best)


def _extreme_at(x: Tensor, dim: int, keepdim: bool, largest: bool) -> tuple[Tensor, Tensor]:
    axis = axis_of(dim, x.dim())
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    if positions.serve(x, axis):
        where = reduce(positions.first_of(x.dtype, largest), x, (axis,), True, torch.int64)
        best = positions.items_at(x, where, axis)
    else:
        best = _extreme(x, (axis,), True, largest)
        where = _where(x, best, axis, True)
    return (best, where) if keepdim else (best.squeeze(axis), where.squeeze(axis))


def max_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Largest items along `dim` and their first positions."""
    return _extreme_at(x, dim, keepdim, True)


def min_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Smallest items along `dim` and their first positions."""
    return _extreme_at(x, dim, keepdim, False)


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """First position of the largest item, along `dim` or of the flattened tensor."""
    return _arg_extreme(x, dim, keepdim, True)


def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """First position of the smallest item, along `dim` or of the flattened tensor."""
    return _arg_extreme(x, dim, keepdim, False)


def _arg_extreme(x: Tensor, dim: int | None, keepdim: bool, largest: bool) -> Tensor:
    if dim is not None:
        axis = axis_of(dim, x.dim())
        if x.dim() and positions.serve(x, axis):
            return reduce(positions.first_of(x.dtype, largest), x, axis, keepdim, torch.int64)
        return _extreme_at(x, dim, keepdim, largest)[1]
    found = _arg_extreme(x.reshape(-1), 0, False, largest)
    return found.reshape([1] * x.dim()) if keepdim else found


def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Smallest and largest items.

    Raises:
        RuntimeError, IndexError: there is none.
    """
    dims = () if dim is None else (dim,)
    return amin(x, dims, keepdim), amax(x, dims, keepdim)


def nansum(
    x: Tensor, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Sum of the items that are not NaN."""
    return sum_(torch.where(x.isnan(), 0, x), dims, keepdim, dtype=dtype)


def vector_norm(
    x: Tensor,
    order: Number = 2,
    dims: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Norm of any order: the p-th root of the sum of p-th powers; inf and -inf are the extremes."""
    wanted = dtype or x.dtype
    x = x.to(wanted)
    if isinf(order):
        return _extreme(x.abs(), dims, keepdim, order == inf)
    if order == 0:
        return sum_(x != 0, dims, keepdim, dtype=wanted)
    if order < 0 and not all(x.shape[dim] for dim in dims_of(dims, x.dim())):
        raise RuntimeError(f"the {order}-norm of no items does not exist: shape {tuple(x.shape)}")
    if order in (1, 2):
        return reduce(NORM_1 if order == 1 else NORM_2, x, dims, keepdim, wanted)
    return reduce(_norm_of(order), x, dims, keepdim, wanted)


def _norm_of(order: Number) -> Reduction:
    """Return the norm of an order; powers are added in float, where those of a half are inf."""
    named = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}
    texts = (repr(float(value)) for value in (order, 1 / order))
    power, root = (f"pow({{}}, (T)({named.get(text, text)}))" for text in texts)
    return Reduction("norm_p", "a + b", "0", power.format("fabs(x)"), root.format("acc"))


def norm(
    x: Tensor,
    order: Number | None,
    dims: Dims,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return `vector_norm`, with torch.norm's order of arguments."""
    return vector_norm(x, 2 if order is None else order, dims, keepdim, dtype=dtype)


OPERATORS: dict[str, Callable[..., Any]] = {
    "sum.dim_IntList": sum_,
    "sum.IntList_out": in_dtype_of_out(sum_),
    "nansum": nansum,
    "nansum.out": in_dtype_of_out(nansum),
    "mean.dim": mean,
    "mean.out": in_dtype_of_out(mean),
    "prod": prod_,
    "prod.dim_int": prod_,
    "prod.int_out": in_dtype_of_out(prod_),
    "any": any_,
    "any.dim": any_,
    "any.dims": any_,
    "any.out": _written(any_),
    "any.dims_out": _written(any_),
    "any.all_out": _written(any_),
    "all": all_,
    "all.dim": all_,
    "all.dims": all_,
    "all.out": _written(all_),
    "all.dims_out": _written(all_),
    "all.all_out": _written(all_),
    "count_nonzero.dim_IntList": count_nonzero,
    "amax": amax,
    "amax.out": into(amax, casts=False),
    "amin": amin,
    "amin.out": into(amin, casts=False),
    "max": amax,
    "max.unary_out": into(amax),
    "max.dim": max_dim,
    "max.dim_max": into(max_dim, "max", "max_values"),
    "min": amin,
    "min.unary_out": into(amin),
    "min.dim": min_dim,
    "min.dim_min": into(min_dim, "min", "min_indices"),
    "argmax": argmax,
    "argmax.out": into(argmax),
    "argmin": argmin,
    "argmin.out": into(argmin),
    "aminmax": aminmax,
    "aminmax.out": into(aminmax, "min", "max", casts=False),
    "linalg_vector_norm": vector_norm,
    "linalg_vector_norm.out": into(vector_norm),
    "norm.ScalarOpt_dim": norm,
    "norm.out": into(norm),
    "norm.ScalarOpt_dim_dtype": norm,
    "norm.dtype_out": into(norm),
}
"""Implementations by aten name."""
