"""Instructions of `oclgen.opencl.byte_dots` in plain OpenCL C, after the words of their makers.

The text of an instruction stays as it is; what its compiler brings is defined here.
"""

from __future__ import annotations

import re

import pytest

from oclgen.opencl import byte_dots
from tests.sampled_builds import EMULATED

KEPT = dict(byte_dots.INSTRUCTIONS)
HEAD = """
int four_products(const uint x, const uint y)
{
    const int4 products = convert_int4(as_char4(x)) * convert_int4(as_char4(y));
    return products.s0 + products.s1 + products.s2 + products.s3;
}
#define __opencl_c_integer_dot_product_input_4x8bit_packed 1
#define dot_4x8packed_ss_int(x, y) four_products(x, y)
#define __builtin_amdgcn_sdot4(x, y, sum, saturate) ((sum) + four_products((uint)(x), (uint)(y)))
#define __builtin_amdgcn_sudot4(signed_x, x, signed_y, y, sum, saturate) \\
    __builtin_amdgcn_sdot4(x, y, sum, saturate)
"""
INTEL = """
int __builtin_IB_dp4a_ss(int sum, int x, int y, bool saturate)
{
    return sum + four_products((uint)x, (uint)y);
}
"""


def text(name: str) -> str:
    """Return an instruction's text with what its compiler would bring."""
    body = re.sub(r"__asm__.*;", "result = sum + four_products(x, y);", KEPT[name])
    return EMULATED + HEAD + body + (INTEL if name == "dp4a_intel" else "")


def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels on instructions of `byte_dots` compute with this."""
    for name in KEPT:
        monkeypatch.setitem(byte_dots.INSTRUCTIONS, name, text(name))
