"""Negative log likelihood and its gradient, which cross entropy ends in.

The other losses are torch's own decompositions into pointwise operators and reductions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.launch import Argument, Launch, Pointer, prepare
from ocl_backend.ops.matmul import resized
from oclgen.device import devices
from oclgen.render import render

REDUCTIONS: tuple[Literal["none", "mean", "sum"], ...] = ("none", "mean", "sum")
"""By torch's number."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Everything that decides the kernel; x is [rows, classes, inner]."""

    direction: Literal["fwd", "bwd"]
    device: int
    dtype: torch.dtype
    reduction: int
    weighted: bool
    ignore: int
    rows: int
    classes: int
    inner: int


def nll_loss_out(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    *,
    output: Tensor,
    total_weight: Tensor,
) -> tuple[Tensor, Tensor]:
    """Write the loss of log probabilities x [rows?, classes, ...] at target [rows?, ...].

    The total of the weights that counted goes to `total_weight`, for the gradient.
    """
    resized(output, target.shape if REDUCTIONS[reduction] == "none" else ())
    resized(total_weight, ())
    if target.numel() == 0:
        total_weight.zero_()
        output.fill_(float("nan") if REDUCTIONS[reduction] == "mean" else 0)
        return output, total_weight
    kind = _kind("fwd", x, weight, reduction, ignore_index)
    x, target = x.contiguous(), target.contiguous()
    pointers = (x, target, weight, output, total_weight)
    _prepared(kind)(*(0 if t is None else t.data_ptr() for t in pointers))
    return output, total_weight


def nll_loss_backward_out(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
    *,
    grad_input: Tensor,
) -> Tensor:
    """Write the gradient of x [rows?, classes, ...] to `grad_input`."""
    resized(grad_input, x.shape)
    if grad_input.numel() == 0:
        return grad_input
    kind = _kind("bwd", x, weight, reduction, ignore_index)
    grad, target = grad.contiguous(), target.contiguous()
    pointers = (grad, grad_input, target, weight, total_weight)
    _prepared(kind)(*(0 if t is None else t.data_ptr() for t in pointers))
    return grad_input


def nll_loss2d(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Return the loss of x [batch, classes, h, w] at target [batch, h, w], and the weights."""
    output, total_weight = x.new_empty(()), x.new_empty(())
    return nll_loss_out(
        x, target, weight, reduction, ignore_index, output=output, total_weight=total_weight
    )


def nll_loss2d_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """Return the gradient of x [batch, classes, h, w]."""
    grad_x = x.new_empty(x.shape)
    return nll_loss_backward_out(
        grad, x, target, weight, reduction, ignore_index, total_weight, grad_input=grad_x
    )


def _kind(
    direction: Literal["fwd", "bwd"], x: Tensor, weight: Tensor | None, reduction: int, ignore: int
) -> Kind:
    rows, classes, *inner = x.shape if x.dim() > 1 else (1, *x.shape)
    return Kind(
        direction, x.get_device(), x.dtype, reduction, weight is not None, ignore,
        rows, classes, prod(inner),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _prepared(kind: Kind) -> Launch:
    limits = devices()[kind.device].limits
    local_items = 1 if limits.kind == "cpu" else min(256, limits.max_work_group)
    dtype, reduction = dtype_of(kind.dtype), REDUCTIONS[kind.reduction]
    source = render(
        "nll_loss", package="ocl_backend", direction=kind.direction, reduction=reduction,
        weighted=kind.weighted, dtype=dtype, rows=kind.rows, classes=kind.classes,
        inner=kind.inner, ignore=kind.ignore, local_items=local_items,
    )  # fmt: skip
    item, label = Pointer(dtype.item_bytes), Pointer(torch.int64.itemsize)
    arguments: dict[str, list[Argument]] = {
        "fwd": [item, label, item, item, item],
        "bwd": [item, item, label, item, item],
    }
    reduces = kind.direction == "fwd" and reduction != "none"
    items = kind.rows * kind.inner * (1 if kind.direction == "fwd" else kind.classes)
    return prepare(
        kind.device,
        source,
        f"nll_loss_{kind.direction}",
        (local_items if reduces else items,),
        arguments[kind.direction],
        (local_items,) if reduces else None,
    )


OPERATORS: dict[str, Callable[..., Any]] = {
    "nll_loss_forward.output": nll_loss_out,
    "nll_loss_backward.grad_input": nll_loss_backward_out,
    "nll_loss2d_forward": nll_loss2d,
    "nll_loss2d_backward": nll_loss2d_backward,
}
"""Implementations by aten name."""
