"""Tensors made from nothing: ranges, identities and a window.

`full`, `zeros`, `ones` and their likes reach `fill_` and `zero_`, which are pointwise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from math import ceil
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.checks import check_written
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.dimensions import contiguous_strides
from ocl_backend.kernels.elementwise import Kernel, Operand, Run, Scalar, found
from ocl_backend.ops.fused import expressions
from ocl_backend.ops.fused.expressions import VALUES, Expression, Loosely, fits, lying
from ocl_backend.runtime.launch import MOST_LAUNCHES, Prepared
from oclgen.opencl.device import devices

Number = int | float


def arange_out(start: Number, end: Number, step: Number = 1, *, out: Tensor) -> Tensor:
    """Write start, start + step, ... up to but without `end` to `out`.

    Raises:
        RuntimeError: `step` is zero or leads away from `end`.
    """
    size = _items_of_arange(start, end, step, out.dtype)
    if out.numel() != size:
        if out.numel():
            warnings.warn(
                f"The number of elements in the out tensor of shape {[*out.shape]} is "
                f"{out.numel()} which does not match the computed number of elements {size}. "
                "Note that this may occur as a result of rounding error. The out tensor will be "
                f"resized to a tensor of shape ({size},).",
                stacklevel=3,
            )
        out.resize_((size,))
    if not out.dtype.is_floating_point:
        start, step = int(start), int(step)
    run, values = _filling(out, "start + step * (T)(position)", {"start": start, "step": step})
    if (rule := _rule_of_arange(out, run)) is None:
        run(*values)
    else:
        rule.enqueue(values)
    return out


def _items_of_arange(start: Number, end: Number, step: Number, dtype: torch.dtype) -> int:
    if dtype is torch.int64 and any(number != int(number) for number in (start, end, step)):
        # torch rounds before it counts, for this dtype alone, and from 2.14 on it counts before
        return torch.arange(start, end, step, dtype=dtype, device="meta").numel()
    if step == 0 or (end - start) / step < 0:
        raise RuntimeError(
            f"arange from {start} to {end}: step {step} never arrives; give it the sign of "
            "end - start"
        )
    return ceil((end - start) / step)


def linspace_out(start: Number, end: Number, steps: int, *, out: Tensor) -> Tensor:
    """Write `steps` evenly spaced numbers from `start` to `end`, both included, to `out`."""
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got {steps}")
    if out.numel() != steps:
        out.resize_((steps,))
    check_written("linspace", out)
    if steps == 1:
        return out.fill_(start)
    if out.is_complex():
        for name, half in zip(("real", "imag"), torch.view_as_real(out).unbind(-1), strict=True):
            linspace_out(getattr(start, name), getattr(end, name), steps, out=half)
        return out
    numbers = {"start": start, "end": end, "last": steps - 1}
    if not out.dtype.is_floating_point:
        step, rest = divmod(int(end) - int(start), steps - 1) if steps else (0, 0)
        whole: dict[str, Number]
        whole = {"start": int(start), "step": step, "rest": rest, "last": steps - 1}
        return _ramp(out, EVEN_INTEGERS, whole)
    text = "position * 2 <= (long)last ? start + step * (T)(position)"
    return _ramp(
        out,
        f"{text} : end - step * (last - (T)(position))",
        {**numbers, "step": (end - start) / max(steps - 1, 1)},
    )


EVEN_INTEGERS = """\
to_zero((ulong)start + (ulong)step * (ulong)position + (ulong)(rest * position / last),
        rest * position % last)"""
"""`step` is rounded down, and `rest` / `last` is what it lacks; steps of the whole range of int64
wrap around."""

TO_ZERO = """\
// rounds a number to zero that is `rest` more than a whole one, as the CPU does
long to_zero(const ulong whole, const long rest)
{
    return (long)whole + ((long)whole < 0 && rest);
}
"""


POW_ULP = 16
"""Error of `pow` at most (OpenCL C 3.0, 7.4): 3 to the 1 may be less than 3, and become 2."""


def logspace_out(
    start: Number, end: Number, steps: int, base: float = 10.0, *, out: Tensor
) -> Tensor:
    """Write `steps` powers of `base` whose exponents are evenly spaced from `start` to `end`."""
    if out.numel() != steps:
        out.resize_((steps,))
    dtype = out.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        start, end = int(start), int(end)
        limits = devices()[out.get_device()].limits
        doubles = "cl_khr_fp64" in limits.extensions
        dtype = torch.float64 if doubles else torch.float32
    exponents = torch.empty(steps, dtype=dtype, device=out.device)
    powers = torch.pow(base, linspace_out(start, end, steps, out=exponents))
    if dtype is not out.dtype:
        whole = powers.round()
        is_whole = (powers - whole).abs() <= POW_ULP * torch.finfo(dtype).eps * whole.abs()
        powers = torch.where(is_whole, whole, powers)
    return out.copy_(powers.view_as(out))


def _ramp(out: Tensor, expression: str, numbers: dict[str, Number]) -> Tensor:
    """Fill `out` with `expression` of `numbers` and each item's position in row-major order."""
    run, values = _filling(out, expression, numbers)
    run(*values)
    return out


def _filling(out: Tensor, expression: str, numbers: dict[str, Number]) -> tuple[Run, list[float]]:
    """Return the launch of `_ramp`, and what it is called with: the numbers, and `out`."""
    value = dtype_of(out.dtype).value if out.dtype.is_floating_point else "long"
    kernel = Kernel(
        "ramp",
        value,
        (
            Operand("position", role="position"),
            *(Scalar(name, value) for name in numbers),
            Operand("out", out.dtype, "output"),
        ),
        f"const T out = {expression};",
        TO_ZERO if expression is EVEN_INTEGERS else "",
        scalar_only=True,
    )
    dense = {"position": contiguous_strides(out.shape)}
    return found(kernel, out.shape, (*numbers.values(), out), dense)


def _rule_of_arange(out: Tensor, run: Run) -> Loosely | None:
    """Return the rule of an `arange` that other calls' kernels can take in, None of another."""
    if not isinstance(run, Prepared) or out.dtype is not torch.int64:
        return None
    return _rule(out.get_device(), out.dtype, tuple(out.shape), out.stride(), run)


@lru_cache(maxsize=MOST_LAUNCHES)
def _rule(
    device: int, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], run: Prepared
) -> Loosely | None:
    value = VALUES[dtype]
    numbers = tuple(
        expressions.Number(name, place, value) for place, name in enumerate(("start", "step"))
    )
    text = "const T out = start + step * POSITION;"
    out = lying("out", 2, dtype, shape, strides)
    made = Expression("pointwise", (), out, value, text, numbers)
    return Loosely("arange", device, run, made) if len(shape) == 1 and fits(made) else None


def eye_out(n: int, m: int | None = None, *, out: Tensor) -> Tensor:
    """Write the identity of n rows and m (default n) columns to `out`."""
    if min(n, 0 if m is None else m) < 0:
        raise RuntimeError(f"eye of {n} rows and {m} columns; neither may be negative")
    out.resize_((n, n if m is None else m)).zero_()
    out.diagonal().fill_(1)
    return out


def zero_tensor(size: list[int], **options: Any) -> Tensor:
    """Return zeros where torch may make a tensor that has no memory: this device has none such."""
    return torch.zeros(size, **options)


def kaiser_window(length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """Return Kaiser's window [length], of floats; a periodic one lacks the last item of its period.

    torch's own kernel of it has no entry for this device, and ends in an internal assertion.

    Raises:
        RuntimeError: `length` is negative, or the dtype asked for is not of floats.
    """
    dtype = options.get("dtype") or torch.get_default_dtype()
    if length < 0 or not dtype.is_floating_point:
        raise RuntimeError(f"kaiser_window of {length} items as {dtype}; it needs 0 or more floats")
    if length <= 1:
        return torch.ones(length, **options)
    wide = torch.promote_types(dtype, torch.float32)
    at = torch.linspace(-1, 1, length + periodic, **options | {"dtype": wide})[:length]
    bent = torch.i0((1 - at * at).clamp(min=0).sqrt() * beta)
    return (bent / torch.i0(torch.full((), beta, dtype=torch.float64, device="cpu"))).to(dtype)


OPERATORS: dict[str, Callable[..., Any]] = {
    "arange.start_out": arange_out,
    "linspace.out": linspace_out,
    "logspace.out": logspace_out,
    "eye.out": eye_out,
    "eye.m_out": eye_out,
    "_efficientzerotensor": zero_tensor,
    "kaiser_window": kaiser_window,
    "kaiser_window.periodic": kaiser_window,
    "kaiser_window.beta": kaiser_window,
}
"""Implementations by aten name."""
