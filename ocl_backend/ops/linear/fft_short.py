"""Fourier transforms of short rows by one launch: in lanes of processors, in registers of GPUs.

Where a process transforms many lengths, GPUs do it in local memory: one text serves all.
"""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from ocl_backend.kernels.dimensions import merge
from ocl_backend.ops.linear import fft_groups, fft_plans, fft_registers, fft_rows
from ocl_backend.ops.linear.fft_tables import WHOLE, Form, Lines, Parts
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


def serves(x: Tensor, n: int, kinds: tuple[Parts, Parts] = WHOLE, sign: int = -1) -> bool:
    """Say whether one launch transforms rows of `n` numbers of x."""
    return x.dtype in PARTS and x.numel() < MOST_ITEMS and is_short(n, x, kinds, sign)


def is_short(n: int, x: Tensor, kinds: tuple[Parts, Parts] = WHOLE, sign: int = -1) -> bool:
    """Say whether one launch transforms rows of `n` numbers on x's device."""
    return _is_short(n, _limits(x), PARTS[x.dtype], kinds, sign)


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
        for d in range(min(_longest(limits), n - 1), 0, -1)
        if n % d == 0 and _is_short(d, limits, parts)
    ]
    if limits.kind == "cpu":
        return short[0]
    pairs = [d for d in short if _is_short(n // d, limits, parts)]
    return min(pairs, key=lambda d: max(d, n // d), default=short[0])


def _longest(limits: Limits) -> int:
    """Return a length that no row of one launch exceeds."""
    return fft_rows.LONGEST if limits.kind == "cpu" else fft_plans.longest(limits)


def _is_short(
    n: int,
    limits: Limits,
    parts: torch.dtype,
    kinds: tuple[Parts, Parts] = WHOLE,
    sign: int = -1,
) -> bool:
    if limits.kind == "cpu":
        return fft_rows.is_short(n)
    return fft_registers.core_of(n, kinds, sign, limits, parts.itemsize) is not None


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
    _kernel(form, _limits(x)).launch(x, out, form, numbered, twist)
    return out


def _kernel(form: Form, limits: Limits) -> ModuleType:
    if limits.kind == "cpu":
        return fft_rows
    is_any = fft_groups.is_short(form.n, limits, form.dtype)
    return fft_groups if is_any and not fft_registers.has_text(form.n) else fft_registers


def _limits(x: Tensor) -> Limits:
    return devices()[x.get_device()].limits
