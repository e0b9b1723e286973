"""Arithmetic on complex numbers by one launch: pairs of reals in, a pair out.

`complex` composes of real kernels whatever has no kernel here.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.dimensions import broadcast_shapes, broadcast_strides
from ocl_backend.kernels.elementwise import Kernel, Operand, launch

REALS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Dtypes of the parts. Parts in 16 bits are rounded after each operation, as on the CPU."""

EXP = """\
const T length = exp(p), turned = length == (T)0 ? (T)0 : q;  // 0 has no angle
const bool endless = isinf(p) && !isfinite(turned);
const T real = endless ? length : length * cos(turned);
const T imaginary = turned == (T)0 ? turned : length * sin(turned);
"""
DIV = """\
const T unit = fmax(fabs(r), fabs(s)), u = r / unit, v = s / unit;  // a square could overflow
const T square = (u * u + v * v) * unit;
const T real = (p * u + q * v) / square, imaginary = (q * u - p * v) / square;
"""
BODIES = {
    "add": "const T real = p + r, imaginary = q + s;\n",
    "sub": "const T real = p - r, imaginary = q - s;\n",
    "mul": "const T real = p * r - q * s, imaginary = p * s + q * r;\n",
    "div": DIV,
    "neg": "const T real = -p, imaginary = -q;\n",
    "exp": EXP,
    "complex": "const T real = p, imaginary = r;\n",
    "polar": "const T real = p * cos(r), imaginary = p * sin(r);\n",
}
"""Of p + iq and r + is; q or s is 0 where an operand is real."""
OF_REALS = {"mul": "const T real = p * r, imaginary = q * r;\n",
            "div": "const T real = p / r, imaginary = q / r;\n"}  # fmt: skip
"""The same where the second operand is real: 0 times infinity is never added."""


def computed(name: str, *operands: Tensor, out: Tensor | None = None) -> Tensor | None:
    """Return what an operator makes of its operands; None: it has no kernel for these.

    Args:
        name: one of `BODIES`.
        operands: complex tensors of one dtype, or real ones of its parts' dtype.
        out: takes the result, of its shape and dtype; None: a new tensor does.
    """
    device, reals = operands[0].device, {REALS.get(x.dtype, x.dtype) for x in operands}
    (real,) = reals if len(reals) == 1 else (None,)
    if name not in BODIES or real is None or device.type != "ocl":
        return None
    if real not in REALS.values():
        return None
    if any(x.device != device or x.is_neg() for x in operands):
        return None
    shape = broadcast_shapes(*(x.shape for x in operands))
    if out is None:
        lead = next((x for x in operands if x.shape == shape), None)
        dtype = torch.promote_types(real, torch.complex64)
        out = (
            torch.empty(shape, dtype=dtype, device=device) if lead is None
            else torch.empty_like(lead, dtype=dtype)
        )  # fmt: skip
    given = [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in operands]
    written = torch.view_as_real(out)
    walked = {"out": written.stride()[:-1]}
    for label, x in zip("ab", given, strict=False):
        is_pair = x.dim() > operands["ab".index(label)].dim()
        sizes, steps = (x.shape[:-1], x.stride()[:-1]) if is_pair else (x.shape, x.stride())
        walked[label] = broadcast_strides(shape, sizes, steps)
    kernel = _kernel(name, real, tuple(x.is_complex() for x in operands))
    launch(kernel, shape, (*given, written), walked)
    return out


@cache
def _kernel(name: str, real: torch.dtype, pairs: tuple[bool, ...]) -> Kernel:
    body = ""
    for label, names, is_pair in zip("ab", ("pq", "rs"), pairs, strict=False):
        at = f"LOAD_{label}({label}_at"
        imaginary = f"{at} + 1)" if is_pair else "(T)0"
        body += f"const T {names[0]} = {at}), {names[1]} = {imaginary};\n"
    body += OF_REALS.get(name, BODIES[name]) if pairs == (True, False) else BODIES[name]
    body += "STORES_out(out_at, ((VALUE2)(real, imaginary)))"
    value = dtype_of(real).value
    operands = [Operand(label, real, "address") for label, _ in zip("ab", pairs, strict=False)]
    return Kernel(
        f"complex_{name}", value, (*operands, Operand("out", real, "address", items=2)),
        body.replace("VALUE", value), scalar_only=True,
    )  # fmt: skip
