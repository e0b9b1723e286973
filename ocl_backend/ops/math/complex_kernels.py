"""Arithmetic on complex numbers by one launch: pairs of reals in, pairs or reals out.

`complex` composes of real kernels whatever has no kernel here.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.dimensions import broadcast_shapes, broadcast_strides
from ocl_backend.kernels.elementwise import Kernel, Operand, launch
from ocl_backend.kernels.vectors import SIGNED

REALS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Dtypes of the parts. Parts in 16 bits are rounded after each operation, as on the CPU."""

EXP = """\
const T length = exp(p), turned = length == (T)0 ? (T)0 : q;  // 0 has no angle
const R endless = isinf(p) && !isfinite(turned);
const T out_real = endless ? length : length * cos(turned);
const T out_imaginary = turned == (T)0 ? turned : length * sin(turned);
"""
DIV = """\
// both by the larger part first (Smith 1962), because a square could overflow; 0 divides each part
const R turned = fabs(r) < fabs(s), zero = r == (T)0 && s == (T)0;
const T large = turned ? s : r, small = turned ? r : s, ratio = small / large;
const T whole = zero ? fabs(r) : large + small * ratio;
const T out_real = (zero ? p : turned ? p * ratio + q : p + q * ratio) / whole;
const T out_imaginary = (zero ? q : turned ? q * ratio - p : q - p * ratio) / whole;
"""
BODIES = {
    "add": "const T out_real = p + r, out_imaginary = q + s;\n",
    "sub": "const T out_real = p - r, out_imaginary = q - s;\n",
    "mul": "const T out_real = p * r - q * s, out_imaginary = p * s + q * r;\n",
    "div": DIV,
    "neg": "const T out_real = -p, out_imaginary = -q;\n",
    "exp": EXP,
    "complex": "const T out_real = p, out_imaginary = r;\n",
    "polar": "const T out_real = p * cos(r), out_imaginary = p * sin(r);\n",
    "abs": "const T out = hypot(p, q);\n",
    "angle": "const T out = atan2(q, p);\n",
}
"""Of p + iq and r + is; q or s is 0 where an operand is real."""
OF_REALS = {"mul": "const T out_real = p * r, out_imaginary = q * r;\n",
            "div": "const T out_real = p / r, out_imaginary = q / r;\n"}  # fmt: skip
"""The same where the second operand is real: 0 times infinity is never added."""
TO_REALS = ("abs", "angle")
"""Those whose result is real."""


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
        dtype = real if name in TO_REALS else torch.promote_types(real, torch.complex64)
        out = (
            torch.empty(shape, dtype=dtype, device=device) if lead is None
            else torch.empty_like(lead, dtype=dtype)
        )  # fmt: skip
    given = [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in operands]
    written = torch.view_as_real(out) if out.is_complex() else out
    walked = {"out": out.stride()}
    for label, x, pairs in zip("ab", operands, given, strict=False):
        steps = (step // 2 for step in pairs.stride()[:-1]) if x.is_complex() else x.stride()
        walked[label] = broadcast_strides(shape, x.shape, tuple(steps))
    kernel = _kernel(name, real, tuple(x.is_complex() for x in operands))
    launch(kernel, shape, (*given, written), walked)
    return out


@cache
def _kernel(name: str, real: torch.dtype, pairs: tuple[bool, ...]) -> Kernel:
    body = ""
    for label, names, is_pair in zip("ab", ("pq", "rs"), pairs, strict=False):
        parts = (f"{label}_real", f"{label}_imaginary") if is_pair else (label, "(T)0")
        body += f"const T {names[0]} = {parts[0]}, {names[1]} = {parts[1]};\n"
    body += OF_REALS.get(name, BODIES[name]) if pairs == (True, False) else BODIES[name]
    value = dtype_of(real).value
    operands = [
        Operand(label, real, is_pair=pair) for label, pair in zip("ab", pairs, strict=False)
    ]
    out = Operand("out", real, "output", is_pair=name not in TO_REALS)
    return Kernel(f"complex_{name}", value, (*operands, out), body, truth=SIGNED[value])
