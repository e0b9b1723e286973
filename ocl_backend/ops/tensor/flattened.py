"""Indexing of flattened tensors: `take` and `put_`."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.checks import check_index
from ocl_backend.dispatch.outputs import apart, into
from ocl_backend.kernels.scatter import read, write
from ocl_backend.ops.tensor.indexing import locate_indices


def take(x: Tensor, index: Tensor) -> Tensor:
    """Return the items of the flattened x that `index` names, in its shape."""
    check_index("take", index)
    flat = x.reshape(-1)
    shape, locate = locate_indices(flat, [index], "take")
    return read(flat, locate, torch.empty(shape, dtype=x.dtype, device=x.device))


def put_(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write `source` to the items of the flattened x that `index` names."""
    check_index("put", index)
    flat = x.contiguous().view(-1)
    shape, locate = locate_indices(flat, [index.reshape(-1)], "put")
    if prod(shape):
        write(flat, locate, source.reshape(-1), "add" if accumulate else "assign")
    return x if flat.data_ptr() == x.data_ptr() else x.copy_(flat.view(x.shape))


OPERATORS: dict[str, Callable[..., Any]] = {
    "take": take,
    "take.out": apart(into(take)),
    "put_": put_,
}
"""Implementations by aten name."""
