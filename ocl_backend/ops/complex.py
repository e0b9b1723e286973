"""Complex numbers: their parts, lazily conjugated tensors, and how they are put together.

A complex tensor is a real one with a last dimension of 2. Arithmetic that is not here runs on the
CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.ops.layout import broadcast_shapes


def conj_physical_(x: Tensor) -> Tensor:
    """Negate the imaginary parts in place."""
    if x.is_complex():
        torch.view_as_real(x)[..., 1].neg_()
    return x


def conj_physical_out(x: Tensor, *, out: Tensor) -> Tensor:
    """Write x with negated imaginary parts to `out`, which may be x."""
    if out is not x:
        out.resize_(x.shape).copy_(x)
    return conj_physical_(out)


def complex_out(real: Tensor, imaginary: Tensor, *, out: Tensor) -> Tensor:
    """Write numbers with these parts to `out`, a complex tensor."""
    out.resize_(broadcast_shapes(real.shape, imaginary.shape))
    parts = torch.view_as_real(out)
    parts[..., 0].copy_(real)
    parts[..., 1].copy_(imaginary)
    return out


def polar_out(length: Tensor, angle: Tensor, *, out: Tensor) -> Tensor:
    """Write numbers of these lengths and angles, in radians, to `out`, a complex tensor."""
    return complex_out(length * angle.cos(), length * angle.sin(), out=out)


OPERATORS: dict[str, Callable[..., Any]] = {
    "conj_physical_": conj_physical_,
    "conj_physical.out": conj_physical_out,
    "complex.out": complex_out,
    "polar.out": polar_out,
}
"""Implementations by aten name."""
