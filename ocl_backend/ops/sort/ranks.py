"""Items of a rank along one dimension: k-th smallest ones, medians, and the commonest item.

Selection is `digit_select`'s; the commonest item follows from a sort.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import apart, into
from ocl_backend.kernels.digit_select import Sought, selected
from ocl_backend.kernels.dimensions import axis_of
from ocl_backend.ops.sort.sorting import sort

Found = tuple[Tensor, Tensor]
"""Items, and where they are."""


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Found:
    """Return the commonest item along `dim`, of several the smallest, and one of its positions."""
    dim = axis_of(dim, x.dim())
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    values, order = sort(x, dim=dim)
    size = x.shape[dim]
    starts = torch.ones_like(values, dtype=torch.bool)
    later = values.narrow(dim, 1, size - 1)
    starts.narrow(dim, 1, size - 1).copy_(later != values.narrow(dim, 0, size - 1))
    shape = [size if axis == dim else 1 for axis in range(x.dim())]
    position = torch.arange(size, device=x.device).view(shape)
    length = position - torch.where(starts, position, 0).cummax(dim)[0]
    last = length.argmax(dim, keepdim=True)
    found = values.gather(dim, last), order.gather(dim, last)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Found:
    """Return the k-th smallest item along `dim`, counted from 1, and its first position.

    Raises:
        RuntimeError: there is no k-th item.
    """
    size = x.shape[dim] if x.dim() else 1
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue: selected number k={k} out of range for {size} items")
    return _along(x, dim, keepdim, "rank", k - 1)


def median_dim(x: Tensor, dim: int = -1, keepdim: bool = False) -> Found:
    """Return the lower median along `dim` and its first position; a NaN wins."""
    return _along(x, dim, keepdim, "median")


def nanmedian_dim(x: Tensor, dim: int = -1, keepdim: bool = False) -> Found:
    """Return the lower median along `dim` of the items that are not NaN, and its first position."""
    return _along(x, dim, keepdim, "nanmedian")


def _along(x: Tensor, dim: int, keepdim: bool, rule: Sought, rank: int = 0) -> Found:
    axis = axis_of(dim, x.dim())
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    items, places = selected(x, axis, rule, rank)
    return (items.unsqueeze(axis), places.unsqueeze(axis)) if keepdim else (items, places)


def median(x: Tensor) -> Tensor:
    """Return the lower median of all items; a NaN wins, and is the median of none."""
    return _of_all(x, "median")


def nanmedian(x: Tensor) -> Tensor:
    """Return the lower median of all items that are not NaN; NaN is the median of none."""
    return _of_all(x, "nanmedian")


def _of_all(x: Tensor, rule: Sought) -> Tensor:
    if not x.numel():  # NaN as torch casts it to x's dtype
        return torch.tensor(torch.nan).to(x.dtype).to(x.device)
    return selected(x.reshape(-1), 0, rule)[0]


OPERATORS: dict[str, Callable[..., Any]] = {
    "mode": mode,
    "mode.values": into(mode, "values", "indices", casts=False),
    "kthvalue": kthvalue,
    "kthvalue.values": apart(into(kthvalue, "values", "indices", casts=False)),
    "median": median,
    "median.dim": median_dim,
    "median.dim_values": into(median_dim, "values", "indices", casts=False),
    "nanmedian": nanmedian,
    "nanmedian.dim_values": into(nanmedian_dim, "values", "indices", casts=False),
}
"""Implementations by aten name."""
