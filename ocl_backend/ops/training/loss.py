"""Negative log likelihood and its gradient, which cross entropy ends in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dispatch.outputs import resized
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.memory_formats import dense
from ocl_backend.kernels.vectors import in_groups
from ocl_backend.runtime.launch import (
    Argument,
    KernelLaunch,
    LaunchSequence,
    Part,
    Pointer,
    Prepared,
    prepare,
)
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

BLOCK = {"cpu": 16384, "gpu": 4096}
"""Items of a gradient that a work-group writes."""
MOST_TERMS, TERMS = 4096, 4
"""Targets that a processor adds one behind the other, and a GPU's work-item at least."""
LONG_ROW, MOST_ROWS = 32, 1 << 17
"""Items along the last dimension that work-items walk by rows, and the most rows: GPUs have a bound
of work-groups along a second dimension."""
REDUCTIONS: tuple[Literal["none", "mean", "sum"], ...] = ("none", "mean", "sum")
"""By torch's number."""


@dataclass(frozen=True, slots=True)
class LossCase:
    """Everything that decides the kernel; x is [rows, classes, inner]."""

    direction: Literal["fwd", "join", "bwd"]
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

    Raises:
        RuntimeError: target or weight do not fit x.
    """
    rows, classes, *inner = x.shape if x.dim() > 1 else (1, *x.shape)
    fits = target.numel() == 1 if x.dim() == 1 else (*target.shape,) == (rows, *inner)
    if not fits or (weight is not None and weight.numel() != classes):
        weights = "" if weight is None else f", weights {[*weight.shape]}"
        raise RuntimeError(f"nll_loss: {[*x.shape]} at {[*target.shape]}{weights}")
    resized(output, target.shape if REDUCTIONS[reduction] == "none" else ())
    resized(total_weight, ())
    if target.numel() == 0:
        total_weight.zero_()
        output.fill_(float("nan") if REDUCTIONS[reduction] == "mean" else 0)
        return output, total_weight
    kind = _kind("fwd", x, weight, reduction, ignore_index)
    x, target = x.contiguous(), target.long().contiguous()  # bytes are targets too
    losses = output.contiguous()
    pointers = (x, target, dense(weight), losses, total_weight, faults.record(kind.device))
    _prepared(kind)(*(0 if t is None else t.data_ptr() for t in pointers))
    faults.check(kind.device)
    if losses is not output:
        output.copy_(losses)
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
    grad, target = grad.contiguous(), target.long().contiguous()
    gradient = grad_input.contiguous()
    pointers = (grad, gradient, target, dense(weight), total_weight)
    _prepared(kind)(*(0 if t is None else t.data_ptr() for t in pointers))
    return grad_input if gradient is grad_input else grad_input.copy_(gradient)


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
) -> LossCase:
    rows, classes, *inner = x.shape if x.dim() > 1 else (1, *x.shape)
    return LossCase(
        direction, x.get_device(), x.dtype, reduction, weight is not None, ignore,
        rows, classes, prod(inner),
    )  # fmt: skip


@lru_cache(maxsize=512)
def _prepared(kind: LossCase) -> Prepared:
    limits = devices()[kind.device].limits
    local_items = 1 if limits.kind == "cpu" else min(256, limits.max_work_group)
    pieces = _pieces(kind, local_items, limits)
    item, label = Pointer(dtype_of(kind.dtype).item_bytes), Pointer(torch.int64.itemsize)
    sums = Pointer(8 if kind.dtype is torch.float64 else 4)
    if kind.direction == "bwd":
        sizes, local = _shared_out(kind, local_items, limits)
        return _launch(kind, local_items, 1, sizes, local, [item, item, label, item, item])
    if REDUCTIONS[kind.reduction] == "none":
        outputs, sizes = [item, label, item, item, item, label], (kind.rows * kind.inner,)
        return _launch(kind, local_items, 1, sizes, None, outputs)
    local = (local_items,)
    if pieces == 1:
        return _launch(kind, local_items, 1, local, local, [item, label, item, item, item, label])
    first = [item, label, item, sums, label]
    add = _launch(kind, local_items, pieces, (pieces * local_items,), local, first)
    join = replace(kind, direction="join", weighted=False, ignore=0, rows=0, classes=0, inner=1)
    end = _launch(join, local_items, pieces, local, local, [sums, item, item])
    # the values are x, target, weight, loss, total_weight and faults; the workspace is the seventh
    parts = [Part(add, (0, 1, 2, 6, 5)), Part(end, (6, 3, 4))]
    return LaunchSequence(kind.device, parts, 6, [2 * pieces * sums.item_bytes])


def _launch(
    kind: LossCase, local_items: int, pieces: int, sizes: tuple[int, ...],
    local: tuple[int, ...] | None, pointers: Sequence[Argument],
) -> KernelLaunch:  # fmt: skip
    """Return the launch of one kernel of the template, whose legend names the arguments."""
    targets = kind.rows * kind.inner
    wide = targets * kind.classes + BLOCK["gpu"] >= 2**31
    count = np.int64 if wide else np.int32
    source = rendered(
        "nll_loss", package="ocl_backend", direction=kind.direction,
        reduction=REDUCTIONS[kind.reduction], weighted=kind.weighted, dtype=dtype_of(kind.dtype),
        classes=kind.classes, ignore=kind.ignore, flat=kind.inner == 1,
        index="long" if wide else "int", local_items=local_items, pieces=pieces,
        block=BLOCK["cpu" if local_items == 1 else "gpu"], width=16 if local_items == 1 else 4,
        by_rows=len(sizes) > 1, note=faults.NOTE, number=faults.NUMBERS["nll_loss"],
    )  # fmt: skip
    numbers = [] if kind.direction == "join" else [count(targets), count(kind.inner)]
    name = f"nll_loss_{kind.direction}"
    return prepare(kind.device, source, name, sizes, [*numbers, *pointers], local)


def _pieces(kind: LossCase, local_items: int, limits: Limits) -> int:
    """Return how many work-groups add up the targets of a loss: all of a GPU for many targets."""
    targets = kind.rows * kind.inner
    if local_items == 1:
        return max(1, targets // MOST_TERMS)
    return max(1, min(4 * limits.compute_units, targets // (local_items * TERMS)))


def _shared_out(
    kind: LossCase, local_items: int, limits: Limits
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return the work-items of a gradient, and those of a group."""
    items, rows = kind.rows * kind.inner * kind.classes, kind.rows * kind.classes
    if kind.inner == 1:
        blocks = ceil_div(items, BLOCK["cpu" if local_items == 1 else "gpu"])
        return (blocks * local_items,), (local_items,)
    if kind.inner < LONG_ROW or rows > MOST_ROWS:
        return (items,), None
    return in_groups((kind.inner, rows), limits)


OPERATORS: dict[str, Callable[..., Any]] = {
    "nll_loss_forward.output": nll_loss_out,
    "nll_loss_backward.grad_input": nll_loss_backward_out,
    "nll_loss2d_forward": nll_loss2d,
    "nll_loss2d_backward": nll_loss2d_backward,
}
"""Implementations by aten name."""
