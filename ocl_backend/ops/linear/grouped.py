"""`torch.nn.functional.grouped_mm`: products of one matrix each, as of the experts of a mixture.

How many rows a product has lies in the device's memory, so on GPUs one launch reads it there: the
host does not wait, and the call is the same whatever the numbers are. Processors, whose memory the
host reads at once, run torch's loop of products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch import settings
from ocl_backend.dispatch.tuned import tuned_call
from ocl_backend.dtypes import STORAGE
from ocl_backend.ops.linear.factors import Matrix, layout
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.problem import GemmProblem

COMPOSED = torch._C.DispatchKey.CompositeExplicitAutograd


def grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the products of groups, whose ends `offs` [groups] has, int32 and rising.

    Args:
        a: [rows, k] of all groups, or [m, rows], if b is of rows, too.
        b: [groups, k, n], or [rows, n].
        offs: where the rows of each group end.
        bias: none; torch refuses one.
        out_dtype: that of a.

    Returns:
        [rows, n], zero behind the last end, where torch's other kernels write nothing; or
        [groups, m, n], zero of groups without rows.

    Raises:
        RuntimeError, ValueError: torch's, of sizes, dtypes and strides that it refuses.
    """
    if bias is not None or offs is None or not _is_served(a, b, offs, out_dtype):
        composed: Tensor = torch.ops.aten._grouped_mm.default._op_dk(
            COMPOSED, a, b, offs, bias, out_dtype
        )
        return composed
    return _of_rows(a, b, offs) if b.dim() == 3 else _of_steps(a, b, offs)


def _is_served(a: Tensor, b: Tensor, offs: Tensor, out_dtype: torch.dtype | None) -> bool:
    """Say whether rows of a are grouped, of floats, on a GPU."""
    dtypes_fit = a.dtype in STORAGE and a.dtype is b.dtype and out_dtype in (None, a.dtype)
    if not dtypes_fit or offs.dtype is not torch.int32 or a.dim() != 2 or offs.dim() != 1:
        return False
    if b.dim() == 3:
        sizes_fit = b.shape[0] == offs.shape[0] and a.shape[1] == b.shape[1]
    else:
        sizes_fit = b.dim() == 2 and a.shape[1] == b.shape[0]
    if not sizes_fit or 0 in (*a.shape, *b.shape, *offs.shape):
        return False
    places = {tensor.device for tensor in (a, b, offs)}
    return len(places) == 1 and devices()[a.get_device()].limits.kind != "cpu"


def _of_rows(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    """Return [rows, n], the product of each row of a with its group's matrix of b."""
    rows, k = a.shape
    groups, _, n = b.shape
    a = a if _lies_in_rows(a) else a.contiguous()
    right = layout(b.shape, b.stride())
    if right is None:
        b = b.contiguous()
        right = Matrix(False, n, k * n)
    out = a.new_empty((rows, n))
    problem = GemmProblem(
        ceil_div(rows, groups), n, k, _dtype(a), trans_b=right.transposed, batch=groups,
        free=frozenset("m"), ragged="m",
    )  # fmt: skip
    sizes = {"rows": rows, "ld_a": a.stride(0), "ld_b": right.ld, "batch_b": right.step, "ld_c": n}
    _run(a, b, out, offs, problem, sizes)
    return out


def _of_steps(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    """Return [groups, m, n], the product of each group's columns of a with its rows of b."""
    (m, rows), n, groups = a.shape, b.shape[1], offs.shape[0]
    turned = a.t() if _lies_in_rows(a.t()) else a.t().contiguous()
    b = b if _lies_in_rows(b) else b.contiguous()
    out = a.new_empty((groups, m, n))
    problem = GemmProblem(
        m, n, ceil_div(rows, groups), _dtype(a), trans_a=True, batch=groups,
        free=frozenset("k"), ragged="k",
    )  # fmt: skip
    sizes = {"rows": rows, "ld_a": turned.stride(0), "ld_b": b.stride(0), "ld_c": n}
    _run(turned, b, out, offs, problem, {**sizes, "batch_c": m * n})
    return out


def _lies_in_rows(matrix: Tensor) -> bool:
    return matrix.stride(1) == 1 and matrix.stride(0) >= matrix.shape[1]


def _dtype(a: Tensor) -> str:
    is_rounded = settings.matmul.allow_tf32 and a.dtype is torch.float32
    return "tf32" if is_rounded else STORAGE[a.dtype]


def _run(
    a: Tensor, b: Tensor, out: Tensor, offs: Tensor, problem: GemmProblem, sizes: dict[str, int]
) -> None:
    call = tuned_call("_grouped_mm", a.get_device(), problem, tuple(sizes.items()))
    ends = offs.contiguous()
    call(a.data_ptr(), b.data_ptr(), out.data_ptr(), ends.data_ptr())


OPERATORS: dict[str, Callable[..., Any]] = {"_grouped_mm": grouped_mm}
"""Implementations by aten name."""
