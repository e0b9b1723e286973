"""The steps of `nn.SyncBatchNorm`: its processes gather sums between them.

Each is composed of reductions and pointwise operators of the device. Tensors of 16 bits have
statistics in float32. x is [batch, channels, ...] in any layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into

HALVES = (torch.float16, torch.bfloat16)


def _wide(x: Tensor) -> Tensor:
    """Return x in the dtype of its statistics."""
    return x.float() if x.dtype in HALVES else x


def _rest(x: Tensor) -> tuple[int, ...]:
    """Return all dimensions but that of channels."""
    return (0, *range(2, x.dim()))


def _along(values: Tensor, x: Tensor) -> Tensor:
    """Return `values` [channels] in the shape that x broadcasts with."""
    return values.view(-1, *(1 for _ in range(2, x.dim())))


def stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return mean and 1 / standard deviation of each channel of this process's x, [channels]."""
    variance, mean = torch.var_mean(_wide(x), _rest(x), correction=0)
    return mean, torch.rsqrt(variance + eps)


def update_stats(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of each channel, [channels]; the running ones take their share."""
    variance, mean = torch.var_mean(_wide(x), _rest(x), correction=0)
    count = x.numel() / x.shape[1]
    _track(running_mean, mean, momentum)
    _track(running_var, variance * (count / max(count - 1, 1)), momentum)
    return mean, variance


def _track(running: Tensor | None, now: Tensor, momentum: float) -> None:
    if running is not None:
        running.lerp_(now.to(running.dtype), momentum)


def gather_stats_with_counts(
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return mean and 1 / standard deviation over all processes; running ones take their share.

    Args:
        x: names the device alone.
        mean: those of the processes, [processes, channels].
        invstd: as `stats` returned them, [processes, channels].
        running_mean: [channels], written.
        running_var: [channels], written; its share is the variance without bias.
        momentum: that share.
        eps: what was added to the variances.
        counts: how many values a channel has in each process, [processes].
    """
    shares = counts.to(mean.dtype).unsqueeze(1)
    count = shares.sum()
    whole = (mean * shares).sum(0) / count
    squares = ((invstd.pow(-2) - eps + (mean - whole).square()) * shares).sum(0)
    _track(running_mean, whole, momentum)
    _track(running_var, squares / (count - 1), momentum)
    return whole, torch.rsqrt(squares / count + eps)


def gather_stats(
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    count: int,
) -> tuple[Tensor, Tensor]:
    """Return what `gather_stats_with_counts` does, where each process has `count` values."""
    counts = torch.full_like(mean[:, 0], count)
    return gather_stats_with_counts(
        x, mean, invstd, running_mean, running_var, momentum, eps, counts
    )


def normalised(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
) -> Tensor:
    """Return (x - mean) * invstd * weight + bias in the dtype and layout of x."""
    scale = invstd if weight is None else invstd * weight
    y = (x - _along(mean, x)) * _along(scale, x)
    return (y if bias is None else y + _along(bias, x)).to(x.dtype)


def backward_reduce(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Return sums of grad and of grad * (x - mean), then this process's gradients; [channels].

    Args:
        grad: of the result, in the shape of x.
        x: what was normalised.
        mean: of all processes, [channels].
        invstd: of all processes, [channels].
        weight: whose dtype its gradient and that of bias have; None: that of the statistics.
        input_g: whether the two sums are asked for.
        weight_g: whether the gradient of weight is asked for.
        bias_g: whether that of bias is asked for.
    """
    grad = _wide(grad)
    sums = grad.sum(_rest(x))
    products = (grad * (x - _along(mean, x))).sum(_rest(x))
    kind = mean.dtype if weight is None else weight.dtype
    return (
        sums if input_g else None,
        products if input_g else None,
        (products * invstd).to(kind) if weight_g else None,
        sums.to(kind) if bias_g else None,
    )


def backward_input(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """Return the gradient of x, in its dtype.

    Args:
        grad: of the result, in the shape of x.
        x: what was normalised.
        mean: of all processes, [channels].
        invstd: of all processes, [channels].
        weight: [channels], or None.
        sum_dy: sum of grad over all processes, [channels].
        sum_dy_xmu: sum of grad * (x - mean) over all processes, [channels].
        count: how many values a channel has in each process.
    """
    total = count.sum().to(mean.dtype)
    slope = invstd.square() * sum_dy_xmu / total
    scale = invstd if weight is None else invstd * weight
    centred = grad - _along(sum_dy / total, x) - (x - _along(mean, x)) * _along(slope, x)
    return (centred * _along(scale, x)).to(x.dtype)


OPERATORS: dict[str, Callable[..., Any]] = {
    "batch_norm_stats": stats,
    "batch_norm_stats.out": into(stats, "out0", "out1"),
    "batch_norm_update_stats": update_stats,
    "batch_norm_update_stats.out": into(update_stats, "out0", "out1"),
    "batch_norm_gather_stats": gather_stats,
    "batch_norm_gather_stats.out": into(gather_stats, "out0", "out1"),
    "batch_norm_gather_stats_with_counts": gather_stats_with_counts,
    "batch_norm_gather_stats_with_counts.out": into(gather_stats_with_counts, "out0", "out1"),
    "batch_norm_elemt": normalised,
    "batch_norm_elemt.out": into(normalised, "out"),
    "batch_norm_backward_reduce": backward_reduce,
    "batch_norm_backward_elemt": backward_input,
    "batch_norm_backward_elemt.out": into(backward_input, "out"),
}
"""Implementations by aten name."""
