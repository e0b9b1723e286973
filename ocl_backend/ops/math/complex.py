"""Complex numbers: their parts, lazily conjugated tensors, and arithmetic by real kernels.

A complex tensor is a real one with a last dimension of 2, so no kernel here knows complex numbers;
what `complex_kernels` has is one launch. What is not here runs on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import check_cast, into, resized_elementwise
from ocl_backend.kernels.dimensions import broadcast_shapes
from ocl_backend.ops.math.complex_kernels import computed

Number = int | float | complex
Part = Tensor | float
Parts = tuple[Part, Part]


def conj_physical_(x: Tensor) -> Tensor:
    """Negate the imaginary parts in place."""
    if x.is_complex():
        torch.view_as_real(x)[..., 1].neg_()
    return x


def conj_physical_out(x: Tensor, *, out: Tensor) -> Tensor:
    """Write x with negated imaginary parts to `out`, which may be x."""
    check_cast(x.dtype, out.dtype)
    if out is not x:
        resized_elementwise(out, tuple(x.shape), (x,)).copy_(x)
    return conj_physical_(out)


def complex_out(real: Tensor, imaginary: Tensor, *, out: Tensor) -> Tensor:
    """Write numbers with these parts to `out`, a complex tensor.

    Raises:
        RuntimeError: the parts have not the same dtype, or it is not half of the output's.
    """
    expected = real.dtype.to_complex() if real.is_floating_point() else None
    if real.dtype is not imaginary.dtype or expected is not out.dtype:
        raise RuntimeError(
            f"complex numbers of dtype {out.dtype} cannot be made from parts of {real.dtype} and "
            f"{imaginary.dtype}; both must be floats of half its size"
        )
    shape = broadcast_shapes(real.shape, imaginary.shape)
    out = resized_elementwise(out, shape, (real, imaginary))
    if computed("complex", real, imaginary, out=out) is not None:
        return out
    return _filled(out, (real, imaginary))


def polar_out(length: Tensor, angle: Tensor, *, out: Tensor) -> Tensor:
    """Write numbers of these lengths and angles, in radians, to `out`, a complex tensor."""
    if length.dtype is angle.dtype and out.dtype is length.dtype.to_complex():
        shape = broadcast_shapes(length.shape, angle.shape)
        out = resized_elementwise(out, shape, (length, angle))
        if computed("polar", length, angle, out=out) is not None:
            return out
    return complex_out(length * angle.cos(), length * angle.sin(), out=out)


def parts(x: Tensor | Number) -> Parts:
    """Return real and imaginary part; 0 for the latter if there is none."""
    if not isinstance(x, Tensor):
        return (x.real, x.imag) if isinstance(x, complex) else (x, 0)
    if x.dim() == 0 and x.device.type == "cpu":
        return parts(x.item())
    if not x.is_complex():
        return x, 0
    return halves(x)


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return views of real and imaginary part of a complex tensor."""
    real, imaginary = torch.view_as_real(x.resolve_conj()).unbind(-1)
    return real, imaginary


def _filled(out: Tensor, values: Parts) -> Tensor:
    for target, value in zip(torch.view_as_real(out).unbind(-1), values, strict=True):
        target.copy_(value) if isinstance(value, Tensor) else target.fill_(value)
    return out


def fill_(x: Tensor, value: Number) -> Tensor:
    """Set every number to `value`."""
    return _filled(x, parts(value))


def zero_(x: Tensor) -> Tensor:
    """Set every number to 0."""
    torch.view_as_real(x).zero_()
    return x


def add(a: Tensor, b: Tensor | Number, *, alpha: Number = 1) -> Parts:
    """Return a + alpha * b."""
    (a_real, a_imaginary), (b_real, b_imaginary) = parts(a), mul(b, alpha)
    return a_real + b_real, a_imaginary + b_imaginary


def sub(a: Tensor, b: Tensor | Number, *, alpha: Number = 1) -> Parts:
    """Return a - alpha * b."""
    return add(a, b, alpha=-alpha)


def rsub(a: Tensor, b: Tensor | Number, *, alpha: Number = 1) -> Parts:
    """Return b - alpha * a."""
    (a_real, a_imaginary), (b_real, b_imaginary) = mul(a, alpha), parts(b)
    return b_real - a_real, b_imaginary - a_imaginary


def mul(a: Tensor | Number, b: Tensor | Number) -> Parts:
    """Return a * b."""
    (p, q), (r, s) = parts(a), parts(b)
    if isinstance(s, int | float) and s == 0:
        return p * r, q * r
    if isinstance(q, int | float) and q == 0:
        return p * r, p * s
    return p * r - q * s, p * s + q * r


def div(a: Tensor, b: Tensor | Number) -> Parts:
    """Return a / b, by the conjugate of b scaled so that its square cannot overflow."""
    r, s = parts(b)
    if isinstance(s, int | float) and s == 0:
        real, imaginary = parts(a)
        return real / r, imaginary / r
    if not isinstance(r, Tensor):
        return mul(a, 1 / complex(r, s))
    assert isinstance(s, Tensor)  # the other part of a complex tensor
    unit = torch.maximum(r.abs(), s.abs())
    r, s = r / unit, s / unit
    p, q = parts(a)
    square = (r * r + s * s) * unit
    return (p * r + q * s) / square, (q * r - p * s) / square


def neg(x: Tensor) -> Parts:
    """Return -x."""
    real, imaginary = parts(x)
    return -real, -imaginary


def exp(x: Tensor) -> Parts:
    """Return the exponential, of infinite parts as C's `cexp` does: infinity times 0 is NaN."""
    real, imaginary = halves(x)
    length = real.exp()
    turned = torch.where(length == 0, 0, imaginary)  # 0 has no angle
    endless = real.isinf() & turned.isfinite().logical_not()
    return (
        torch.where(endless, length, length * turned.cos()),
        torch.where(turned == 0, turned, length * turned.sin()),
    )


def abs_(x: Tensor) -> Tensor:
    """Return the absolute value, a real tensor."""
    found = computed("abs", x)
    return torch.hypot(x.real, x.imag) if found is None else found


def angle(x: Tensor) -> Tensor:
    """Return the angle in radians, a real tensor."""
    found = computed("angle", x)
    return torch.atan2(x.imag, x.real) if found is None else found


def sgn(x: Tensor) -> Parts:
    """Return x / |x|, and 0 for 0."""
    length = abs_(x)
    unit = torch.where(length == 0, 1, length)
    return x.real / unit, x.imag / unit


def sum_(
    x: Tensor,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Parts:
    """Return the sums of the parts."""
    return _reduced(Tensor.sum, x, dims, keepdim, dtype)


def mean(
    x: Tensor,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Parts:
    """Return the means of the parts."""
    return _reduced(Tensor.mean, x, dims, keepdim, dtype)


def _reduced(
    reduce: Callable[..., Tensor],
    x: Tensor,
    dims: Sequence[int] | None,
    keepdim: bool,
    dtype: torch.dtype | None,
) -> Parts:
    over = None if dims is None else list(dims)
    real, imaginary = halves(x if dtype is None else x.to(dtype))
    return reduce(real, over, keepdim), reduce(imaginary, over, keepdim)


def product(a: Tensor, b: Tensor) -> Parts:
    """Return the matrix product a · b."""
    (p, q), (r, s) = parts(a), parts(b)
    product: Callable[..., Tensor] = torch.matmul
    return product(p, r) - product(q, s), product(p, s) + product(q, r)


def reciprocal(x: Tensor) -> Parts:
    """Return 1 / x."""
    return div(torch.ones_like(x), x)


def eq(a: Tensor, b: Tensor | Number) -> Tensor:
    """Whether both parts are equal."""
    (p, q), (r, s) = parts(a), parts(b)
    same: Tensor = _equal(p, r) & _equal(q, s)
    return same


def _equal(a: Part, b: Part) -> Any:
    """Whether one part is the other; two numbers are those of a real tensor and a number."""
    first, second = (a, b) if isinstance(a, Tensor) else (b, a)
    return first.eq(second) if isinstance(first, Tensor) else first == second


def ne(a: Tensor, b: Tensor | Number) -> Tensor:
    """Whether a part differs."""
    return eq(a, b).logical_not()


def _made(function: Callable[..., Parts], *args: Any, **kwargs: Any) -> Tensor:
    real, imaginary = function(*args, **kwargs)
    some = real if isinstance(real, Tensor) else imaginary
    assert isinstance(some, Tensor)  # an operand is one
    real, imaginary = (
        part if isinstance(part, Tensor) else torch.full_like(some, part)
        for part in (real, imaginary)
    )
    shape = broadcast_shapes(real.shape, imaginary.shape)
    dtype = torch.promote_types(real.dtype, imaginary.dtype)  # a real operand may be the wider
    if dtype is torch.bfloat16:
        dtype = torch.float32  # no complex dtype has such parts
    return torch.complex(real.to(dtype).expand(shape), imaginary.to(dtype).expand(shape))


def _as_float(operand: Any, dtype: torch.dtype) -> Any:
    """Return integers as real parts of numbers of `dtype`: bytes have no negatives."""
    if not isinstance(operand, Tensor) or operand.is_complex() or operand.is_floating_point():
        return operand
    return operand.to(dtype.to_real())


def is_alone(x: Tensor, others: Sequence[Any]) -> bool:
    """Whether a kernel can write to complex x what it makes of x and others, which are no larger.

    Args:
        x: written in place.
        others: operands; one may be x itself, else none shares its memory.
    """
    tensors = [each for each in others if isinstance(each, Tensor)]
    fits = all(broadcast_shapes(x.shape, each.shape) == tuple(x.shape) for each in tensors)
    memory = x.untyped_storage().data_ptr()
    apart = all(each is x or each.untyped_storage().data_ptr() != memory for each in tensors)
    return x.is_complex() and not x.is_conj() and not x.is_neg() and fits and apart


def _forms(name: str, label: str, function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return an operator's functional, in-place and out forms, of the overload `label`."""
    dot = f".{label}" if label else ""

    def at_once(args: Sequence[Any], kwargs: dict[str, Any], out: Tensor | None) -> Tensor | None:
        """Return what a kernel makes; None: parts are computed one by one."""
        if not all(isinstance(x, Tensor) for x in args) or kwargs.get("alpha", 1) != 1:
            return None
        if kwargs.keys() - {"alpha"}:
            return None
        return computed(name, *args, out=out)

    def make(*args: Any, **kwargs: Any) -> Tensor:
        made = at_once(args, kwargs, None)
        if made is not None:
            return made
        operands = args[:2]
        if len(operands) < 2 or isinstance(operands[1], str):
            return _made(function, *args, **kwargs)
        dtype = torch.result_type(*operands)  # one without dimensions widens none with
        floats = (_as_float(operand, dtype) for operand in operands)
        return _made(function, *floats, *args[2:], **kwargs).to(dtype)

    def in_place(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if is_alone(x, args) and at_once((x, *args), kwargs, x) is not None:
            return x
        made = make(x, *args, **kwargs)
        check_cast(made.dtype, x.dtype)
        return x.copy_(made)

    # of real operands, which a complex output may have, the real kernel makes the result
    functional = getattr(getattr(torch.ops.aten, name), label or "default")
    return {f"{name}{dot}": make, f"{name}_{dot}": in_place, f"{name}.out": into(functional)}


RESCUES: dict[str, Callable[..., Any]] = {
    "zero_": zero_,
    "fill_.Scalar": fill_,
    **_forms("add", "Tensor", add),
    **_forms("sub", "Tensor", sub),
    **_forms("mul", "Tensor", mul),
    **_forms("div", "Tensor", div),
    **_forms("neg", "", neg),
    **_forms("reciprocal", "", reciprocal),
    **_forms("exp", "", exp),
    **_forms("sgn", "", sgn),
    "rsub.Tensor": lambda *args, **kwargs: _made(rsub, *args, **kwargs),
    "sum.dim_IntList": lambda *args, **kwargs: _made(sum_, *args, **kwargs),
    "mean.dim": lambda *args, **kwargs: _made(mean, *args, **kwargs),
    "mm": lambda *args: _made(product, *args),
    "bmm": lambda *args: _made(product, *args),
    "abs": abs_,
    "abs.out": into(abs_),
    "angle": angle,
    "eq.Tensor": eq,
    "eq.Scalar": eq,
    "ne.Tensor": ne,
    "ne.Scalar": ne,
}
"""Serves an operator's complex operands if its kernel knows only real ones."""

OPERATORS: dict[str, Callable[..., Any]] = {
    "conj_physical_": conj_physical_,
    "conj_physical.out": conj_physical_out,
    "complex.out": complex_out,
    "polar.out": polar_out,
}
"""Implementations by aten name."""
