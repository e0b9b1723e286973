"""What follows from sorting one dimension: the commonest item, and the median without NaNs.

Sorting itself, topk and the plain median are in `sorting`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.kernels.dimensions import axis_of
from ocl_backend.ops.sort.sorting import median_of_none, middle_of_sorted, sort
from oclgen.opencl.device import devices


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
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


def nanmedian_dim(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the lower median along `dim` of the items that are not NaN, and its position."""
    dim = axis_of(dim, x.dim())
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    if x.numel() and devices()[x.get_device()].limits.kind != "cpu":
        return middle_of_sorted(x, dim, keepdim, skips_nans=True)
    values, order = sort(x, dim=dim)  # NaNs come last
    count = (values == values).sum(dim, keepdim=True)
    middle = ((count - 1) // 2).clamp_(min=0)
    found = values.gather(dim, middle), order.gather(dim, middle)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def nanmedian(x: Tensor) -> Tensor:
    """Return the lower median of all items that are not NaN; NaN is the median of none."""
    return nanmedian_dim(x.reshape(-1), 0)[0] if x.numel() else median_of_none(x)


OPERATORS: dict[str, Callable[..., Any]] = {
    "mode": mode,
    "mode.values": into(mode, "values", "indices", casts=False),
    "nanmedian": nanmedian,
    "nanmedian.dim_values": into(nanmedian_dim, "values", "indices", casts=False),
}
"""Implementations by aten name."""
