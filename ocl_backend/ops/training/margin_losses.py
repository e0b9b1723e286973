"""Margin losses of a class for each row, and their gradients: a kernel walks all rows.

Those of several classes for each row are in `label_margins`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import row_passes
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar
from ocl_backend.kernels.row_passes import RowPass
from ocl_backend.ops.reduce.reductions import MEAN, SUM, reduce

NONE, AVERAGE, TOTAL = range(3)
"""Torch's numbers of reductions."""

BEGIN = """\
const long named = LOAD_target(row);
if ((named < 0 || named >= items) && lane == 0)
    note_fault(faults_data, operator, named, items, 1);
const INDEX label = clamp(named, 0L, (long)items - 1);
const T bound = margin - %(known)s, share = %(share)s;
"""
OTHERS = "(place == (S)(label) ? (T)(0) : %s)"
"""0 at a row's own class, and something at all others."""


def multi_margin_loss(
    x: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:  # fmt: skip
    """Return by how much other classes of x [rows?, classes] come too near to target [rows?].

    Args:
        x: floats.
        target: a class of each row.
        p: the power of the distances, 1 or 2.
        margin: what is near.
        weight: of each class, or None.
        reduction: torch's number.

    Raises:
        RuntimeError: target or weight do not fit x, or p has another value.
    """
    _check(x, target, p, weight)
    dtype = x.dtype if reduction == NONE else torch.promote_types(x.dtype, torch.float32)
    losses = torch.empty(target.shape, dtype=dtype, device=x.device)
    work = _forward(x.dtype, dtype, float(p), weight is not None)
    _run(work, x, target, weight, margin, losses)
    if reduction == NONE:
        return losses
    return reduce(MEAN if reduction == AVERAGE else SUM, losses, None, False, x.dtype)


def multi_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, p: float, margin: float, weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of x [rows?, classes], whose row's class is target [rows?]."""
    _check(x, target, p, weight)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    work = _backward(x.dtype, float(p), weight is not None, reduction)
    _run(work, x, target, weight, margin, grad.contiguous(), out.view(_matrix(x)))
    return out


def _check(x: Tensor, target: Tensor, p: float, weight: Tensor | None) -> None:
    rows, classes = _matrix(x)
    fits = x.dim() <= 2 and classes and target.numel() == rows and target.dim() < 2
    if not fits:
        raise RuntimeError(f"multi_margin_loss of {[*x.shape]} at {[*target.shape]}")
    if p not in (1, 2):
        raise RuntimeError("only p == 1 and p == 2 supported")
    if weight is not None and weight.numel() != classes:
        raise RuntimeError(f"multi_margin_loss: {weight.numel()} weights of {classes} classes")


def _matrix(x: Tensor) -> tuple[int, int]:
    classes = x.shape[-1] if x.dim() else 1
    return (x.numel() // classes if classes else 0), classes


def _run(
    work: RowPass, x: Tensor, target: Tensor, weight: Tensor | None, margin: float, *rest: Tensor
) -> None:
    device, shape = x.get_device(), _matrix(x)
    if not x.numel():
        return
    rows = x.reshape(shape) if x.dim() < 2 or x.stride(-1) == 1 else x.contiguous()
    weights = [] if weight is None else [weight.contiguous()]
    record, number = faults.record(device), faults.NUMBERS["multi_margin_loss"]
    labels = target.long().contiguous()  # bytes are targets too
    given: list[Tensor | float] = [rows, labels, *weights, *rest, record, margin, number]
    row_passes.launch(work, shape, given)
    faults.check(device)


@cache
def _forward(dtype: torch.dtype, result: torch.dtype, p: float, weighted: bool) -> RowPass:
    excess = "fmax(bound + x, (T)(0))"
    term = excess if p == 1 else f"{excess} * {excess}"
    finish = "STORE_out(row, total_0 * share / items);"
    out = Operand("out", result, "address")
    return _pass("fwd", dtype, weighted, "1", [out], (OTHERS % term,), finish, "")


@cache
def _backward(dtype: torch.dtype, p: float, weighted: bool, reduction: int) -> RowPass:
    slope = "(bound + x > (T)(0) ? (T)(1) : (T)(0))"
    slope = OTHERS % (slope if p == 1 else "(T)(2) * fmax(bound + x, (T)(0))")
    share = f"LOAD_grad({'row' if reduction == NONE else '0'}) / items"
    share += " / rows" if reduction == AVERAGE else ""
    each = f"const T out = share * (place == (S)(label) ? (T)(-total_0) : {slope});"
    operands = [Operand("grad", dtype, "address"), Operand("out", dtype, "output")]
    return _pass("bwd", dtype, weighted, share, operands, (slope,), "", each)


def _pass(
    name: str, dtype: torch.dtype, weighted: bool, share: str, rest: list[Operand],
    sums: tuple[str, ...], finish: str, each: str,
) -> RowPass:  # fmt: skip
    kind = dtype_of(dtype)
    weights = [Operand("weight", dtype, "address")] if weighted else []
    begin = BEGIN % {
        "known": kind.load("x_data", "x_row + label"),
        "share": f"{share} * LOAD_weight(label)" if weighted else share,
    }
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("x", dtype),
        Operand("target", torch.int64, "address", "long"),
        *weights,
        *rest,
        Operand("faults", torch.int64, "address", "long"),
        Scalar("margin", kind.value),
        Scalar("operator", "long"),
    )
    kernel = Kernel(f"multi_margin_{name}", kind.value, parameters, begin + finish, faults.NOTE)
    return RowPass(kernel, sums, begin, finish, each)


OPERATORS: dict[str, Callable[..., Any]] = {
    "multi_margin_loss": multi_margin_loss,
    "multi_margin_loss.out": into(multi_margin_loss),
    "multi_margin_loss_backward": multi_margin_loss_backward,
    "multi_margin_loss_backward.grad_input": into(multi_margin_loss_backward, "grad_input"),
}
"""Implementations by aten name."""
