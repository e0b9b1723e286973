"""Connectionist temporal classification: the loss of sequences without alignment, its gradient.

One work-group follows one sample over time (Graves et al. 2006); the results are those of torch's
CPU, infinities and NaNs too. Nothing is added atomically, so equal calls give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.runtime import capture
from ocl_backend.runtime.launch import (
    MOST_LAUNCHES,
    Argument,
    KernelLaunch,
    Pointer,
    Varying,
    prepare,
)
from ocl_backend.runtime.tables import as_table
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.render import rendered

FLOATS = {dtype: dtype_of(dtype) for dtype in (torch.float32, torch.float64)}
LANES = 16
"""Work-items of a processor's group: one vector of fp32."""
MOST_ITEMS = 1024
AHEAD = 8
"""Log-probabilities that a GPU's work-item loads at once: each load takes longer than a step."""
WIDE_ROW = 256
"""Work-items of a GPU's group that writes the gradient of one step, at most."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The lengths of a batch's samples, on the host and, in `table`, on the device.

    `table` is [batch, 3]: steps and labels of a sample, and where its labels begin. `longest` is
    the most labels.
    """

    longest: int
    table: Tensor


@dataclass(frozen=True, slots=True)
class CtcCase:
    """Everything that decides the kernels. `width` is the most states, 2 * labels + 1."""

    device: int
    dtype: torch.dtype
    label: torch.dtype
    blank: int
    steps: int
    batch: int
    classes: int
    width: int


Direction = Literal["fwd", "bwd"]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return each sample's negative log likelihood, and alpha for the gradient.

    Args:
        log_probs: [steps, batch, classes].
        targets: labels, [batch, most] or one sample's behind the other's.
        input_lengths: the steps of each sample.
        target_lengths: the labels of each sample.
        blank: the class that stands for no label.
        zero_infinity: matters to the gradient alone.

    Returns:
        [batch], and [batch, steps, 2 * labels + 1]: the log of the sum over all beginnings of paths
        that end in a state at a step, -infinity behind a sample's end.

    Raises:
        RuntimeError: lengths, targets or blank do not fit.
    """
    targets = targets.to(log_probs.device)
    batch = _batch(log_probs, targets, input_lengths, target_lengths)
    case = _case(log_probs, targets, batch, blank)
    alpha = log_probs.new_empty((case.batch, case.steps, case.width))
    loss = log_probs.new_empty((case.batch,))
    _follow("fwd", case, log_probs, targets, batch.table, alpha, loss)
    return loss, alpha


def ctc_loss_of_tensors(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return what `ctc_loss` does; lengths on the device are waited for: they decide shapes.

    Args:
        log_probs: as of `ctc_loss`, and so are targets, blank and zero_infinity.
        targets: labels.
        input_lengths: [batch], on the CPU or a device.
        target_lengths: the same.
        blank: a class.
        zero_infinity: for the gradient.
    """
    lengths = input_lengths.tolist(), target_lengths.tolist()
    return ctc_loss(log_probs, targets, *lengths, blank, zero_infinity)


def ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    loss: Tensor,
    alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    """Return the gradient of `log_probs`.

    Args:
        grad: of the loss, [batch].
        log_probs: as given to `ctc_loss`, and so are targets, lengths and blank.
        targets: labels.
        input_lengths: steps of each sample.
        target_lengths: labels of each sample.
        loss: what `ctc_loss` returned.
        alpha: its second result.
        blank: a class.
        zero_infinity: samples whose loss is infinite have no gradient.
    """
    targets = targets.to(log_probs.device)
    batch = _batch(log_probs, targets, input_lengths, target_lengths)
    case = _case(log_probs, targets, batch, blank)
    alpha, loss = alpha.contiguous(), loss.contiguous()
    posterior = torch.empty_like(alpha)
    links = alpha.new_empty((case.batch, case.width - 1), dtype=torch.int32)
    _follow("bwd", case, log_probs, targets, batch.table, alpha, loss, posterior, links)
    grad_x = log_probs.new_empty(log_probs.shape)
    tensors = grad, log_probs, batch.table, loss, posterior, links, grad_x
    addresses = (t.data_ptr() for t in tensors)
    _gradient(case, zero_infinity)(*log_probs.stride(), grad.stride(0), *addresses)
    return grad_x


def ctc_loss_backward_of_tensors(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    loss: Tensor,
    alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    """Return what `ctc_loss_backward` does.

    Args:
        grad: as of `ctc_loss_backward`, and so is all but the lengths.
        log_probs: [steps, batch, classes].
        targets: labels.
        input_lengths: [batch], on the CPU or a device.
        target_lengths: the same.
        loss: what the forward operator returned.
        alpha: its second result.
        blank: a class.
        zero_infinity: as there.
    """
    lengths = input_lengths.tolist(), target_lengths.tolist()
    return ctc_loss_backward(grad, log_probs, targets, *lengths, loss, alpha, blank, zero_infinity)


def _case(log_probs: Tensor, targets: Tensor, batch: Batch, blank: int) -> CtcCase:
    dtype_of(log_probs.dtype, FLOATS)
    steps, samples, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: blank {blank} of {classes} classes")
    return CtcCase(
        log_probs.get_device(), log_probs.dtype, targets.dtype, blank,
        steps, samples, classes, 2 * batch.longest + 1,
    )  # fmt: skip


def _batch(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
) -> Batch:
    """Return the lengths, once they fit the tensors."""
    steps, samples, _ = log_probs.shape
    labels, most = tuple(target_lengths), max(target_lengths, default=0)
    if not log_probs.numel() or not len(input_lengths) == len(labels) == samples:
        raise RuntimeError(f"ctc_loss: {len(labels)} targets for {[*log_probs.shape]}")
    if min(*labels, *input_lengths) < 0 or max(input_lengths) > steps:
        raise RuntimeError(f"ctc_loss: lengths {input_lengths}, {labels} with {steps} steps")
    flat = targets.dim() == 1
    if not flat and (targets.dim() != 2 or len(targets) != samples or targets.shape[1] < most):
        raise RuntimeError(f"ctc_loss: targets {[*targets.shape]} of lengths {labels}")
    if flat and len(targets) != sum(labels):
        raise RuntimeError(f"ctc_loss: {len(targets)} labels of lengths {labels}")
    by_sample = None if flat else targets.stride(0)
    table = _table(log_probs.device, tuple(input_lengths), labels, targets.stride(-1), by_sample)
    return Batch(most, table)


@lru_cache(maxsize=256)
@capture.aside()
def _table(
    device: torch.device,
    steps: tuple[int, ...],
    labels: tuple[int, ...],
    by_label: int,
    by_sample: int | None,
) -> Tensor:
    """Return `Batch.table`; targets without a stride by sample lie one behind the other."""
    if by_sample is None:
        begins = [first * by_label for first in accumulate(labels, initial=0)]
    else:
        begins = [i * by_sample for i in range(len(labels))]
    rows = list(zip(steps, labels, begins, strict=False))
    return as_table(torch.tensor(rows, dtype=torch.int64).to(device))


def _follow(direction: Direction, case: CtcCase, *tensors: Tensor) -> None:
    """Launch the recursion over time: tensors in the kernel's order, workspaces made here."""
    log_probs, targets, *_ = tensors
    given = list(tensors)
    span, in_local = _room(case)
    if not in_local:
        given.append(log_probs.new_empty((case.batch, 2, span + 4)))
        given.append(log_probs.new_empty((case.batch, span + 4), dtype=torch.int32))
    strides = *log_probs.stride(), targets.stride(-1)
    _recursion(direction, case)(*strides, *(t.data_ptr() for t in given))


def _items(limits: Limits, wanted: int, most: int) -> int:
    """Return work-items for `wanted` items: a power of two, on processors one vector."""
    if limits.kind == "cpu":
        return LANES
    return min(most, limits.max_work_group, max(32, 1 << (wanted - 1).bit_length()))


def _room(case: CtcCase) -> tuple[int, bool]:
    """Return the states that a group has room for, and whether they lie in local memory."""
    limits = devices()[case.device].limits
    items = _items(limits, case.width, MOST_ITEMS)
    places = -(-case.width // items)
    span = items << (places - 1).bit_length()
    return span, (span + 4) * (2 * case.dtype.itemsize + 4) <= limits.local_bytes


def _ahead(limits: Limits, places: int) -> int:
    """Return how many steps' log-probabilities are loaded at once where each takes `places`."""
    return 0 if limits.kind == "cpu" else AHEAD // places


@lru_cache(maxsize=MOST_LAUNCHES)
def _recursion(direction: Direction, case: CtcCase) -> KernelLaunch:
    limits = devices()[case.device].limits
    items = _items(limits, case.width, MOST_ITEMS)
    span, in_local = _room(case)
    source = rendered(
        "ctc_states", package="ocl_backend", direction=direction,
        real=dtype_of(case.dtype).value, label=dtype_of(case.label).value,
        local_items=items, span=span, in_local=in_local,
        ahead=_ahead(limits, span // items),
    )  # fmt: skip
    item, number, link = (Pointer(case.dtype.itemsize), Pointer(8), Pointer(4))
    sizes = (case.steps, case.classes, case.width, case.blank)
    arguments: list[Argument] = [*map(np.int32, sizes), *[Varying("long")] * 4]
    arguments += [item, Pointer(case.label.itemsize), number, item, item]
    arguments += [item, link] * (direction == "bwd") + [item, link] * (not in_local)
    size = (case.batch * items,)
    return prepare(case.device, source, f"ctc_states_{direction}", size, arguments, (items,))


@lru_cache(maxsize=MOST_LAUNCHES)
def _gradient(case: CtcCase, zero_infinity: bool) -> KernelLaunch:
    limits = devices()[case.device].limits
    items = _items(limits, max(case.classes, case.width), WIDE_ROW)
    source = rendered(
        "ctc_gradient", package="ocl_backend", real=dtype_of(case.dtype).value,
        zero_infinity=zero_infinity, local_items=items,
    )  # fmt: skip
    item = Pointer(case.dtype.itemsize)
    sizes = (case.steps, case.batch, case.classes, case.width, case.blank)
    arguments: list[Argument] = [*map(np.int32, sizes), *[Varying("long")] * 4]
    arguments += [item, item, Pointer(8), item, item, Pointer(4), item]
    size = (case.steps * case.batch * items,)
    return prepare(case.device, source, "ctc_gradient", size, arguments, (items,))


OPERATORS: dict[str, Callable[..., Any]] = {
    "_ctc_loss": ctc_loss,
    "_ctc_loss.Tensor": ctc_loss_of_tensors,
    "_ctc_loss_backward": ctc_loss_backward,
    "_ctc_loss_backward.Tensor": ctc_loss_backward_of_tensors,
}
"""Implementations by aten name."""
