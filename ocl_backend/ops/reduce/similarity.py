"""Which comparisons of rows are one launch, above autograd: cosines, distances, cosine losses.

torch composes them of differences, norms, bounds, quotients and sums. Where nothing is recorded,
all sums of two rows are made in one reading of both.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.composite import COMPOSED, are_plain, is_transformed
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import row_passes
from ocl_backend.kernels.dimensions import broadcast_shapes
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar
from ocl_backend.kernels.row_passes import RowPass
from ocl_backend.ops.reduce.reductions import MEAN, SUM, reduce
from oclgen.opencl.device import devices

SERVED = torch.float32, torch.float16, torch.bfloat16, torch.float64
NONE, AVERAGE = range(2)
"""Torch's numbers of reductions."""


COSINE = """\
const T a = sqrt(total_0), b = sqrt(total_1);
STORE_out(row, total_2 / (a < eps ? eps : a) / (b < eps ? eps : b));
"""
LOSS = """\
const T cosine = total_2 / sqrt((total_0 + (T)(1e-12)) * (total_1 + (T)(1e-12)));
const T named = LOAD_target(row), above = cosine - margin;
STORE_out(row, named == 1 ? 1 - cosine : named == -1 && !(above < 0) ? above : (T)0);
"""
SUMS = "x * x", "y * y", "x * y"
DISTANCES = {
    1.0: ("fabs(x - y + eps)", "STORE_out(row, total_0);"),
    2.0: ("(x - y + eps) * (x - y + eps)", "STORE_out(row, sqrt(total_0));"),
}
"""By order: what is added up, and the statement that writes the norm."""

_libraries: list[Any] = []


def register() -> None:
    """Let these functions serve torch's operators on the device, with autograd or without."""
    library: Any = torch.library.Library  # torch types neither the class nor its methods
    _libraries.append(library("aten", "IMPL"))
    for serve in (cosine_similarity, pairwise_distance, cosine_embedding_loss):
        for key in ("AutogradPrivateUse1", "PrivateUse1"):
            _libraries[0].impl(serve.__name__, serve, key)


def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosines of the angles between rows of `a` and `b` along `dim`.

    Args:
        a: floats.
        b: of a shape that broadcasts with a's.
        dim: goes.
        eps: the least that a row's norm counts.
    """
    if rows := _rows_of(a, b, dim):
        return _launched(_pass("cosine", a.dtype, SUMS, COSINE, "eps"), rows, a.dtype, eps)
    composed: Tensor = torch.ops.aten.cosine_similarity.default._op_dk(COMPOSED, a, b, dim, eps)
    return composed


def pairwise_distance(
    a: Tensor, b: Tensor, p: float = 2, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Return the norms of the differences of rows of `a` and `b` along the last dimension.

    Args:
        a: floats.
        b: of a shape that broadcasts with a's.
        p: the order of the norm.
        eps: is added to each difference.
        keepdim: whether the last dimension stays.
    """
    if p in DISTANCES and (rows := _rows_of(a, b, -1)):
        term, finish = DISTANCES[p]
        out = _launched(_pass("distance", a.dtype, (term,), finish, "eps"), rows, a.dtype, eps)
        return out.unsqueeze(-1) if keepdim else out
    composed: Tensor = torch.ops.aten.pairwise_distance.default._op_dk(
        COMPOSED, a, b, p, eps, keepdim
    )
    return composed


def cosine_embedding_loss(
    a: Tensor, b: Tensor, target: Tensor, margin: float = 0, reduction: int = AVERAGE
) -> Tensor:
    """Return the loss of rows that are to be alike (a target of 1) or not (-1).

    Args:
        a: floats [rows, items].
        b: of a's shape.
        target: [rows].
        margin: the cosine up to which rows are not alike.
        reduction: torch's number.
    """
    fits = a.dim() == 2 and a.shape == b.shape and target.shape == a.shape[:1]
    if fits and are_plain([target]) and target.device == a.device and (rows := _rows_of(a, b, -1)):
        dtype = a.dtype if reduction == NONE else torch.promote_types(a.dtype, torch.float32)
        work = _pass("cosine_loss", a.dtype, SUMS, LOSS, "margin", dtype, target.dtype)
        losses = _launched(work, rows, dtype, target.contiguous(), margin)
        if reduction == NONE:
            return losses
        return reduce(MEAN if reduction == AVERAGE else SUM, losses, None, False, a.dtype)
    composed: Tensor = torch.ops.aten.cosine_embedding_loss.default._op_dk(
        COMPOSED, a, b, target, margin, reduction
    )
    return composed


def _rows_of(a: Tensor, b: Tensor, dim: int) -> list[Tensor] | None:
    """Return both with `dim` last where a kernel serves them: rows are dense and not too long."""
    if not _is_served(a, b):
        return None
    shape, rows = tuple(a.shape), [a, b]
    if shape != tuple(b.shape):
        shape = tuple(broadcast_shapes(a.shape, b.shape))
        rows = [each.expand(shape) for each in rows]
    if not shape or not -len(shape) <= dim < len(shape):
        return None
    if dim not in (-1, len(shape) - 1):
        rows = [each.movedim(dim, -1) for each in rows]
    items, limits = rows[0].shape[-1], devices()[a.get_device()].limits
    is_served = 0 not in shape and row_passes.serves(items, limits)
    is_dense = all(items == 1 or each.stride(-1) == 1 for each in rows)
    return rows if is_served and is_dense else None


def _is_served(a: Tensor, b: Tensor) -> bool:
    """Say whether a kernel may compute a call: nothing is recorded, and both are alike."""
    if not are_plain((a, b)) or is_transformed():
        return False
    if a.dtype not in SERVED or b.dtype is not a.dtype or a.device != b.device:
        return False
    return not (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad))


def _launched(
    work: RowPass, rows: list[Tensor], dtype: torch.dtype, *rest: Tensor | float
) -> Tensor:
    out = torch.empty(rows[0].shape[:-1], dtype=dtype, device=rows[0].device)
    row_passes.launch(work, rows[0].shape, (*rows, out, *rest))
    return out


@cache
def _pass(
    name: str, dtype: torch.dtype, sums: tuple[str, ...], finish: str, number: str,
    result: torch.dtype | None = None, target: torch.dtype | None = None,
) -> RowPass:  # fmt: skip
    value = dtype_of(dtype).value
    targets = [Operand("target", target, "address")] if target else []
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("x", dtype),
        Operand("y", dtype),
        Operand("out", result or dtype, "address"),
        *targets,
        Scalar(number, value),
    )
    return RowPass(Kernel(name, value, parameters, finish), sums, finish=finish)
