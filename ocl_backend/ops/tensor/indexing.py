"""Indexing: which items of a tensor an operator means. `scatter` reads and writes them.

An index out of range cannot raise here, because that would have to wait for the device; `faults`
says when it raises.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dispatch.checks import (
    WHOLE,
    check_dtypes,
    check_index,
    check_rows,
    check_written,
)
from ocl_backend.dispatch.outputs import apart, into
from ocl_backend.dtypes import FLOATS_16
from ocl_backend.kernels.dimensions import axis_of, broadcast_shapes, iterated_strides
from ocl_backend.kernels.places import Places
from ocl_backend.kernels.scatter import FEW, Combine, Locate, read, write
from ocl_backend.kernels.selected import are_selected, items
from ocl_backend.kernels.table_sums import tables_for
from ocl_backend.ops.tensor.held_index_copy import held_copy

Number = int | float | bool
Indices = Sequence[Tensor | None]

REDUCE: dict[str, Combine] = {
    "sum": "add",
    "add": "add",
    "prod": "prod",
    "multiply": "prod",
    "amax": "amax",
    "amin": "amin",
}


BYTES = "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead."
"""A warning in torch's words, because users' filters name them."""


def _expanded(x: Tensor, indices: Indices) -> list[Tensor | None]:
    """Replace masks by the positions at which they hold; indices may lie on the CPU too.

    Raises:
        IndexError: an index holds no integers, or a mask has another shape than the dimensions of
            x that it stands for.
    """
    expanded: list[Tensor | None] = []
    for given in indices:
        index = given.to(x.device) if given is not None and given.is_cpu else given
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            if index.dtype is torch.uint8:
                warnings.warn(BYTES, stacklevel=3)
            first = len(expanded)
            if index.shape != x.shape[first : first + index.dim()]:
                raise IndexError(f"mask {[*index.shape]} at {first} of a tensor {[*x.shape]}")
            expanded += index.nonzero().unbind(1)
        else:
            if index is not None and index.dtype not in WHOLE:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
            expanded.append(index)
    return expanded


def locate_indices(x: Tensor, indices: Indices, operator: str) -> tuple[tuple[int, ...], Locate]:
    """Return the shape of x[indices], and its places by the rule of `operator`.

    The indices' common shape stands where they stood if they are neighbours, else in front.
    """
    shape = x.shape
    known = {dim: index for dim, index in enumerate(_expanded(x, indices)) if index is not None}
    if len(shape) <= max(known):
        raise IndexError(f"{max(known) + 1} indices for a tensor of {len(shape)} dimensions")
    common = broadcast_shapes(*(index.shape for index in known.values()))
    first, last = min(known), max(known)
    front = 0 if len(known) < last - first + 1 else first
    others = [dim for dim in range(len(shape)) if dim not in known]
    before, after = others[:front], others[front:]
    result = (*(shape[dim] for dim in before), *common, *(shape[dim] for dim in after))
    given = []
    for index in known.values():
        moved = index.to(torch.int64) if index.dtype is not torch.int64 else index
        given.append(moved.reshape((*moved.shape, *(1 for _ in after))))

    def locate(x: Tensor) -> Places:
        steps = x.stride()
        walked = (
            *(steps[dim] for dim in before),
            *(0 for _ in common),
            *(steps[dim] for dim in after),
        )
        sizes = tuple(x.shape[dim] for dim in known)
        reach = tuple(steps[dim] for dim in known)
        return Places(result, walked, tuple(given), sizes, reach, tuple(known), operator)

    return result, locate


def index(x: Tensor, indices: Indices) -> Tensor:
    """Return x[indices], which lies in memory as x and the indices do."""
    mask = _only_mask(x, indices)
    if mask is not None and mask.dim() == x.dim() and are_selected(x):
        return items(x, mask)
    shape, locate = locate_indices(x, indices, "index")
    return read(x, locate, x.new_empty_strided(shape, iterated_strides(shape, locate(x).moves())))


def _only_mask(x: Tensor, indices: Indices) -> Tensor | None:
    """Return the one index where it is a mask of bools over x's first dimensions."""
    mask = indices[0] if indices and all(i is None for i in indices[1:]) else None
    if mask is None or mask.dtype is not torch.bool or mask.device != x.device or not mask.dim():
        return None
    return mask if mask.shape == x.shape[: mask.dim()] else None


def index_put_(
    x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """Set x[indices] = values, or += values with every repetition counted."""
    check_dtypes("index_put", x, values)
    mask = None if accumulate else _only_mask(x, indices)
    if mask is not None and values.numel() == 1 and x.is_floating_point():
        check_written("index_put", x)
        rest = (1,) * (x.dim() - mask.dim())  # to fill where a mask holds waits for nothing
        value = values.item() if values.is_cpu else values.reshape(())
        return x.masked_fill_(mask.view(*mask.shape, *rest), value)
    shape, locate = locate_indices(x, indices, "index_put")
    if prod(shape):
        write(x, locate, _on(values, x).expand(shape), "add" if accumulate else "assign")
    return x


def _on(values: Tensor, x: Tensor) -> Tensor:
    """Return a number on x's device; tensors of dimensions must lie there."""
    if values.dim() and values.device != x.device:
        raise RuntimeError(f"values on {values.device} for a tensor on {x.device}")
    return values.to(x.device)


def along(dim: int, index: Tensor, operator: str) -> Locate:
    """Return the places of gather and scatter: index[i][j] replaces the position along `dim`."""

    def locate(x: Tensor) -> Places:
        if x.dim() == 0:
            still = (0,) * index.dim()
            return Places(tuple(index.shape), still, (index,), (1,), (1,), (0,), operator)
        axis = axis_of(dim, x.dim())
        shape = tuple(index.shape) or (1,)
        strides = tuple(0 if d == axis else step for d, step in enumerate(x.stride()))
        sizes, steps = (x.shape[axis],), (x.stride(axis),)
        return Places(shape, strides, (index,), sizes, steps, (axis,), operator)

    return locate


def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Return x at the positions `index` along `dim`."""
    _check_along(x, dim, index)
    out = torch.empty(index.shape, dtype=x.dtype, device=x.device)
    return read(x, along(dim, index, "gather"), out) if out.numel() else out


def _check_along(x: Tensor, dim: int, index: Tensor, src: Tensor | None = None) -> None:
    """Raise RuntimeError where `index` reaches beyond x, other than along `dim`, or beyond src."""
    given = [x] if src is None else [x, src]
    axis = axis_of(dim, x.dim())
    if not index.numel():
        return
    if len({max(tensor.dim(), 1) for tensor in (index, *given)}) > 1:
        raise RuntimeError(f"index of {index.dim()} dimensions for tensors of others")
    for d, size in enumerate(index.shape):
        beyond_src = src is not None and src.dim() > 0 and size > src.shape[d]
        if beyond_src or (d != axis and size > x.shape[d]):
            raise RuntimeError(
                f"index {[*index.shape]} does not fit {[list(t.shape) for t in given]} apart from "
                f"dimension {dim}"
            )
    if src is not None and src.dtype is not x.dtype:
        raise RuntimeError(f"src is {src.dtype} and self {x.dtype}. Convert one")


def scatter_(
    x: Tensor, dim: int, index: Tensor, src: Tensor | Number, *, reduce: str | None = None
) -> Tensor:
    """Write `src` to x at the positions `index` along `dim`."""
    _check_along(x, dim, index, src if isinstance(src, Tensor) else None)
    if index.numel():
        if isinstance(src, Tensor):
            src = src.as_strided(index.shape, src.stride()) if src.dim() else src
        write(x, along(dim, index, "scatter"), src, REDUCE[reduce] if reduce else "assign")
    return x


def scatter_add_(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add `src` to x at the positions `index` along `dim`."""
    return scatter_(x, dim, index, src, reduce="add")


def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Return x with `src` added; what is widened needs no other copy."""
    if not (index.numel() and src.dim() and are_widened(x, index.numel())):
        return scatter_add_(x.clone(), dim, index, src)
    _check_along(x, dim, index, src)
    locate, src = along(dim, index, "scatter"), src.as_strided(index.shape, src.stride())
    wide = x.clone() if tables_for(x, locate(x), src) else x.float()
    write(wide, locate, src, "add")
    return wide.to(x.dtype)


def scatter_reduce_(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Combine `src` with x at the positions `index` along `dim` by sum, prod, mean, amax, amin."""
    if not include_self:
        scatter_(x, dim, index, _neutral(reduce, x.dtype))
    scatter_(x, dim, index, src, reduce="sum" if reduce == "mean" else reduce)
    if reduce == "mean":
        start = torch.ones_like(x) if include_self else torch.zeros_like(x)
        counts = scatter_(start, dim, index, 1, reduce="sum").clamp_(min=1)
        mode = None if x.dtype.is_floating_point else "floor"
        x.copy_(x.div(counts, rounding_mode=mode))
    return x


def _neutral(reduce: str, dtype: torch.dtype) -> float:
    """Return what leaves anything it is combined with as it is.

    Args:
        reduce: torch's name of the combination.
        dtype: of the items.
    """
    if reduce not in ("amax", "amin"):
        return 1 if reduce == "prod" else 0
    if dtype is torch.bool:
        return reduce == "amin"
    if dtype.is_floating_point:
        return -torch.inf if reduce == "amax" else torch.inf
    limits = torch.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def index_reduce_(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Combine slices of `source` with those of x that `index` names by prod, mean, amax, amin."""
    if not index.numel():
        return x
    if x.dim() == 0:
        return scatter_reduce_(x, 0, index.reshape(()), source, reduce, include_self=include_self)
    axis = axis_of(dim, x.dim())
    if index.dim() > 1:
        raise IndexError(f"index_reduce: an index of {index.dim()} dimensions; give a vector")
    check_rows("index_reduce", (*x.shape[:axis], index.numel(), *x.shape[axis + 1 :]), source)
    shape = [-1 if d == axis else 1 for d in range(x.dim())]
    places = index.reshape(shape).expand(source.shape)
    return scatter_reduce_(x, dim, places, source, reduce, include_self=include_self)


def _rows(x: Tensor, dim: int, index: Tensor, operator: str) -> tuple[tuple[int, ...], Locate]:
    """Return shape and places of whole slices along `dim`."""
    if index.device != x.device:
        raise RuntimeError(f"an index on {index.device} for a tensor on {x.device}")
    if index.dim() > 1:
        raise IndexError(f"{operator}: an index of {index.dim()} dimensions; give a vector")
    check_index(operator, index)
    axis = axis_of(dim, x.dim())
    if x.dim() == 0:
        return (), lambda x: Places((), (), (index.reshape(()),), (1,), (1,), (0,), operator)
    return locate_indices(x, [None] * axis + [index.reshape(-1)], operator)


def index_select(x: Tensor, dim: int, index: Tensor, *, operator: str = "index_select") -> Tensor:
    """Return the slices of x along `dim` that `index` names; errors name `operator`."""
    shape, locate = _rows(x, dim, index, operator)
    return read(x, locate, torch.empty(shape, dtype=x.dtype, device=x.device))


def index_add_(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """Add slices of alpha · `source` to the slices of x that `index` names."""
    check_dtypes("index_add", x, source)
    return add_slices(x, dim, index, source, alpha)


def add_slices(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Number = 1) -> Tensor:
    """Do as `index_add_`, also to an x of a wider dtype."""
    shape, locate = _rows(x, dim, index, "index_add")
    check_rows("index_add", shape, source)
    if prod(shape):
        source = source.reshape(shape)
        factor = alpha if x.dtype.is_floating_point or x.dtype.is_complex else int(alpha)
        write(x, locate, source if factor == 1 else source * factor, "add")
    return x


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """Return x with slices of alpha · `source` added; what is widened needs no other copy."""
    check_dtypes("index_add", x, source)
    is_kept = not are_widened(x, source.numel()) or _have_tables(x, dim, index, source, alpha)
    return add_slices(x.clone() if is_kept else x.float(), dim, index, source, alpha).to(x.dtype)


def _have_tables(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Number) -> bool:
    """Whether slices are added in tables, whose sums are rounded once."""
    shape, locate = _rows(x, dim, index, "index_add")
    is_plain = alpha == 1 and shape == tuple(source.shape)
    return is_plain and tables_for(x, locate(x), source) is not None


def are_widened(x: Tensor, count: int) -> bool:
    """Whether x becomes fp32 as a whole if `count` items are added to it."""
    return x.dtype in FLOATS_16 and count * FEW > x.numel()


def index_copy_(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Write slices of `source` over the slices of x that `index` names."""
    check_dtypes("index_copy", x, source)
    shape, locate = _rows(x, dim, index, "index_copy")
    check_rows("index_copy", shape, source)
    if prod(shape):
        check_written("index_copy", x)
        source = source.reshape(shape)
        held = held_copy(x, dim, index, source, locate(x))
        if held is None:
            write(x, locate, source, "assign")
        else:
            held[0].enqueue(held[1])
            faults.check(x.get_device())
    return x


def index_fill_(x: Tensor, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
    """Fill the slices of x that `index` names."""
    shape, locate = _rows(x, dim, index, "index_fill")
    if prod(shape) and index.numel():  # a number is a slice, too
        write(x, locate, _on(value, x) if isinstance(value, Tensor) else value, "assign")
    return x


def _copied(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the form of an in-place operator that leaves its argument alone."""
    return lambda x, *args, **kwargs: function(x.clone(), *args, **kwargs)


def _forms(
    name: str, labels: dict[str, str], function: Callable[..., Tensor],
    returning: Callable[..., Tensor] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the three forms of an in-place operator.

    Args:
        name: of the operator.
        labels: overload -> its out form.
        function: in place.
        returning: leaves its argument alone; None: `function` of a copy.
    """
    forms: dict[str, Any] = {}
    returning = returning or _copied(function)
    for label, out in labels.items():
        dotted = f".{label}" if label else ""
        forms |= {
            f"{name}{dotted}": returning,
            f"{name}_{dotted}": function,
            f"{name}.{out}": into(returning),
        }
    return forms


OPERATORS: dict[str, Callable[..., Any]] = {
    "index.Tensor": index,
    "index.Tensor_out": into(index),
    "_unsafe_index.Tensor": index,
    "_index_put_impl_": index_put_,
    "gather": gather,
    "gather.out": apart(into(gather, casts=False)),
    "index_select": index_select,
    "index_select.out": apart(into(index_select)),
    "index_fill_.int_Scalar": index_fill_,
    "index_fill_.int_Tensor": index_fill_,
    **_forms(
        "scatter",
        {name: f"{name}_out" for name in ("src", "value", "reduce", "value_reduce")},
        scatter_,
    ),
    **_forms("scatter_add", {"": "out"}, scatter_add_, scatter_add),
    **_forms("scatter_reduce", {"two": "two_out"}, scatter_reduce_),
    **_forms("index_add", {"": "out"}, index_add_, index_add),
    **_forms("index_reduce", {"": "out"}, index_reduce_),
    **_forms("index_copy", {"": "out"}, index_copy_),
}
"""Implementations by aten name."""
