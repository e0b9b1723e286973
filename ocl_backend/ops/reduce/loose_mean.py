"""Means over the last dimension that can be part of other calls' kernels."""

from __future__ import annotations

from functools import lru_cache

from ocl_backend.kernels.reduction_kernels import Spec, as_one
from ocl_backend.ops.fused.expressions import Expression, Loosely, Read, fits
from ocl_backend.runtime.launch import MOST_LAUNCHES

LONGEST = 1 << 15
"""Items of a row that one work-group adds up in no more time than a launch takes."""


@lru_cache(maxsize=MOST_LAUNCHES)
def loose_mean(device: int, spec: Spec) -> Loosely | None:
    """Return the rule of a mean that keeps its dimensions, or None if it is another.

    Args:
        device: its index.
        spec: of a mean.
    """
    dtype, result, _ = spec.dtypes
    if spec.reduced != (len(spec.shape) - 1,) or spec.shape[-1] > LONGEST:
        return None
    if dtype is not result or spec.value != "float":
        return None
    x, y = spec.strides
    shape = (*spec.shape[:-1], 1)
    out = Read("out", 1, result, shape, (*y[:-1], 1))
    mean_of = Expression("mean", (Read("self", 0, dtype, spec.shape, x),), out)
    return Loosely("mean", device, as_one(device, spec), mean_of) if fits(mean_of) else None
