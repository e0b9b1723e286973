"""Tensors made from nothing: ranges, identities and triangles.

`full`, `zeros`, `ones` and their likes reach `fill_` and `zero_`, which are pointwise.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.ops.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.ops.layout import contiguous_strides
from ocl_backend.ops.outputs import into

Number = int | float


def arange_out(start: Number, end: Number, step: Number = 1, *, out: Tensor) -> Tensor:
    """Write start, start + step, ... up to but without `end` to `out`.

    Raises:
        RuntimeError: `step` is zero or leads away from `end`.
    """
    if step == 0 or (end - start) / step < 0:
        raise RuntimeError(
            f"arange from {start} to {end}: step {step} never arrives; give it the sign of "
            "end - start"
        )
    size = ceil((end - start) / step)
    if out.numel() != size:
        out.resize_((size,))
    return _ramp(out, start, step)


def linspace_out(start: Number, end: Number, steps: int, *, out: Tensor) -> Tensor:
    """Write `steps` evenly spaced numbers from `start` to `end`, both included, to `out`."""
    if out.numel() != steps:
        out.resize_((steps,))
    return _ramp(out, start, (end - start) / max(steps - 1, 1))


def _ramp(out: Tensor, start: Number, step: Number) -> Tensor:
    floating = out.dtype.is_floating_point or isinstance(step, float)
    value = "long" if not floating else dtype_of(out.dtype).value
    if floating and value not in ("float", "double"):
        value = "float"
    kernel = Kernel(
        "arange",
        value,
        (
            Operand("position", role="position"),
            *(Scalar("start", value), Scalar("stride", value)),
            Operand("out", out.dtype, "output"),
        ),
        "const T out = start + stride * (T)(position);",
        scalar_only=True,
    )
    dense = {"position": contiguous_strides(out.shape)}
    launch(kernel, out.shape, (start, step, out), dense)
    return out


def eye_out(n: int, m: int | None = None, *, out: Tensor) -> Tensor:
    """Write the identity of n rows and m (default n) columns to `out`."""
    out.resize_((n, n if m is None else m)).zero_()
    out.diagonal().fill_(1)
    return out


def zero_tensor(size: list[int], **options: Any) -> Tensor:
    """Return zeros where torch may make a tensor that has no memory: this device has none such."""
    return torch.zeros(size, **options)


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """Keep what is on and below a diagonal of each matrix."""
    return _triangle("tril", "column - row <= diagonal", x, diagonal)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """Keep what is on and above a diagonal of each matrix."""
    return _triangle("triu", "column - row >= diagonal", x, diagonal)


def tril_(x: Tensor, diagonal: int = 0) -> Tensor:
    """Zero what is above a diagonal of each matrix, in place."""
    return x.copy_(tril(x, diagonal))


def triu_(x: Tensor, diagonal: int = 0) -> Tensor:
    """Zero what is below a diagonal of each matrix, in place."""
    return x.copy_(triu(x, diagonal))


def _triangle(name: str, keeps: str, x: Tensor, diagonal: int) -> Tensor:
    out = torch.empty_like(x)
    kernel = Kernel(
        name,
        dtype_of(x.dtype).value,
        (
            Operand("self", x.dtype),
            Operand("row", role="position"),
            Operand("column", role="position"),
            Scalar("diagonal", "long"),
            Operand("out", x.dtype, "output"),
        ),
        f"const T out = {keeps} ? self : (T)(0);",
        scalar_only=True,
    )
    none = (0,) * (x.dim() - 2)
    launch(kernel, x.shape, (x, diagonal, out), {"row": (*none, 1, 0), "column": (*none, 0, 1)})
    return out


OPERATORS: dict[str, Callable[..., Any]] = {
    "arange.start_out": arange_out,
    "linspace.out": linspace_out,
    "eye.out": eye_out,
    "eye.m_out": eye_out,
    "_efficientzerotensor": zero_tensor,
    "tril": tril,
    "tril_": tril_,
    "tril.out": into(tril),
    "triu": triu,
    "triu_": triu_,
    "triu.out": into(triu),
}
"""Implementations by aten name."""
