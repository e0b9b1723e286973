"""Losses of items that are summed or averaged: forward one pass, and backward one launch.

Inputs of several dtypes, shapes or devices, and weights of items, are torch's decompositions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import DTYPES, dtype_of
from ocl_backend.kernels.bounds import check_values
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.reduction_kernels import Reduction
from ocl_backend.ops.reduce.reductions import reduce

NONE, MEAN, SUM = range(3)
"""Torch's numbers of reductions."""


class Formula(NamedTuple):
    """A loss of an item: OpenCL C of x, its target y, and `bound` where the loss has a number.

    `slope` is its derivative with respect to x. Both are right for vectors of `X`.
    """

    loss: str
    slope: str = ""


MSE = Formula("(x - y) * (x - y)", "(X)(2) * (x - y)")
SMOOTH_L1 = Formula(
    "fabs(x - y) < (X)(bound) ? (X)(0.5) * (x - y) * (x - y) / (X)(bound)"
    " : fabs(x - y) - (X)(0.5) * (X)(bound)",
    "x - y <= -(X)(bound) ? (X)(-1) : x - y >= (X)(bound) ? (X)(1) : (x - y) / (X)(bound)",
)
HUBER = Formula(
    "fabs(x - y) < (X)(bound) ? (X)(0.5) * (x - y) * (x - y)"
    " : (X)(bound) * (fabs(x - y) - (X)(0.5) * (X)(bound))",
    "x - y < -(X)(bound) ? -(X)(bound) : x - y > (X)(bound) ? (X)(bound) : x - y",
)
CROSS_ENTROPY = Formula(
    # fmax would take -100 for a NaN
    "(y - (X)(1)) * (log1p(-x) < (X)(-100) ? (X)(-100) : log1p(-x))"
    " - y * (log(x) < (X)(-100) ? (X)(-100) : log(x))",
    "(x - y) / (((X)(1) - x) * x < (X)(1e-12) ? (X)(1e-12) : ((X)(1) - x) * x)",
)
WITH_LOGITS = Formula("((X)(1) - y) * x - ((x < (X)(0) ? x : (X)(0)) - log1p(exp(-fabs(x))))")

SOFT_MARGIN = Formula("log1p(exp(-x * y))", "-y * exp(-x * y) / (exp(-x * y) + (X)(1))")


def forward(formula: Formula, x: Tensor, y: Tensor, reduction: int, bound: float = 0) -> Tensor:
    """Return the loss of `x` at the target `y`, which `fits`.

    Args:
        formula: of an item.
        x: of any shape.
        y: of x's shape and dtype.
        reduction: torch's number.
        bound: the formula's number.
    """
    text = formula.loss.replace("bound", repr(float(bound)))
    if reduction == NONE:
        out = torch.empty_like(x)
        launch(_kernel(x.dtype, text), x.shape, (x, y, out))
        return out
    if x.stride() != y.stride():
        x, y = x.contiguous(), y.contiguous()
    finish = "acc / count" if reduction == MEAN else "acc"
    whole = Reduction("loss", "a + b", "0", text, finish)
    return reduce(whole, x, None, False, x.dtype, other=y)


def backward(
    formula: Formula, grad: Tensor, x: Tensor, y: Tensor, reduction: int, bound: float = 0
) -> Tensor:
    """Return the gradient of x, where x and y `fit`.

    Args:
        formula: of an item.
        grad: of the loss.
        x: of any shape.
        y: of x's shape and dtype.
        reduction: torch's number.
        bound: the formula's number.
    """
    out = torch.empty_like(x)
    share = 1 / x.numel() if reduction == MEAN else 1.0
    slope = formula.slope.replace("bound", repr(float(bound)))
    launch(_slope_kernel(x.dtype, slope), x.shape, (grad, x, y, share, out))
    return out


@lru_cache(maxsize=256)
def _kernel(dtype: torch.dtype, text: str) -> Kernel:
    operands = Operand("x", dtype), Operand("y", dtype), Operand("out", dtype, "output")
    body = f"const T out = {text.replace('(X)', '(T)')};"
    return Kernel("loss", dtype_of(dtype).value, operands, body)


@lru_cache(maxsize=256)
def _slope_kernel(dtype: torch.dtype, text: str) -> Kernel:
    value = dtype_of(dtype).value
    read = [Operand(name, dtype) for name in ("grad", "x", "y")]
    parameters: tuple[Operand | Scalar, ...] = (
        *read,
        Scalar("share", value),
        Operand("out", dtype, "output"),
    )
    body = f"const T out = share * grad * ({text.replace('(X)', '(T)')});"
    return Kernel("loss_backward", value, parameters, body)


def fit(*tensors: Tensor) -> bool:
    """Whether a kernel serves tensors: floats of one dtype, shape and device, some of them."""
    x = tensors[0]
    return (
        x.numel() > 0
        and x.is_floating_point()
        and x.dtype in DTYPES
        and all(y.dtype is x.dtype and y.shape == x.shape and y.device == x.device for y in tensors)
    )


def _served(name: str, formula: Formula, bound: float) -> dict[str, Callable[..., Any]]:
    """Return the operators of a loss whose arguments are a target, a reduction and a number."""
    forward_of = decomposition_table[getattr(torch.ops.aten, name).default]
    backward_of = decomposition_table[getattr(torch.ops.aten, f"{name}_backward").default]

    def loss(x: Tensor, y: Tensor, reduction: int = MEAN, bound: float = bound) -> Tensor:
        if fit(x, y) and isfinite(bound):
            if name == "huber_loss" and bound <= 0:
                raise RuntimeError("huber_loss does not support non-positive values for delta.")
            return forward(formula, x, y, reduction, bound)
        made: Tensor = forward_of(x, y, reduction, *_number(bound))
        return made.to(x.dtype) if name == "huber_loss" else made  # as the CPU

    def gradient(
        grad: Tensor, x: Tensor, y: Tensor, reduction: int, bound: float = bound
    ) -> Tensor:
        if isfinite(bound) and fit(x, y) and grad.dtype is x.dtype and grad.shape in ((), x.shape):
            return backward(formula, grad, x, y, reduction, bound)
        if not x.numel():
            return torch.empty_like(x)
        made: Tensor = backward_of(grad, x, y, reduction, *_number(bound))
        return made

    def _number(bound: float) -> tuple[float, ...]:
        return () if name in ("mse_loss", "soft_margin_loss") else (bound,)

    return {
        name: loss,
        f"{name}.out": into(loss),
        f"{name}_backward": gradient,
        f"{name}_backward.{'out' if name == 'huber_loss' else 'grad_input'}": into(
            gradient, "grad_input"
        ),
    }


def binary_cross_entropy(
    x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Return the loss of probabilities; what is outside [0, 1] is a fault."""
    check_values("binary_cross_entropy", x, "x >= 0 && x <= 1")
    check_values("binary_cross_entropy target", y, "x >= 0 && x <= 1")
    if weight is None and fit(x, y):
        return forward(CROSS_ENTROPY, x, y, reduction)
    whole = decomposition_table[torch.ops.aten.binary_cross_entropy.default]
    loss: Tensor = whole(x, y, weight, reduction)
    return loss


def binary_cross_entropy_backward(
    grad: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Return the gradient of the probabilities."""
    if weight is None and fit(x, y) and grad.dtype is x.dtype and grad.shape in ((), x.shape):
        return backward(CROSS_ENTROPY, grad, x, y, reduction)
    whole = decomposition_table[torch.ops.aten.binary_cross_entropy_backward.default]
    gradient: Tensor = whole(grad, x, y, weight, reduction)
    return gradient


def binary_cross_entropy_with_logits(
    x: Tensor, y: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:  # fmt: skip
    """Return the loss of probabilities that are given by their logits."""
    if weight is None and pos_weight is None and fit(x, y):
        return forward(WITH_LOGITS, x, y, reduction)
    log_sigmoid = torch.nn.functional.logsigmoid(x)
    if pos_weight is None:
        loss = (1 - y) * x - log_sigmoid
    else:
        loss = (1 - y) * x - ((pos_weight - 1) * y + 1) * log_sigmoid
    if weight is not None:
        loss = loss * weight
    if reduction == NONE:
        return loss
    return loss.mean() if reduction == MEAN else loss.sum()


OPERATORS: dict[str, Callable[..., Any]] = {
    **_served("mse_loss", MSE, 0.0),
    **_served("smooth_l1_loss", SMOOTH_L1, 1.0),
    **_served("huber_loss", HUBER, 1.0),
    **_served("soft_margin_loss", SOFT_MARGIN, 0.0),
    "binary_cross_entropy": binary_cross_entropy,
    "binary_cross_entropy.out": into(binary_cross_entropy),
    "binary_cross_entropy_backward": binary_cross_entropy_backward,
    "binary_cross_entropy_backward.grad_input": into(binary_cross_entropy_backward, "grad_input"),
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
}
"""Implementations by aten name."""
