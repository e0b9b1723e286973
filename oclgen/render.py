"""Renders kernel templates into readable OpenCL C; knows templates and dtypes, no problem."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from oclgen.activations import ACTIVATIONS
from oclgen.problem import Activation

VECTOR_WIDTHS = (1, 2, 4, 8, 16)
BF16_ROUNDED = "(u + 0x7fffu + ((u >> 16) & 1u)) >> 16"
"""A float's bits `u` as those of the nearest bf16, ties to even; of NaNs some become infinities or
zeros."""
BF16_BITS = """\
#if defined(__NV_CL_C_VERSION) || defined(__NVPTX__)
#define BF16_BITS(bits) min(bits, 0x7fff0000)
#else
#define BF16_BITS(bits) (bits)
#endif"""
"""The macro of a float's bits, as an int, that rounding to bf16 leaves a NaN where they are one.

NVIDIA's NaN has all bits but the sign, and rounding would carry into it: -0. No number and no
infinity is above that bound. Other devices' NaNs have fewer bits.
"""
TF32_NEAREST = "(value + 0xfffu + ((value >> 13) & 1u)) & 0xffffe000u"
"""A float's bits `value` as those of the nearest tf32, ties to even; wrong for infinities and NaNs,
whose exponents are all ones."""
TF32_ROUNDED = "(value & 0x7f800000u) == 0x7f800000u ? value : nearest"
"""`value`, an infinity or a NaN as it is, else `nearest`, which holds `TF32_NEAREST`."""
BF16_INSTRUCTION = "BF16_INSTRUCTION"
"""Macro that is defined for a device that rounds two floats to bf16 by one instruction: there a
program begins with the function `bf16_pair(high, low)`, which returns both as a word."""
NARROW = "#define NARROW_QUOTIENTS"
"""Marks texts whose quotients are rounded to 16 bits, and nowhere to integers, so that they may be
2.5 units of a float's last place off. Correct ones double the time of sigmoid in fp16 (H200)."""
STORED = {"fp32": "float", "tf32": "float", "fp16": "half", "bf16": "ushort"}
"""OpenCL C's type of an element in memory."""


def render(template: str, *, package: str = "oclgen", **values: object) -> str:
    """Return the text of `{template}.cl.mako`, which lies beside some module of `package`.

    A template's name is its own within a package, whatever the folder; undefined names are errors.
    """
    from oclgen.templates import templates  # mako imports pygments: 0.2 s that imports of ours save

    text: str = templates(package).get(f"{template}.cl.mako").render_unicode(**values)
    return _tidy(text)


@lru_cache(maxsize=1024)
def rendered(template: str, *, package: str = "oclgen", **values: object) -> str:
    """Return `render`'s text, remembered by its values, which hash.

    For kernels that are prepared for one size after another: to render takes half a millisecond.
    """
    return render(template, package=package, **values)


def _tidy(text: str) -> str:
    """Drop trailing blanks and runs of empty lines that template directives leave behind."""
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"


def vector(width: int, scalar: str = "float") -> str:
    """Return OpenCL C's name of a vector type: `float`, `float4`."""
    return scalar if width == 1 else f"{scalar}{width}"


@cache
def dtype_preamble(dtype: str) -> str:
    """Return typedef `elem_t` and `LOAD{w}(p)`, `STORE{w}(v, p)` macros for storage of `dtype`.

    `p` points at `elem_t`; values are fp32 in registers. fp16 goes through `vload_half`, which
    needs no extension (OpenCL C 1.2, 6.12.7); bf16 is the upper half of an fp32, rounded to even;
    a NaN that a device's arithmetic gives stays one.
    """
    lines = [f"typedef {STORED[dtype]} elem_t;"]
    if dtype == "bf16":
        lines.extend(_bf16_functions())
    for width in VECTOR_WIDTHS:
        suffix = "" if width == 1 else str(width)
        if STORED[dtype] == "float":
            load = "(*(p))" if width == 1 else f"vload{width}(0, (p))"
            store = "(*(p) = (v))" if width == 1 else f"vstore{width}((v), 0, (p))"
        elif dtype == "fp16":
            load, store = f"vload_half{suffix}(0, (p))", f"vstore_half{suffix}_rte((v), 0, (p))"
        else:
            raw = "(*(p))" if width == 1 else f"vload{width}(0, (p))"
            load = f"bf16_to_float{suffix}({raw})"
            store = (
                "(*(p) = bf16_from_float(v))"
                if width == 1
                else f"vstore{width}(bf16_from_float{suffix}(v), 0, (p))"
            )
        lines += [f"#define LOAD{width}(p) {load}", f"#define STORE{width}(v, p) {store}"]
    return "\n".join(lines)


def fp16_bits(width: int) -> str:
    """Return `fp16_to_float{width}` of bits that are loaded, and `fp16_from_float{width}`.

    They need no extension. NVIDIA's compiler loads `vload_half4`, and `vloada_half4` as well, by
    four accesses: 40 M halves by eight take 0.167 ms on an H200, and by their bits 0.043.

    Args:
        width: lanes, more than one.
    """
    return f"""\
float{width} fp16_to_float{width}(const ushort{width} given)
{{
    const ushort{width} bits[1] = {{given}};
    return vload_half{width}(0, (const half *)bits);
}}

ushort{width} fp16_from_float{width}(const float{width} value)
{{
    ushort{width} bits[1];
    vstore_half{width}_rte(value, 0, (half *)bits);
    return bits[0];
}}
"""


def bf16_widened(bits: str, width: int) -> str:
    """Return the floats whose upper halves are `bits`, `width` integers of at least 16 bits."""
    s = "" if width == 1 else str(width)
    return f"as_float{s}(convert_uint{s}({bits}) << 16)"


def bf16_keeping_nan(name: str, width: int) -> str:
    """Return the function `name` that rounds `width` floats to bf16; a NaN stays a quiet NaN."""
    s = "" if width == 1 else str(width)
    kept = f"convert_ushort{s}(isnan(value) ? (u >> 16) | 0x40u : {BF16_ROUNDED})"
    return "\n".join(_bf16_rounding(name, width, f"as_uint{s}(value)", kept)) + "\n"


def _bf16_rounding(name: str, width: int, bits: str, rounded: str) -> list[str]:
    """Return the lines of a function that rounds `value`, `width` floats, to bf16.

    Args:
        name: of the function.
        width: lanes.
        bits: expression of the bits `u` of the floats.
        rounded: expression of the result, of `u`, where no instruction rounds.
    """
    s = "" if width == 1 else str(width)
    lanes = [f"value.s{lane:x}" for lane in range(width)] if width > 1 else ["value", "0.0f"]
    pairs = [f"bf16_pair({lanes[i + 1]}, {lanes[i]})" for i in range(0, len(lanes), 2)]
    words = pairs[0] if width <= 2 else f"(uint{width // 2})({', '.join(pairs)})"
    by_pairs = f"as_ushort{s}({words})" if width > 1 else f"(ushort){words}"
    return [
        f"ushort{s} {name}(const float{s} value)",
        "{",
        f"#ifdef {BF16_INSTRUCTION}",
        f"    return {by_pairs};",
        "#else",
        f"    const uint{s} u = {bits};",
        f"    return {rounded};",
        "#endif",
        "}",
    ]


def _bf16_functions() -> list[str]:
    lines = [BF16_BITS]
    for width in VECTOR_WIDTHS:
        s = "" if width == 1 else str(width)
        lines += [
            f"float{s} bf16_to_float{s}(ushort{s} h) {{ return {bf16_widened('h', width)}; }}",
            *_bf16_rounding(
                f"bf16_from_float{s}", width, f"as_uint{s}(BF16_BITS(as_int{s}(value)))",
                f"convert_ushort{s}({BF16_ROUNDED})",
            ),
        ]  # fmt: skip
    return lines


def activation_preamble(activation: Activation) -> str:
    """Return the macro `ACT(x)` for fp32 scalars and vectors."""
    return f"#define ACT(x) {ACTIVATIONS[activation].fp32('x')}"
