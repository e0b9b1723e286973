"""What each pointwise operator computes: aten name -> OpenCL expression and dtype rule.

A table, in which rows pick their text by dtype. Expressions use the names of the operator's schema
and are right for scalars and vectors: `T` is the register type, floating literals take the kernel's
precision, a comparison is true as 1 or -1. Statements before the last `;` prepare it. Where torch's
definition of a function is not the obvious one, the row follows aten/src/ATen/native (BinaryOps,
Activation, Math.h).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import torch

from ocl_backend.dtypes import FLOATS_16
from ocl_backend.kernels import gamma_functions
from oclgen import activations


class Promotion(Enum):
    """How the dtypes of operands decide the dtype computed with and the result's."""

    SAME = "promoted operands, also the result"
    FLOAT = "as SAME, but integers become the default float"
    BOOL = "promoted operands, the result is bool"


class Op(NamedTuple):
    """One operator; `integer` replaces `expression` where integers or bools are computed with.

    `boolean` replaces both for bools; `BITS` in `integer` are the bits of the dtype. `helper`
    names a function of HELPERS the integer expression calls, for scalars only. `double` replaces
    `expression` in double precision, `narrow` for floats of 16 bits, by functions of
    `narrow_functions`, for scalars only.
    """

    expression: str
    rule: Promotion = Promotion.SAME
    integer: str = ""
    helper: str = ""
    boolean: str = ""
    double: str = ""
    narrow: str = ""

    def text(self, dtype: torch.dtype) -> str:
        """Return the expression that computes in `dtype`."""
        if dtype.is_floating_point:
            own = self.double if dtype is torch.float64 else ""
            own = self.narrow if dtype in FLOATS_16 else own
            return own or self.expression
        own = self.boolean if dtype is torch.bool else ""
        text = own or self.integer or self.expression
        return text.replace("BITS", str(8 * dtype.itemsize))


SAME, FLOAT, BOOL = Promotion

PROMOTING = (
    *("self", "other", "exponent", "min", "max", "end", "weight", "tensor1", "tensor2", "values"),
    *("output", "grad_output", "grad_out", "self_or_result", "x", "n"),
)
"""Arguments whose dtype counts; other numbers (alpha, slopes, bounds of activations) do not."""

UNARY = {
    "abs": Op("fabs(self)", integer="self < (T)(0) ? -self : self"),
    "neg": Op("-self"),
    "sign": Op("sign(self)", integer="self > (T)(0) ? (T)(1) : self < (T)(0) ? (T)(-1) : (T)(0)"),
    "angle": Op(
        "self != self ? self : self < (T)(0) ? (T)(3.14159265358979323846) : (T)(0)", FLOAT
    ),
    "sgn": Op("sign(self)", integer="self > (T)(0) ? (T)(1) : self < (T)(0) ? (T)(-1) : (T)(0)"),
    "floor": Op("floor(self)", integer="self"),
    "ceil": Op("ceil(self)", integer="self"),
    "trunc": Op("trunc(self)", integer="self"),
    "round": Op("rint(self)", integer="self"),
    "round:decimals": Op(
        "const T unit = exp10(fabs(decimals));"
        " decimals < (T)(0) ? rint(self / unit) * unit : rint(self * unit) / unit",
        integer="self",
    ),
    "frac": Op("self - trunc(self)"),
    "bitwise_not": Op("", integer="~self", boolean="self ^ (T)(1)"),
    "sqrt": Op("sqrt(self)", FLOAT),
    "rsqrt": Op("rsqrt(self)", FLOAT),
    "reciprocal": Op("(T)(1) / self", FLOAT),
    "exp": Op("exp(self)", FLOAT),
    "exp2": Op("exp2(self)", FLOAT),
    "expm1": Op("expm1(self)", FLOAT),
    "log": Op("log(self)", FLOAT),
    "log2": Op("log2(self)", FLOAT),
    "log10": Op("log10(self)", FLOAT),
    "log1p": Op("log1p(self)", FLOAT),
    "sin": Op("sin(self)", FLOAT),
    "cos": Op("cos(self)", FLOAT),
    "tan": Op("tan(self)", FLOAT),
    "asin": Op("asin(self)", FLOAT),
    "acos": Op("acos(self)", FLOAT),
    "atan": Op("atan(self)", FLOAT),
    "sinh": Op("sinh(self)", FLOAT),
    "cosh": Op("cosh(self)", FLOAT),
    "asinh": Op("asinh(self)", FLOAT),
    "acosh": Op("acosh(self)", FLOAT),
    "atanh": Op("atanh(self)", FLOAT),
    "erf": Op("erf(self)", FLOAT),
    "erfc": Op("erfc(self)", FLOAT),
    "lgamma": Op(gamma_functions.LGAMMA, FLOAT, double="lgamma(self)"),
    "sinc": Op(
        "const T y = self * 3.14159265358979323846; self == (T)(0) ? (T)(1) : sin(y) / y", FLOAT
    ),
    "logical_not": Op("self == (T)(0)", BOOL),
    "isnan": Op("self != self", BOOL),
    "isposinf": Op("self == (T)(INFINITY)", BOOL, integer="self != self"),
    "isneginf": Op("self == (T)(-INFINITY)", BOOL, integer="self != self"),
    "signbit": Op("signbit(self)", BOOL, integer="self < (T)(0)"),
    "nan_to_num": Op(
        "self != self ? nan : self == (T)(INFINITY) ? posinf : self == (T)(-INFINITY) ? neginf"
        " : self",
        integer="self",
    ),
    "logit": Op(
        "const T low = (T)(eps); const T z = low < (T)(0) ? self : self < low ? low"
        " : self > (T)(1) - low ? (T)(1) - low : self; log(z / ((T)(1) - z))",
        FLOAT,
    ),
}

BINARY = {
    "add": Op("self + alpha * other"),
    "sub": Op("self - alpha * other"),
    "rsub": Op("other - alpha * self"),
    "mul": Op("self * other"),
    "div": Op("self / other", FLOAT),
    # a quotient is rounded to its dtype before it is cut: 17.998 is 18 in float16
    "div:trunc": Op(
        "trunc(self / other)",
        integer="quotient(self, other)",
        helper="quotient",
        narrow="trunc(rounded(self / other))",
    ),
    "div:floor": Op(
        "const T m = fmod(self, other);"
        " const T q = (self - m) / other - (m != (T)(0) && (other < (T)(0)) != (m < (T)(0))"
        " ? (T)(1) : (T)(0));"
        " const T f = floor(q);"
        " other == (T)(0) ? self / other : q - f > 0.5 ? f + (T)(1) : f",
        integer="floored(self, other)",
        helper="floored",
        narrow="const T m = fmod(self, other); const T d = rounded(rounded(self - m) / other);"
        " const T q = m != 0 && (other < 0) != (m < 0) ? rounded(d - 1) : d;"
        " const T f = floor(q); other == 0 ? self / other : q - f > 0.5 ? f + 1 : f",
    ),
    "fmod": Op(
        "fmod(self, other)",
        integer="(T)(self - quotient(self, other) * other)",
        helper="quotient",
    ),
    "remainder": Op(
        "const T m = fmod(self, other);"
        " m != (T)(0) && (other < (T)(0)) != (m < (T)(0)) ? m + other : m",
        integer="(T)(self - floored(self, other) * other)",
        helper="floored",
    ),
    # the square as torch's CPU has it, and PoCL's `pow` is 1 for the largest double
    "pow": Op(
        "exponent == (T)(2) ? self * self : pow(self, exponent)",
        integer="power(self, exponent)",
        helper="power",
    ),
    "atan2": Op("atan2(self, other)", FLOAT),
    "hypot": Op("hypot(self, other)"),
    "copysign": Op("copysign(self, other)", FLOAT),
    "nextafter": Op("nextafter(self, other)", narrow="neighbour(self, other)"),
    "logaddexp": Op(
        "const T m = fmax(self, other);"
        " self == other && isinf(self) ? self : m + log1p(exp(-fabs(self - other)))",
        FLOAT,
    ),
    "logaddexp2": Op(
        "const T m = fmax(self, other); self == other && isinf(self) ? self"
        " : m + log1p(exp2(-fabs(self - other))) * 1.44269504088896340736",
        FLOAT,
    ),
    "xlogy": Op("other != other ? other : self == (T)(0) ? (T)(0) : self * log(other)", FLOAT),
    "heaviside": Op("self == (T)(0) ? values : self > (T)(0) ? (T)(1) : (T)(0)"),
    "maximum": Op("self > other || self != self ? self : other"),
    "minimum": Op("self < other || self != self ? self : other"),
    "fmax": Op("fmax(self, other)", integer="self > other ? self : other"),
    "fmin": Op("fmin(self, other)", integer="self < other ? self : other"),
    "eq": Op("self == other", BOOL),
    "ne": Op("self != other", BOOL),
    "lt": Op("self < other", BOOL),
    "le": Op("self <= other", BOOL),
    "gt": Op("self > other", BOOL),
    "ge": Op("self >= other", BOOL),
    "logical_and": Op("self != (T)(0) && other != (T)(0)", BOOL),
    "logical_or": Op("self != (T)(0) || other != (T)(0)", BOOL),
    "logical_xor": Op("(self != (T)(0)) != (other != (T)(0))", BOOL),
    "bitwise_and": Op("", integer="self & other"),
    "bitwise_or": Op("", integer="self | other"),
    "bitwise_xor": Op("", integer="self ^ other"),
    "bitwise_left_shift": Op(
        "", integer="other < (T)(0) || other >= (T)(BITS) ? (T)(0) : self << other"
    ),
    "bitwise_right_shift": Op(
        "",
        integer="other < (T)(0) || other >= (T)(BITS) ? (self < (T)(0) ? (T)(-1) : (T)(0))"
        " : self >> other",
    ),
}
BINARY["floor_divide"] = BINARY["div:floor"]

TERNARY = {
    "clamp": Op(
        "const T raised = self >= min || self != self ? self : min;"
        " raised <= max || raised != raised ? raised : max"
    ),
    "clamp_min": Op("self >= min || self != self ? self : min"),
    "clamp_max": Op("self <= max || self != self ? self : max"),
    "where": Op("condition != (T)(0) ? self : other"),
    "fill": Op("value"),
    "zero": Op("(T)(0)"),
    "masked_fill": Op("mask != (T)(0) ? value : self"),
    "lerp": Op(
        "fabs(weight) < 0.5 ? self + weight * (end - self) : end - (end - self) * ((T)(1) - weight)"
    ),
    "addcmul": Op("self + value * tensor1 * tensor2"),
    "addcdiv": Op("self + value * (tensor1 / tensor2)"),
}

ACTIVATIONS = {  # besides those of oclgen.activations, which epilogues know, too
    "mish": Op("self * tanh(log1p(exp(self)))"),
    "gelu:tanh": Op(
        "const T u = 0.79788456080286535588 * (self + 0.044715 * self * self * self);"
        " 0.5 * self * ((T)(1) + tanh(u))"
    ),
    "leaky_relu": Op("self > (T)(0) ? self : self * negative_slope"),
    # C's `clamp` is undefined for NaN
    "hardswish": Op(
        "const T u = self + 3.0; self * (u < (T)(0) ? (T)(0) : u > (T)(6) ? (T)(6) : u)"
        " * 0.16666666666666666667"
    ),
    "hardsigmoid": Op(
        "const T u = self + 3.0; (u < (T)(0) ? (T)(0) : u > (T)(6) ? (T)(6) : u)"
        " * 0.16666666666666666667"
    ),
    "softplus": Op("self * beta > threshold ? self : log1p(exp(self * beta)) / beta"),
    "softshrink": Op(
        "self > lambd ? self - lambd : self < -lambd ? self + lambd : self != self ? self : (T)(0)"
    ),
    "hardshrink": Op("self >= -lambd && self <= lambd ? (T)(0) : self"),
    "elu": Op("self > (T)(0) ? self * scale : expm1(self * input_scale) * alpha * scale"),
    "threshold": Op("self <= threshold ? value : self"),
    "_prelu_kernel": Op("self > (T)(0) ? self : weight * self"),
}

BACKWARD = {
    "mish_backward": Op(
        "const T s = (T)(1) / ((T)(1) + exp(-self)); const T t = tanh(log1p(exp(self)));"
        " grad_output * (t + self * s * ((T)(1) - t * t))"
    ),
    "gelu_backward:tanh": Op(
        "const T u = 0.79788456080286535588 * (self + 0.044715 * self * self * self);"
        " const T t = tanh(u);"
        " const T du = 0.79788456080286535588 * ((T)(1) + 0.134145 * self * self);"
        " grad_output * 0.5 * ((T)(1) + t + self * ((T)(1) - t * t) * du)"
    ),
    "leaky_relu_backward": Op("self > (T)(0) ? grad_output : grad_output * negative_slope"),
    "hardswish_backward": Op(
        "self <= (T)(-3) ? (T)(0) : self < (T)(3)"
        " ? grad_output * (self * 0.33333333333333333333 + 0.5) : grad_output"
    ),
    "hardsigmoid_backward": Op(
        "self > (T)(-3) && self < (T)(3) ? grad_output * 0.16666666666666666667 : (T)(0)"
    ),
    "softplus_backward": Op(
        "const T z = exp(self * beta);"
        " self * beta > threshold ? grad_output : grad_output * z / (z + (T)(1))"
    ),
    "softshrink_backward": Op("self >= -lambd && self <= lambd ? (T)(0) : grad_output"),
    "hardshrink_backward": Op("self >= -lambd && self <= lambd ? (T)(0) : grad_out"),
    "elu_backward:input": Op(
        "self_or_result <= (T)(0) ? grad_output * input_scale * alpha * scale"
        " * exp(self_or_result * input_scale) : grad_output * scale"
    ),
    "elu_backward:result": Op(
        "self_or_result <= (T)(0) ? grad_output * input_scale * (self_or_result + alpha * scale)"
        " : grad_output * scale"
    ),
    "native_dropout_backward": Op("grad_output * mask * scale", FLOAT),
    "logit_backward": Op(
        "const T low = (T)(eps);"
        " low < (T)(0) ? (self < (T)(0) || self > (T)(1) ? (T)(NAN)"
        " : grad_output / (self * ((T)(1) - self)))"
        " : self < low || self > (T)(1) - low ? (T)(0) : grad_output / (self * ((T)(1) - self))"
    ),
}

POWERS = {
    0: "(T)(1)", 1: "self", 2: "self * self", 3: "self * self * self", 0.5: "sqrt(self)",
    -0.5: "(T)(1) / sqrt(self)", -1: "(T)(1) / self", -2: "(T)(1) / (self * self)",
}  # fmt: skip
"""By the exponent: the text of a power of floats that costs no call of `pow`, as torch's CPU has
it. Each is a row of its own."""

POINTWISE = {**UNARY, **BINARY, **TERNARY, **ACTIVATIONS, **BACKWARD}
POINTWISE |= {f"pow:{exponent:g}": Op(text) for exponent, text in POWERS.items()}
POINTWISE |= {
    operator.name: Op(
        operator.expression, FLOAT if operator.floats else SAME, double=operator.exact
    )
    for row in activations.ACTIVATIONS.values()
    for operator in (row.forward, row.backward)
    if operator and operator.name
}

ROUNDED = (
    *("eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder", "pow", "atan2", "nextafter"),
    *("xlogy", "special_xlog1py"),
)
"""Rows whose numbers are rounded to the dtype of tensors of 16 bits, as torch's CPU and CUDA do:
0.1 equals a float16 of 0.1. Others, sums and products among them, take numbers as they are."""

ABSENT = {"alpha": 1, "beta": 1, "value": 1, "eps": -1.0, "nan": 0.0}
"""The value of an argument that the call leaves None."""

HELPERS = {
    "quotient": """\
// C leaves x / 0 and MIN / -1 undefined, and a CPU traps on them. -1 is no T: as one it is 255 in
// a uchar, which is no -1
T quotient(const T a, const T b)
{
    return b == 0 ? (T)0 : b == -1 ? (T)-a : (T)(a / b);
}
""",
    "floored": """\
T floored(const T a, const T b)
{
    if (b == 0 || b == -1)
        return b == 0 ? (T)0 : (T)-a;
    const T q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
""",
    "power": """\
// negative exponents: 1, -1 and 0 as in torch
T power(const T base, const T exponent)
{
    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    T result = 1, square = base;
    for (T rest = exponent; rest > 0; rest /= 2, square *= square)
        if (rest % 2)
            result *= square;
    return result;
}
""",
}
"""Functions of one item in the kernel's type `T`."""
