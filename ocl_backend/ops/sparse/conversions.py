"""Conversions from strided tensors to sparse ones, and between sparse formats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ocl_backend.dtypes import UnsupportedDtypeError
from ocl_backend.runtime.devices import device


def on_any_device(overload: Any, key: str, *args: Any, **kwargs: Any) -> Any:
    """Call the kernel that torch has under `key`, one that calls operators on its tensors alone."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    given = (leaf for leaf in tree_leaves((args, kwargs)))
    places = (x.device if isinstance(x, Tensor) else x for x in given)
    place = next((x for x in places if isinstance(x, torch.device) and x.type == "ocl"), None)
    with device(place):  # a new sparse tensor lies on the current one
        return overload.redispatch(keys, *args, **kwargs)


def row_starts(rows: Tensor, count: int, *, out_int32: bool = False) -> Tensor:
    """Return where each of `count` rows begins among sorted row numbers, and their end."""
    if rows.dim() != 1:
        raise UnsupportedDtypeError("rows of several matrices")
    edges = torch.arange(count + 1, dtype=rows.dtype, device=rows.device)
    return torch.searchsorted(rows.contiguous(), edges, out_int32=out_int32)


def row_numbers(
    starts: Tensor, columns: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Return [2, items]: the row, then the column, of each item; `transpose` swaps them."""
    if starts.dim() != 1:
        raise UnsupportedDtypeError("rows of several matrices")
    items = torch.arange(len(columns), dtype=starts.dtype, device=starts.device)
    rows = torch.searchsorted(starts[1:].contiguous(), items, right=True, out_int32=out_int32)
    pair = [rows, columns.to(rows.dtype)]
    return torch.stack(pair[::-1] if transpose else pair)


def _from_strided(name: str) -> Callable[..., Any]:
    base, _, label = name.partition(".")
    overload = getattr(getattr(torch.ops.aten, base), label or "default")
    return partial(on_any_device, overload, "CPU")


OPERATORS: dict[str, Callable[..., Any]] = {
    "_convert_indices_from_coo_to_csr": row_starts,
    "_convert_indices_from_csr_to_coo": row_numbers,
    **{
        name: _from_strided(name)
        for name in (
            *("_to_sparse", "_to_sparse.sparse_dim"),
            *("_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc"),
        )
    },
}
"""Implementations by aten name."""
