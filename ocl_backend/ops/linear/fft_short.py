"""Fourier transforms of short rows by one launch: lanes on processors, local memory on GPUs."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ocl_backend.kernels.dimensions import merge
from ocl_backend.ops.linear import fft_groups, fft_rows
from ocl_backend.ops.linear.fft_tables import Form, Lines
from oclgen.limits import Limits
from oclgen.opencl.device import devices

PARTS = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""Dtypes that kernels transform, and that of their parts."""
MOST_ITEMS = 2**31
"""Work-groups of GPUs number rows by an int."""


def serves(x: Tensor, n: int) -> bool:
    """Say whether one launch transforms rows of `n` numbers of x."""
    return x.dtype in PARTS and x.numel() < MOST_ITEMS and is_short(n, x)


def is_short(n: int, x: Tensor) -> bool:
    """Say whether one launch transforms rows of `n` numbers on x's device."""
    return _is_short(n, _limits(x), PARTS[x.dtype])


def divisor(n: int, x: Tensor) -> int:
    """Return the factor of a long transform that one launch computes first, 1 where there is none.

    On processors it is the largest; on GPUs the factors are near each other, since few rows of a
    work-group that lie side by side are read in small pieces.
    """
    return _divisor(n, _limits(x), PARTS[x.dtype])


@lru_cache(maxsize=1024)
def _divisor(n: int, limits: Limits, parts: torch.dtype) -> int:
    short = [
        d
        for d in range(min(_longest(limits, parts), n - 1), 0, -1)
        if n % d == 0 and _is_short(d, limits, parts)
    ]
    if limits.kind == "cpu":
        return short[0]
    pairs = [d for d in short if _is_short(n // d, limits, parts)]
    return min(pairs, key=lambda d: max(d, n // d), default=short[0])


def _longest(limits: Limits, parts: torch.dtype) -> int:
    """Return a length that no row of one launch exceeds."""
    return (
        fft_rows.LONGEST
        if limits.kind == "cpu"
        else fft_groups.items_of(limits, 2 * parts.itemsize)
    )


def _is_short(n: int, limits: Limits, parts: torch.dtype) -> bool:
    if limits.kind == "cpu":
        return fft_rows.is_short(n)
    return fft_groups.is_short(n, limits, parts)


def lines(x: Tensor, out: Tensor, dim: int, form: Form, twist: Tensor | None = None) -> Tensor:
    """Write the transforms of x along a dimension to `out`.

    Args:
        x: complex, not lazily conjugated, or real, any strides.
        out: of x's shape but along `dim`; may be x.
        dim: from 0.
        form: what is computed.
        twist: factors [.., n] of the results over x's last two dimensions with `dim`, or None.

    Returns:
        `out`.
    """
    if not out.numel():
        return out
    steps = [0] * x.dim() if twist is None else twist.expand(out.shape).stride()
    dims = [
        (size, x.stride(d), out.stride(d), steps[d])
        for d, size in enumerate(x.shape)
        if d != dim and size != 1
    ]
    outer = merge(sorted(dims, key=lambda one: -abs(one[2])))
    numbered = Lines(tuple(map(tuple, outer)), (x.stride(dim), out.stride(dim)))
    launch = fft_rows.launch if _limits(x).kind == "cpu" else fft_groups.launch
    launch(x, out, form, numbered, twist)
    return out


def _limits(x: Tensor) -> Limits:
    return devices()[x.get_device()].limits
