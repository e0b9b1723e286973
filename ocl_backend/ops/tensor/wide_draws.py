"""Random floats on processors: sixteen draws of Philox at once, by vectors of sixteen.

The numbers are those of `random`, draw by draw; functions of vectors may round otherwise.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from ocl_backend.dtypes import BFLOAT16, dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar
from oclgen.render import bf16_keeping_nan

DRAWS, ITEMS = 16, 64
"""Draws of a block, and its numbers: four for each draw."""

PHILOX = """\
void philox_16(const ulong seed, const ulong counter, uint16 *c)
{
    const ulong16 at = counter + (ulong16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    uint16 c0 = convert_uint16(at), c1 = convert_uint16(at >> 32), c2 = 0, c3 = 0;
    uint2 key = (uint2)((uint)seed, (uint)(seed >> 32));
    for (int round = 0; round < 10; ++round) {
        const uint16 high_0 = mul_hi((uint16)(0xD2511F53u), c0), low_0 = 0xD2511F53u * c0;
        const uint16 high_1 = mul_hi((uint16)(0xCD9E8D57u), c2), low_1 = 0xCD9E8D57u * c2;
        c0 = high_1 ^ c1 ^ key.s0;
        c1 = low_1;
        c2 = high_0 ^ c3 ^ key.s1;
        c3 = low_0;
        key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
    }
    c[0] = c0;
    c[1] = c1;
    c[2] = c2;
    c[3] = c3;
}

float16 uniform_16(const uint16 r)
{
    return convert_float16(r >> 8) * 0x1p-24f;
}
"""

NORMAL = """\
const float16 radius0 = sqrt(-2.0f * log(1.0f - u0)), radius1 = sqrt(-2.0f * log(1.0f - u2));
const float16 n0 = radius0 * cospi(2.0f * u1), n1 = radius0 * sinpi(2.0f * u1);
const float16 n2 = radius1 * cospi(2.0f * u3), n3 = radius1 * sinpi(2.0f * u3);
"""


@lru_cache(maxsize=64)
def wide_kernel(name: str, dtype: torch.dtype, expression: str, numbers: tuple[str, ...]) -> Kernel:
    """Return the kernel that writes blocks of numbers.

    Args:
        name: of the distribution.
        dtype: of the numbers, computed with in float.
        expression: of `uniform(r)` or `normal(r)`; `T` is a vector.
        numbers: its scalars.
    """
    item = dtype_of(dtype)
    text = expression.replace("(T)", "(float16)")
    values = [text.replace("uniform(r)", f"u{k}").replace("normal(r)", f"n{k}") for k in range(4)]
    whole, rest = list[str](), list[str]()
    for piece in range(4):
        lanes = ", ".join(f"d{k % 4}.s{4 * piece + k // 4:x}" for k in range(16))
        kept = vectors.to_dtype(item, "float", f"(float16)({lanes})", 16)
        whole += vectors.store(item, "out_data", f"out_at + {16 * piece}", "1", kept, 16)
        rest.append(f"vstore16((float16)({lanes}), {piece}, values);")
    body = [
        "uint16 r[4];",
        f"philox_16(seed, offset + block * {DRAWS}, r);",
        *(f"const float16 u{k} = uniform_16(r[{k}]);" for k in range(4)),
        *(NORMAL.splitlines() if "normal(r)" in expression else ()),
        *(f"const float16 d{k} = {value};" for k, value in enumerate(values)),
        f"if (block * {ITEMS} + {ITEMS} <= count) {{",
        *(f"    {line}" for line in whole),
        "} else {",
        f"    float values[{ITEMS}];",
        *(f"    {line}" for line in rest),
        f"    for (int k = 0; k < count - block * {ITEMS}; ++k)",
        "        STORE_out(out_at + k, values[k]);",
        "}",
    ]
    prelude = bf16_keeping_nan("to_bfloat16_16", 16) if item is BFLOAT16 else ""
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("block", role="position"),
        Operand("out", dtype, "address"),
        *(Scalar(label, "long") for label in ("seed", "offset", "count")),
        *(Scalar(label, "float") for label in numbers),
    )
    return Kernel(
        f"wide_{name}", "float", parameters, "\n".join(body), prelude + PHILOX,
        scalar_only=True, work=DRAWS,
    )  # fmt: skip
