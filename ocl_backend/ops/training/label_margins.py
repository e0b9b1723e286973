"""Margin losses of several classes for each row, and their gradients: a work-item has an item.

A row of a target names classes up to the first -1. An item that is none of them adds what it comes
too near to each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.ops.reduce.reductions import MEAN, SUM, reduce
from ocl_backend.ops.training.margin_losses import AVERAGE, NONE

EACH_LABEL = """\
const long row = item / classes * classes, place = item - row;
const T own = LOAD_x(item);
for (long k = 0; k < classes; ++k) {
    const long named = LOAD_target(row + k);
    if (named < 0)
        break;
    if (named >= classes)
        note_fault(faults_data, operator, named, classes, 1);
    const long label = min(named, classes - 1);
    const T distance = (T)1 - LOAD_x(row + label) + own;
    %s
}
"""
FORWARD = f"""\
T total = 0, mark = 0;
{EACH_LABEL % "total += fmax(distance, (T)0), mark = label == place ? (T)1 : mark;"}\
STORE_out(item, mark == (T)0 ? total / share : (T)0);
STORE_marks(item, mark);
"""
BACKWARD = f"""\
T slope = 0, times = 0;
{EACH_LABEL % "slope += distance > (T)0 ? (T)1 : (T)0, times += label == place ? (T)1 : (T)0;"}\
if (times > (T)0) {{
    slope = 0;
    #pragma unroll 8
    for (long i = row; i < row + classes; ++i)
        slope -= LOAD_marks(i) == (T)0 && (T)1 - own + LOAD_x(i) > (T)0 ? times : (T)0;
}}
STORE_out(item, slope * LOAD_grad(GRAD) / share);
"""


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the loss of x [rows?, classes], and 1 where a class is among its row's.

    A row of `target`, which has x's shape, names classes up to the first -1.
    """
    if x.shape != target.shape or x.dim() > 2 or (x.dim() and not x.shape[-1]):
        raise RuntimeError(f"inconsistent target size: {[*target.shape]} for {[*x.shape]}")
    dtype = torch.promote_types(x.dtype, torch.float32)
    marks = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    losses = torch.empty(x.shape, dtype=dtype, device=x.device)
    classes = x.shape[-1] if x.dim() else 1
    share = 1 if reduction == AVERAGE else classes
    _run(_forward(x.dtype, dtype), x, target, share, losses, marks)
    if reduction == NONE:
        return reduce(SUM, losses.view(*x.shape[:-1], classes), -1, False, x.dtype), marks
    return reduce(MEAN if reduction == AVERAGE else SUM, losses, None, False, x.dtype), marks


def multilabel_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    """Return the gradient of x [rows?, classes], as `multilabel_margin_loss` has it."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    classes = x.shape[-1] if x.dim() else 1
    share = classes * (prod(x.shape[:-1]) if reduction == AVERAGE else 1)
    work = _backward(x.dtype, reduction == NONE)
    _run(work, x, target, share, grad.contiguous(), is_target.contiguous(), out)
    return out


def _run(kernel: Kernel, x: Tensor, target: Tensor, share: int, *rest: Tensor) -> None:
    if not x.numel():
        return
    device, classes = x.get_device(), x.shape[-1] if x.dim() else 1
    number, record = faults.NUMBERS["multilabel_margin_loss"], faults.record(device)
    read = [x.contiguous(), target.long().contiguous()]
    given: list[Tensor | float] = [*read, *rest, record, number, classes, share]
    still = {p.name: (0,) for p in kernel.operands if p.role == "address"}
    launch(kernel, (x.numel(),), given, {**still, "item": (1,)})
    faults.check(device)


@cache
def _forward(dtype: torch.dtype, result: torch.dtype) -> Kernel:
    return _kernel("fwd", dtype, FORWARD, Operand("out", result, "address"), _marks(dtype))


@cache
def _backward(dtype: torch.dtype, by_row: bool) -> Kernel:
    body = BACKWARD.replace("GRAD", "item / classes" if by_row else "0")
    grad, out = Operand("grad", dtype, "address"), Operand("out", dtype, "address")
    return _kernel("bwd", dtype, body, grad, _marks(dtype), out)


def _marks(dtype: torch.dtype) -> Operand:
    return Operand("marks", dtype, "address")


def _kernel(name: str, dtype: torch.dtype, body: str, *rest: Operand) -> Kernel:
    value = dtype_of(dtype).value
    return Kernel(
        f"label_margins_{name}",
        value,
        (
            Operand("item", role="position"),
            Operand("x", dtype, "address"),
            Operand("target", torch.int64, "address", "long"),
            *rest,
            Operand("faults", torch.int64, "address", "long"),
            *(Scalar(label, "long") for label in ("operator", "classes")),
            Scalar("share", value),
        ),
        body,
        faults.NOTE,
        scalar_only=True,
        work=16,
    )


OPERATORS: dict[str, Callable[..., Any]] = {
    "multilabel_margin_loss_forward": multilabel_margin_loss,
    "multilabel_margin_loss_forward.output": into(multilabel_margin_loss, "output", "is_target"),
    "multilabel_margin_loss_backward": multilabel_margin_loss_backward,
    "multilabel_margin_loss_backward.grad_input": into(
        multilabel_margin_loss_backward, "grad_input"
    ),
}
"""Implementations by aten name."""
