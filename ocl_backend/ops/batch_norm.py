"""Batch normalisation, forward and backward, in training and in evaluation.

It chooses how a channel is divided among work-groups; the arithmetic is the template's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.launch import Argument, Launch, Pointer, Varying, prepare
from ocl_backend.ops.formats import laid_out_like
from ocl_backend.ops.outputs import into
from oclgen.device import devices
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.render import render

GROUPS_PER_UNIT = 8
"""Work-groups per compute unit of a GPU that hide memory latency."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Everything that decides the kernels; sizes are [batch, channels, inner]."""

    direction: Literal["fwd", "bwd"]
    device: int
    dtype: torch.dtype
    param: torch.dtype
    batch: int
    channels: int
    inner: int
    trains: bool
    tracks: bool
    affine: bool


@dataclass(frozen=True, slots=True)
class Division:
    """How the work is cut: the legend stands at the head of the template."""

    chunk: int
    local: int
    width: int


def division(kind: Kind, limits: Limits) -> Division:
    """Return the cut that keeps a channel in a CPU's cache and all units of a GPU busy."""
    if limits.kind == "cpu":
        width = 16 if kind.inner >= 16 else 1
        return Division(chunk=kind.batch, local=1, width=width)
    width = 4 if kind.inner % 4 == 0 else 1
    wanted = GROUPS_PER_UNIT * limits.compute_units
    chunk = ceil_div(kind.batch, max(1, min(kind.batch, wanted // kind.channels)))
    local = 256
    while local > limits.max_work_group or local > max(32, chunk * kind.inner // width):
        local //= 2
    return Division(chunk, local, width)


@lru_cache(maxsize=4096)
def prepared(kind: Kind) -> tuple[tuple[Launch, ...], int]:
    """Return the launches, which all take the same arguments, and the items of `partial`."""
    limits = devices()[kind.device].limits
    cut = division(kind, limits)
    chunks = ceil_div(kind.batch, cut.chunk)
    sums = kind.trains or kind.direction == "bwd"
    steps = [(True, False), (False, True)] if sums and chunks > 1 else [(sums, True)]
    launches = tuple(_launch(kind, cut, chunks, *step) for step in steps)
    return launches, 2 * chunks * kind.channels if len(steps) > 1 else 0


def _launch(kind: Kind, cut: Division, chunks: int, sums: bool, writes: bool) -> Launch:
    dtype, param = dtype_of(kind.dtype), dtype_of(kind.param)
    source = render(
        "batch_norm", package="ocl_backend",
        direction=kind.direction, sums=sums, writes=writes, trains=kind.trains,
        tracks=kind.tracks, affine=kind.affine, dtype=dtype, param=param, batch=kind.batch,
        channels=kind.channels, inner=kind.inner, chunk=cut.chunk, local_items=cut.local,
        width=cut.width,
    )  # fmt: skip
    images = 2 if kind.direction == "fwd" else 3
    params = 6 if kind.direction == "fwd" else 7
    partial_bytes = 8 if dtype.value == "double" else 4
    arguments: list[Argument] = [
        *(Pointer(dtype.item_bytes),) * images,
        *(Pointer(param.item_bytes),) * params,
        Pointer(partial_bytes),
        *(Varying("float"),) * 2,
    ]
    groups = kind.channels * chunks
    name = f"batch_norm_{kind.direction}"
    return prepare(kind.device, source, name, (groups * cut.local,), arguments, (cut.local,))


def native_batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, mean, 1 / standard deviation) of x [batch, channels, ...], by channel.

    In evaluation the last two are empty, as torch has them on the CPU.
    """
    given_x, x = x, x.contiguous()
    y = torch.empty_like(x)
    if weight is not None and bias is None:
        bias = torch.zeros_like(weight)
    given = weight if weight is not None else running_mean
    param = x.dtype if given is None else given.dtype
    channels = x.shape[1]
    saved = x.new_empty((2, channels if training else 0), dtype=param)
    if x.numel() == 0:
        return y, saved[0], saved[1]
    tracks = training and running_mean is not None
    affine = weight is not None
    kind = _kind("fwd", x, param, training, tracks, affine)
    mean, invstd = saved[0], saved[1]
    tensors = (x, y, weight, bias, running_mean, running_var, mean, invstd)
    _run(kind, x, tensors, eps, momentum)
    return laid_out_like(y, given_x), mean, invstd


def _run(
    kind: Kind, x: Tensor, tensors: Sequence[Tensor | None], eps: float, momentum: float
) -> None:
    launches, partial = prepared(kind)
    real = torch.float64 if x.dtype is torch.float64 else torch.float32
    workspace = x.new_empty(partial, dtype=real)
    pointers = pointers_of(*tensors, workspace)
    for launch in launches:
        launch(*pointers, eps, momentum)


def _kind(
    direction: Literal["fwd", "bwd"],
    x: Tensor,
    param: torch.dtype,
    trains: bool,
    tracks: bool,
    affine: bool,
) -> Kind:
    batch, channels, *rest = x.shape
    return Kind(
        direction, x.get_device(), x.dtype, param, batch, channels, prod(rest),
        trains, tracks, affine,
    )  # fmt: skip


def pointers_of(*tensors: Tensor | None) -> list[int]:
    """Return the data pointers; 0 where there is no tensor or it has no items."""
    return [0 if t is None else t.data_ptr() for t in tensors]


def native_batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of x, weight and bias; the last two None unless asked for."""
    grad, given_x, x = grad.contiguous(), x, x.contiguous()
    grad_x = torch.empty_like(x)
    given = weight if weight is not None else save_mean if train else running_mean
    param = x.dtype if given is None else given.dtype
    grads = x.new_empty((2, x.shape[1]), dtype=param)
    grad_weight, grad_bias = grads[0], grads[1]
    if x.numel() == 0:
        grads.zero_()
    else:
        kind = _kind("bwd", x, param, train, False, weight is not None)
        statistics = (running_mean, running_var, save_mean, save_invstd)
        tensors = (x, grad, grad_x, grad_weight, grad_bias, weight, *statistics)
        _run(kind, x, tensors, eps, 0.0)
    return (
        laid_out_like(grad_x, given_x),
        grad_weight if output_mask[1] else None,
        grad_bias if output_mask[2] else None,
    )


def batch_norm_no_stats(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `native_batch_norm` does without running statistics."""
    return native_batch_norm(x, weight, bias, None, None, training, momentum, eps)


def batch_norm_with_update(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what `native_batch_norm` does in training, and an empty reserve."""
    results = native_batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*results, x.new_empty(0, dtype=torch.uint8))


def batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: Tensor,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return what `native_batch_norm_backward` does."""
    del reserve
    return native_batch_norm_backward(
        grad, x, weight, running_mean, running_var, save_mean, save_invstd, update, eps, output_mask
    )


RESULTS = ("out", "save_mean", "save_invstd")
"""torch's names of the outputs."""

OPERATORS: dict[str, Callable[..., Any]] = {
    "native_batch_norm": native_batch_norm,
    "native_batch_norm.out": into(native_batch_norm, *RESULTS),
    "_native_batch_norm_legit": native_batch_norm,
    "_native_batch_norm_legit.out": into(native_batch_norm, *RESULTS),
    "_native_batch_norm_legit.no_stats": batch_norm_no_stats,
    "_native_batch_norm_legit.no_stats_out": into(batch_norm_no_stats, *RESULTS),
    "native_batch_norm_backward": native_batch_norm_backward,
    "_batch_norm_with_update": batch_norm_with_update,
    "batch_norm_backward": batch_norm_backward,
}
"""Implementations by aten name."""
