"""Fourier transforms of short rows by one launch: lanes on processors, local memory on GPUs."""

from __future__ import annotations

import torch
from torch import Tensor

from ocl_backend.ops.linear import fft_groups, fft_rows
from ocl_backend.ops.linear.fft_tables import Form
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
    if _on_processor(x):
        return fft_rows.is_short(n)
    return fft_groups.is_short(n, x.get_device(), PARTS[x.dtype])


def divisor(n: int, x: Tensor) -> int:
    """Return the factor of a long transform that one launch computes first, 1 where there is none.

    On processors it is the largest; on GPUs the factors are near each other, since few rows of a
    work-group that lie side by side are read in small pieces.
    """
    short = [d for d in range(min(_longest(x), n - 1), 0, -1) if n % d == 0 and is_short(d, x)]
    if _on_processor(x):
        return short[0]
    pairs = [d for d in short if is_short(n // d, x)]
    return min(pairs, key=lambda d: max(d, n // d), default=short[0])


def _longest(x: Tensor) -> int:
    """Return a length that no row of one launch exceeds on x's device."""
    if _on_processor(x):
        return fft_rows.LONGEST
    limits = devices()[x.get_device()].limits
    return fft_groups.items_of(limits, 2 * PARTS[x.dtype].itemsize)


def lines(x: Tensor, out: Tensor, dim: int, form: Form, twist: Tensor | None = None) -> Tensor:
    """Write the transforms of x along a dimension to `out`; as `fft_rows.lines`."""
    by = fft_rows.lines if _on_processor(x) else fft_groups.lines
    return by(x, out, dim, form, twist)


def _on_processor(x: Tensor) -> bool:
    return devices()[x.get_device()].limits.kind == "cpu"
