"""Variances and deviations over any dimensions: two passes, the first for the mean."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.kernels.reduction_kernels import Reduction
from ocl_backend.ops.reduce.reductions import Dims, Number, mean, reduce

SQUARE = "(x - center) * (x - center)"
VARIANCE = Reduction("var", "a + b", "0", SQUARE, "acc / count")
DEVIATION = Reduction("std", "a + b", "0", SQUARE, "sqrt(acc / count)")

TOO_FEW = (
    "degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
    "(input numel divided by output numel)."
)
"""A warning in torch's words, because users' filters name them."""


def _spread(
    name: str, kind: Reduction, x: Tensor, dims: Dims, correction: Number | None, keepdim: bool
) -> tuple[Tensor, Tensor]:
    """Return variance or deviation, and the mean with dimensions kept: two passes, for accuracy.

    `name` is the operator's, of which a warning tells.
    """
    center = mean(x, dims, True, dtype=torch.promote_types(x.dtype, torch.float32))
    less = 1 if correction is None else correction
    if center.numel() and less >= x.numel() // center.numel():
        warnings.warn(f"{name}(): {TOO_FEW}", stacklevel=4)
    return reduce(kind, x, dims, keepdim, x.dtype, center=center, correction=less), center


def var(
    x: Tensor, dims: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> Tensor:
    """Variance with `correction` degrees of freedom taken off (default 1)."""
    return _spread("var", VARIANCE, x, dims, correction, keepdim)[0]


def std(
    x: Tensor, dims: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> Tensor:
    """Square root of the variance."""
    return _spread("std", DEVIATION, x, dims, correction, keepdim)[0]


def var_mean(
    x: Tensor, dims: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Variance and mean."""
    spread, center = _spread("var_mean", VARIANCE, x, dims, correction, keepdim)
    return spread, center.view(spread.shape).to(x.dtype)


def std_mean(
    x: Tensor, dims: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return standard deviation and mean."""
    spread, center = _spread("std_mean", DEVIATION, x, dims, correction, keepdim)
    return spread, center.view(spread.shape).to(x.dtype)


OPERATORS: dict[str, Callable[..., Any]] = {
    "var.correction": var,
    "var.correction_out": into(var),
    "std.correction": std,
    "std.correction_out": into(std),
    "var_mean.correction": var_mean,
    "std_mean.correction": std_mean,
}
"""Implementations by aten name."""
