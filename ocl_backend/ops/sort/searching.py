"""Bisection of sorted rows: `searchsorted` and `bucketize`, a work-item for each value.

As on the CPU, a comparison with NaN is false, so a NaN belongs after the whole row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import resized
from ocl_backend.dtypes import UnsupportedDtypeError, dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch

BISECT = """\
long low = 0, high = size;
while (low < high) {
    const long middle = (low + high) / 2;
    if (LOAD_edges(edges_at + middle) %s x)
        high = middle;
    else
        low = middle + 1;
}
const long found = low;
"""

COPIED = (
    "searchsorted(): boundary tensor is non-contiguous, this will lower the performance due to "
    "extra data copy when converting non-contiguous tensor to contiguous, please use contiguous "
    "boundary tensor if possible. This message will only appear once per program."
)
"""torch's warning, which users' filters name; Python's filters show it once."""


@cache
def _kernel(dtype: torch.dtype, out: torch.dtype, right: bool) -> Kernel:
    return Kernel(
        "searchsorted",
        dtype_of(dtype).value,
        (
            Operand("x", dtype),
            Operand("edges", dtype, "address"),
            Operand("out", out, "output", value="long", result="found"),
            Scalar("size", "long"),
        ),
        BISECT % (">" if right else ">="),
        scalar_only=True,
        work=16,
    )


def searchsorted(
    edges: Tensor,
    values: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return how many items of each sorted row come before each value.

    Args:
        edges: the sorted rows, along the last dimension: one row, or one for each row of `values`.
        values: what is looked for; a number is looked for in one row.
        out_int32: int32 is returned, else int64.
        right: items equal to a value come before it.
        side: "right" says the same as `right`, "left" the opposite.
        sorter: positions that put `edges` in order; None: they are.
        out: takes the result, whose dtype it has.

    Raises:
        RuntimeError: shapes, dtypes or sides do not fit each other.
        UnsupportedDtypeError: no kernel compares these.
    """
    _check(edges, values, side, right, sorter)
    dtype = torch.int32 if out_int32 else torch.int64
    if out is not None and out.dtype is not dtype:
        raise RuntimeError(f"searchsorted: out has {out.dtype}, not {dtype}")
    common = torch.result_type(edges, values)
    if common is torch.bool or common.is_complex:
        raise UnsupportedDtypeError(f"searchsorted of {common}")
    if not isinstance(values, Tensor):
        values = torch.full((), values, dtype=common, device=edges.device)
    if sorter is not None:
        edges = edges.gather(-1, sorter)
    elif not edges.is_contiguous():
        warnings.warn(COPIED, stacklevel=3)
    edges, values = edges.to(common).contiguous(), values.to(common)
    out = torch.empty_like(values, dtype=dtype) if out is None else resized(out, values.shape)
    steps = (*edges.stride()[:-1], 0) if edges.dim() > 1 else (0,) * values.dim()
    kernel = _kernel(common, dtype, right or side == "right")
    launch(kernel, values.shape, (values, edges, out, edges.shape[-1]), {"edges": steps})
    return out


def _check(
    edges: Tensor, values: Tensor | float, side: str | None, right: bool, sorter: Tensor | None
) -> None:
    """Refuse what does not fit; the CPU is asked for its words."""
    if side not in (None, "left", "right") or (side == "left" and right):
        raise RuntimeError(f"searchsorted: side {side}, right {right}")
    if sorter is not None and (sorter.shape != edges.shape or sorter.dtype is not torch.int64):
        raise RuntimeError(f"searchsorted: sorter of {sorter.dtype}, {tuple(sorter.shape)}")
    rows = values.shape[:-1] if isinstance(values, Tensor) and values.dim() else None
    if edges.dim() != 1 and (edges.dim() == 0 or rows != edges.shape[:-1]):
        raise RuntimeError(f"searchsorted: rows {tuple(edges.shape)} do not fit {rows}")


def bucketize(
    values: Tensor | float,
    edges: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the bucket of each value between sorted edges.

    Args:
        values: what is looked for.
        edges: sorted, one dimension.
        out_int32: int32 is returned, else int64.
        right: a value that is an edge belongs to the bucket after it.
        out: takes the result, whose dtype it has.

    Raises:
        RuntimeError: the edges have another number of dimensions, or `out` another dtype.
    """
    if edges.dim() != 1:
        raise RuntimeError(f"bucketize: edges of {edges.dim()} dimensions")
    return searchsorted(edges, values, out_int32=out_int32, right=right, out=out)


OPERATORS: dict[str, Callable[..., Any]] = {
    "searchsorted.Tensor": searchsorted,
    "searchsorted.Tensor_out": searchsorted,
    "searchsorted.Scalar": searchsorted,
    "searchsorted.Scalar_out": searchsorted,
    "bucketize.Tensor": bucketize,
    "bucketize.Tensor_out": bucketize,
    "bucketize.Scalar": bucketize,
    "bucketize.Scalar_out": bucketize,
}
"""Implementations by aten name."""
