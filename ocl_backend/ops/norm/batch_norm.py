"""Batch normalisation, forward and backward, in training and in evaluation.

It turns torch's arguments into kernels' and says which calls they can be fused with;
`batch_norm_kernels` divides a channel among work-groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import STORAGE, encode
from ocl_backend.fusion.held import Rule, Step, Way, offer
from ocl_backend.kernels.batch_norm_kernels import BatchNormCase, PreparedNorm
from ocl_backend.kernels.memory_formats import arranged, dense, in_pixels
from ocl_backend.ops.fused.fused_pointwise import Masked, terms_of
from ocl_backend.runtime.launch import MOST_LAUNCHES
from oclgen.problem import Activation


class Normalising(Rule):
    """A forward pass; a residual added to its result and an activation are part of its store.

    A step's values are pointers x, y, residual, weight, bias, running mean and variance, saved mean
    and inverse deviation, then eps and momentum.
    """

    kind = "batch_norm"
    operator = "native_batch_norm"
    result = 1

    def __init__(self, of: BatchNormCase) -> None:
        self.follows = not of.trains
        trained = Way(0, (3, 4), (1, 5, 6, 7, 8))
        self.ways = (trained if of.trains else Way(0, (3, 4, 5, 6), (1,)),)
        self.of, self.device, self.items, self.dtype = of, of.device, of.items, of.dtype
        self.run = PreparedNorm(of)
        self._fused: dict[tuple[bool, Activation], PreparedNorm] = {}

    def alone(self, step: Step) -> None:
        """Enqueue the normalisation."""
        self.run(*step.values)

    def fuse(self, step: Step, after: Sequence[Step]) -> int:
        """Enqueue it with the addition and the activation that follow, or one of the two."""
        x, y, _, *rest = step.values
        residual, activation, taken = terms_of(after)
        if taken:
            y = after[taken - 1].result
        self._with(residual != 0, activation)(x, y, residual, *rest)
        return taken

    def _with(self, residual: bool, activation: Activation) -> PreparedNorm:
        if (residual, activation) not in self._fused:
            kind = replace(self.of, residual=residual, activation=activation)
            self._fused[residual, activation] = PreparedNorm(kind)
        return self._fused[residual, activation]


class NormalisingBackward(Masked):
    """A backward pass, which can mask the gradient that it reads.

    A step's values are pointers x, grad, the activation's result, grad of x, of weight and of bias,
    weight, running mean and variance, saved mean and inverse deviation, then eps and momentum.
    """

    kind = "batch_norm_backward"
    operator = "native_batch_norm_backward"
    result = 3
    ways = (Way(1, (0, 6, 7, 8, 9, 10), (3, 4, 5)),)
    begins = False

    def __init__(self, of: BatchNormCase) -> None:
        self.of, self.device, self.items, self.dtype = of, of.device, of.items, of.dtype
        self.run = PreparedNorm(of)
        self._masked: dict[Activation, PreparedNorm] = {}

    def alone(self, step: Step) -> None:
        """Enqueue the backward pass."""
        self.run(*step.values)

    def behind(self, activation: Activation, grad: int, result: int, step: Step) -> None:
        """Enqueue it for `grad` where the activation's `result` let it through."""
        if activation not in self._masked:
            self._masked[activation] = PreparedNorm(replace(self.of, mask=activation))
        x, _, _, *rest = step.values
        self._masked[activation](x, grad, result, *rest)


@lru_cache(maxsize=MOST_LAUNCHES)
def rule_of(
    direction: Literal["fwd", "bwd"],
    device: int,
    dtype: torch.dtype,
    param: torch.dtype,
    shape: tuple[int, ...],
    trains: bool,
    tracks: bool,
    affine: bool,
    pixels: bool,
) -> Normalising | NormalisingBackward:
    """Return the prepared pass over x of `shape`; `param` is the statistics' dtype.

    With `pixels` it lies in channels_last.
    """
    batch, channels, *rest = shape
    kind = BatchNormCase(
        direction, device, dtype, param, batch, channels, prod(rest), trains, tracks, affine,
        pixels=pixels,
    )  # fmt: skip
    return Normalising(kind) if direction == "fwd" else NormalisingBackward(kind)


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
    _check_vectors(running_mean, running_var)
    given_x, pixels = x, in_pixels(x)
    x = arranged(x, pixels)
    if x is not given_x:  # else torch takes weights of any shape
        _check_vectors(weight, bias)
    y = torch.empty_like(x)
    if weight is not None and bias is None:
        bias = torch.zeros_like(weight)
    elif bias is not None and weight is None:
        weight = torch.ones_like(bias)
    means, variances = dense(running_mean), dense(running_var)
    weight, bias = (_like(means, dense(one)) for one in (weight, bias))
    given = weight if weight is not None else running_mean
    param = x.dtype if given is None else given.dtype
    device = x.get_device()
    if training:
        mean, invstd = x.new_empty((2, x.shape[1]), dtype=param).unbind()
    else:
        nothing = _nothing(device, param)
        mean, invstd = torch.empty_like(nothing), torch.empty_like(nothing)
    if x.numel() == 0:
        return y, mean, invstd
    tracks = training and running_mean is not None
    rule = rule_of(
        "fwd", device, x.dtype, param, x.shape, training, tracks, weight is not None, pixels
    )
    pointers = pointers_of(x, y, None, weight, bias, means, variances, mean, invstd)
    values = *pointers, *_numbers(x.dtype, eps, momentum)
    if x.dtype not in STORAGE or x is not given_x:
        rule.run(*values)
    else:
        offer(rule, rule.run.sequence(values), values)
    if tracks:
        for own, written in ((running_mean, means), (running_var, variances)):
            if own is not None and written is not None and written is not own:
                own.copy_(written)
    return y, mean, invstd


def _like(statistics: Tensor | None, of_layer: Tensor | None) -> Tensor | None:
    """Return a layer's weights in the dtype of its statistics, which may be wider."""
    if statistics is None or of_layer is None or of_layer.dtype is statistics.dtype:
        return of_layer
    return of_layer.to(statistics.dtype)


def _numbers(dtype: torch.dtype, *numbers: float) -> Sequence[float]:
    """Return numbers as the kernels of a dtype take them."""
    return [encode("double", n) for n in numbers] if dtype is torch.float64 else numbers


def _check_vectors(*parameters: Tensor | None) -> None:
    """Refuse weights and statistics that are no vectors, where torch does.

    Raises:
        RuntimeError: one is none.
    """
    for one in parameters:
        if one is not None and one.dim() != 1:
            raise RuntimeError(f"batch_norm: a parameter of shape {[*one.shape]}; flatten it")


@cache
def _nothing(device: int, dtype: torch.dtype) -> Tensor:
    """Return a tensor without items: `empty_like` makes another one in a third of the time."""
    return torch.empty(0, dtype=dtype, device=torch.device("ocl", device))


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
    _check_vectors(weight, running_mean, running_var)
    pixels = in_pixels(x)
    grad, x = arranged(grad, pixels), arranged(x, pixels)
    grad_x = torch.empty_like(x)
    statistics = save_mean if train else running_mean
    layer = weight
    if weight is None and output_mask[2]:  # a bias alone: kernels have both gradients or none
        weight = (x if statistics is None else statistics).new_ones(x.shape[1])
    weight = _like(statistics, weight)
    given = weight if weight is not None else statistics
    param = x.dtype if given is None else given.dtype
    grads = x.new_empty((2, x.shape[1]), dtype=param)
    grad_weight, grad_bias = grads.unbind()
    if x.numel() == 0:
        grads.zero_()
    else:
        rule = rule_of(
            "bwd", x.get_device(), x.dtype, param, x.shape, train, False, weight is not None, pixels
        )
        kept = (weight, running_mean, running_var, save_mean, save_invstd)
        tensors = (x, grad, None, grad_x, grad_weight, grad_bias, *map(dense, kept))
        values = (*pointers_of(*tensors), *_numbers(x.dtype, eps, 0.0))
        offer(rule, rule.run.sequence(values), values)
    if layer is not None:
        grad_weight, grad_bias = grad_weight.to(layer.dtype), grad_bias.to(layer.dtype)
    return (
        grad_x,
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
