"""OpenCL functions of float16 and bfloat16, which kernels compute with in float.

Pointwise expressions call them where an operator rounds on its way, or steps from a number of the
dtype to the next one.
"""

from __future__ import annotations

import torch

from ocl_backend.dtypes import BFLOAT16, dtype_of

_PACKED = """\
float unpacked(const ushort bits)
{
    return vload_half(0, (const half *)&bits);
}

ushort packed(const float x)
{
    ushort bits;
    vstore_half_rte(x, 0, (half *)&bits);
    return bits;
}
"""
_PACKED_BFLOAT16 = """\
float unpacked(const ushort bits)
{
    return as_float((uint)bits << 16);
}

ushort packed(const float x)
{
    return to_bfloat16(x);
}
"""
_FUNCTIONS = """\

float rounded(const float x)
{
    return unpacked(packed(x));
}

// sizes without their sign lie in the order of the numbers; -0 is 0
int ordered(const float x)
{
    const int bits = packed(x);
    return bits & 0x8000 ? -(bits & 0x7fff) : bits;
}

float neighbour(const float from, const float to)
{
    if (from != from || to != to)
        return NAN;
    const int here = ordered(from), there = ordered(to);
    if (here == there)
        return to;
    const int next = here + (here < there ? 1 : -1);
    const bool is_negative = next < 0 || (next == 0 && here < 0);
    return unpacked((ushort)(abs(next) | (is_negative ? 0x8000 : 0)));
}
"""


def narrow_functions(dtype: torch.dtype) -> str:
    """Return `rounded(x)`, x as `dtype` holds it, and `neighbour(from, to)`, the next number of it.

    Args:
        dtype: float16 or bfloat16, whose prelude the kernel has.
    """
    packed = _PACKED_BFLOAT16 if dtype_of(dtype) is BFLOAT16 else _PACKED
    return packed + _FUNCTIONS
