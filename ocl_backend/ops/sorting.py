"""Sorting along one dimension, and what follows from it: topk, medians, unique values.

A bitonic network (Batcher 1968, "Sorting networks and their applications") of compare-exchange
launches; ties are broken by position, so every sort is stable. A NaN counts as the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.ops.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.ops.outputs import into

EXCHANGE = """\
const long low = 2 * distance * (pair / distance) + pair % distance;
const long high = low + distance;
const bool rising = (low & block) == 0;
const T a = LOAD_keys(keys_at + low), b = LOAD_keys(keys_at + high);
const long i = LOAD_order(order_at + low), j = LOAD_order(order_at + high);
if (before(b, j, a, i, size) == rising) {
    STORE_keys(keys_at + low, b);
    STORE_keys(keys_at + high, a);
    STORE_order(order_at + low, j);
    STORE_order(order_at + high, i);
}
"""

BEFORE = """\
// whether item a, at position i, comes before b, at j; positions from `size` on are padding
bool before(const T a, const long i, const T b, const long j, const long size)
{
    if (i >= size || j >= size)
        return i < j;
    if (a == b || (a != a && b != b))
        return i < j;
    return %s;
}
"""

RISING = "b != b || a < b"
FALLING = "a != a || (b == b && a > b)"


def sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the items along `dim` in order, and their positions as int64."""
    if x.dim() == 0 or not x.numel():
        return x.clone(), torch.zeros(x.shape, dtype=torch.int64, device=x.device)
    axis = dim % x.dim()
    size = x.shape[axis]
    padded = 1 << (size - 1).bit_length()
    rows = x.movedim(axis, -1)
    shape = (*rows.shape[:-1], padded)
    keys = torch.empty(shape, dtype=x.dtype, device=x.device)
    keys.narrow(-1, 0, size).copy_(rows)
    positions = torch.arange(padded, device=x.device)
    order = positions.expand(shape).contiguous()
    _network(keys, order, size, padded, descending)
    results = (part.narrow(-1, 0, size).movedim(-1, axis) for part in (keys, order))
    values, indices = (part.contiguous() for part in results)
    return values, indices


def _network(keys: Tensor, order: Tensor, size: int, padded: int, descending: bool) -> None:
    value = dtype_of(keys.dtype).value
    helper = (BEFORE % (FALLING if descending else RISING)).replace("const T", f"const {value}")
    kernel = Kernel(
        "exchange",
        value,
        (
            Operand("pair", role="position"),
            Operand("keys", keys.dtype, "address"),
            Operand("order", torch.int64, "address", "long"),
            *(Scalar(label, "long") for label in ("block", "distance", "size")),
        ),
        EXCHANGE,
        helper,
        scalar_only=True,
    )
    shape = (*keys.shape[:-1], padded // 2)
    none = (0,) * (keys.dim() - 1)
    walked = {
        "pair": (*none, 1),
        "keys": (*keys.stride()[:-1], 0),
        "order": (*order.stride()[:-1], 0),
    }
    block = 2
    while block <= padded:
        distance = block // 2
        while distance:
            # in the last block everything rises: `low & block` is 0 for all
            launch(kernel, shape, (keys, order, block, distance, size), walked)
            distance //= 2
        block *= 2


def topk(
    x: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002 (the schema's name)
) -> tuple[Tensor, Tensor]:
    """Return the k largest or smallest items along `dim` in order, and their positions."""
    size = x.shape[dim] if x.dim() else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"topk: k={k} is not within the {size} items along dimension {dim}")
    values, indices = sort(x, dim=dim, descending=largest)
    if x.dim() == 0:
        return values, indices
    return values.narrow(dim, 0, k).contiguous(), indices.narrow(dim, 0, k).contiguous()


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the k-th smallest item along `dim`, counted from 1, and its position."""
    if x.dim() == 0:
        return sort(x)
    parts = (part.select(dim, k - 1) for part in sort(x, dim=dim))
    values, indices = (part.unsqueeze(dim) if keepdim else part for part in parts)
    return values.clone(), indices.clone()


def median_dim(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the lower median along `dim` and its position; a NaN wins."""
    if x.dim() == 0:
        return sort(x)
    found = kthvalue(x, (x.shape[dim] + 1) // 2, dim, keepdim)
    bad = x.isnan() if x.dtype.is_floating_point else None
    if bad is None:
        return found
    any_bad = bad.any(dim, keepdim)
    where = bad.to(torch.int32).argmax(dim, keepdim)
    return found[0].masked_fill_(any_bad, torch.nan), torch.where(any_bad, where, found[1])


def median(x: Tensor) -> Tensor:
    """Return the lower median of all items; a NaN wins."""
    return median_dim(x.reshape(-1), 0)[0]


OPERATORS: dict[str, Callable[..., Any]] = {
    "sort.stable": sort,
    "sort.values_stable": into(sort, "values", "indices"),
    "topk": topk,
    "topk.values": into(topk, "values", "indices"),
    "kthvalue": kthvalue,
    "kthvalue.values": into(kthvalue, "values", "indices"),
    "median": median,
    "median.dim": median_dim,
    "median.dim_values": into(median_dim, "values", "indices"),
}
"""Implementations by aten name."""
