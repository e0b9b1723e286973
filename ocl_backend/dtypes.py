"""How each torch dtype is stored, loaded and computed with in OpenCL C.

It knows names and expressions of single items, not kernels.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from oclgen.render import bf16_keeping_nan, bf16_widened, fp16_bits


@dataclass(frozen=True, slots=True)
class DType:
    """One dtype: `storage` is the type behind the pointer, `value` the type computed with."""

    storage: str
    value: str
    item_bytes: int
    extension: str = ""

    def load(self, pointer: str, index: str) -> str:
        """Return the expression that reads item `index` of `pointer` as a `value`."""
        if self.storage == "half":
            return f"vload_half({index}, {pointer})"
        if self is BFLOAT16:
            return bf16_widened(f"{pointer}[{index}]", 1)
        return f"{pointer}[{index}]"

    def store(self, pointer: str, index: str, value: str) -> str:
        """Return the statement that writes `value`, which has type `value`, to item `index`.

        Args:
            pointer: to the first item.
            index: of the item.
            value: of type `DType.value`.
        """
        if self.storage == "half":
            return f"vstore_half_rte({value}, {index}, {pointer});"
        if self is BFLOAT16:
            return f"{pointer}[{index}] = to_bfloat16({value});"
        return f"{pointer}[{index}] = {value};"

    def convert(self, source: DType, value: str) -> str:
        """Return the expression that turns `value`, loaded as `source`, into this `value` type."""
        if self is source or (self.value == source.value and self is not BOOL):
            return value
        if self is BOOL:
            return f"(uchar)({value} != 0)"
        return f"({self.value})({value})"

    @property
    def prelude(self) -> str:
        """Text a program needs before its kernels to use this dtype."""
        pragma = f"#pragma OPENCL EXTENSION {self.extension} : enable\n" if self.extension else ""
        if self.storage == "half":
            return pragma + "".join(map(fp16_bits, (2, 4)))
        return pragma + (bf16_keeping_nan("to_bfloat16", 1) if self is BFLOAT16 else "")


BFLOAT16 = DType("ushort", "float", 2)
BOOL = DType("uchar", "uchar", 1)

DTYPES: dict[torch.dtype, DType] = {
    torch.float32: DType("float", "float", 4),
    torch.float64: DType("double", "double", 8, "cl_khr_fp64"),
    torch.float16: DType("half", "float", 2),
    torch.bfloat16: BFLOAT16,
    torch.int8: DType("char", "char", 1),
    torch.int16: DType("short", "short", 2),
    torch.int32: DType("int", "int", 4),
    torch.int64: DType("long", "long", 8),
    torch.uint8: DType("uchar", "uchar", 1),
    torch.bool: BOOL,
}

NARROW = (
    *(torch.float16, torch.bfloat16, torch.bool),
    *(torch.int8, torch.uint8, torch.int16, torch.int32),
)
"""Dtypes whose results are rounded or cut when they are stored: not at once in another dtype."""


@dataclass(frozen=True, slots=True)
class Coded(DType):
    """A dtype of 8 bits whose codes copies convert to floats and back; nothing computes with it.

    A subclass writes the two conversions, `from_NAME` and `to_NAME`, as its `prelude`.
    """

    name: str = ""

    def load(self, pointer: str, index: str) -> str:
        """Return the expression that reads an item, as `DType.load`."""
        return f"from_{self.name}({pointer}[{index}])"

    def store(self, pointer: str, index: str, value: str) -> str:
        """Return the statement that writes an item.

        Args:
            pointer: to the first item.
            index: of the item.
            value: a float.
        """
        return f"{pointer}[{index}] = to_{self.name}({value});"


@dataclass(frozen=True, slots=True)
class Float8(Coded):
    """A float of 8 bits: a sign, an exponent and `mantissa` bits.

    Codes in a row are values in order, and the lowest exponent, `least`, is also that of the values
    without a leading bit. After the code `last`, which larger values become, are no numbers; it is
    the infinity where there is one. With `one_zero` the code of minus zero alone is no number, and
    larger values become it.
    """

    mantissa: int = 0
    least: int = 0
    last: int = 0
    has_infinity: bool = False
    one_zero: bool = False

    @property
    def prelude(self) -> str:
        """The two conversions: to the nearest, of two to the even one.

        The distance of a value to its neighbours follows from its exponent. The value in such
        distances, rounded, is the code without the part of the exponent; this also holds where
        rounding reaches the next exponent.
        """
        infinity = f"\n    if (size == {self.last})\n        value = INFINITY;"
        result = f"sign | (uchar)min(code, {self.last})"
        if self.one_zero:
            result = f"code > {self.last} ? 0x80 : code ? sign | (uchar)code : 0"
        return f"""\
float from_{self.name}(const uchar code)
{{
    const int size = code & 0x7f, exponent = max(size >> {self.mantissa}, 1);
    const int distances = size - ((exponent - 1) << {self.mantissa});
    float value = ldexp((float)distances, exponent - 1 + {self.least - self.mantissa});
    if ({"code == 0x80" if self.one_zero else f"size > {self.last}"})
        value = NAN;{infinity if self.has_infinity else ""}
    return code & 0x80 ? -value : value;
}}

uchar to_{self.name}(const float value)
{{
    const uchar sign = signbit(value) ? 0x80 : 0;
    if (isnan(value))
        return {"0x80" if self.one_zero else "sign | 0x7f"};
    const float size = fmin(fabs(value), 1e6f);
    const int exponent = size > 0 ? max(ilogb(size), {self.least}) : {self.least};
    const int distances = convert_int_rte(ldexp(size, {self.mantissa} - exponent));
    const int code = ((exponent - {self.least}) << {self.mantissa}) + distances;
    return {result};
}}
"""


@dataclass(frozen=True, slots=True)
class Exponent8(Coded):
    """A power of two, from 2^-127 to 2^127, by the exponent of a float; 255 is no number.

    It is the scale of a block in the OCP's microscaling formats (MX specification 1.0, section
    5.4.1). As torch rounds: to the nearer power's exponent, of two to the larger one.
    """

    @property
    def prelude(self) -> str:
        """The two conversions, by bits: devices may take the lowest power for zero."""
        return f"""\
float from_{self.name}(const uchar code)
{{
    return code == 255 ? NAN : as_float(code ? (uint)code << 23 : 0x400000u);
}}

uchar to_{self.name}(const float value)
{{
    const uint bits = as_uint(value) & 0x7fffffff, exponent = bits >> 23;
    const bool is_nearer_above = bits & 0x400000 && (exponent || bits & 0x3fffff);
    return exponent == 255 ? 255 : (uchar)(exponent + is_nearer_above);
}}
"""


COPIED: dict[torch.dtype, DType] = DTYPES | {
    torch.uint16: DType("ushort", "ushort", 2),
    torch.uint32: DType("uint", "uint", 4),
    torch.uint64: DType("ulong", "ulong", 8),
    torch.float8_e4m3fn: Float8(
        "uchar", "float", 1, name="float8_e4m3fn", mantissa=3, least=-6, last=0x7E
    ),
    torch.float8_e5m2: Float8(
        "uchar", "float", 1, name="float8_e5m2", mantissa=2, least=-14, last=0x7C, has_infinity=True
    ),
    torch.float8_e4m3fnuz: Float8(
        "uchar", "float", 1, name="float8_e4m3fnuz", mantissa=3, least=-7, last=0x7F, one_zero=True
    ),
    torch.float8_e5m2fnuz: Float8(
        "uchar", "float", 1, name="float8_e5m2fnuz", mantissa=2, least=-15, last=0x7F, one_zero=True
    ),
    torch.float8_e8m0fnu: Exponent8("uchar", "float", 1, name="float8_e8m0fnu"),
}
"""Dtypes that copies convert; those that are not in `DTYPES` nothing computes with."""


class CallForTheCpuError(NotImplementedError):
    """No kernel serves a call: it is one for the CPU."""


class UnsupportedDtypeError(CallForTheCpuError):
    """No kernel can be written for a dtype."""


def dtype_of(dtype: torch.dtype, among: Mapping[torch.dtype, DType] = DTYPES) -> DType:
    """Return how `dtype` is handled.

    Args:
        dtype: of a tensor.
        among: the dtypes that the caller handles.

    Raises:
        UnsupportedDtypeError: no kernel can be written for it.
    """
    if dtype not in among:
        names = ", ".join(str(known).removeprefix("torch.") for known in among)
        raise UnsupportedDtypeError(f"{dtype} is not supported on ocl devices; they know {names}.")
    return among[dtype]


STORAGE: dict[torch.dtype, str] = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
"""The dtypes that the generated families compute with."""
PRODUCT_STORAGE = {**STORAGE, torch.int8: "int8"}
"""Those whose products they compute."""

FLOATS_16 = torch.float16, torch.bfloat16
"""Dtypes that are computed with in float32, and rounded when they are stored."""


def rounded(dtype: torch.dtype, number: float) -> float:
    """Return `number` as a tensor of `dtype`, one of `FLOATS_16`, holds it.

    Numbers halfway between two go to the even one, those beyond the largest to infinity.
    """
    number = float(number)
    if number != number:
        return number
    try:
        if dtype is torch.float16:
            half: float = struct.unpack("e", struct.pack("e", number))[0]
            return half
        bits: int = struct.unpack("I", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    bits += 0x7FFF + (bits >> 16 & 1)  # never beyond infinity, whose lower half is zero
    kept: float = struct.unpack("f", struct.pack("I", bits & 0xFFFF0000))[0]
    return kept


def lowest(dtype: torch.dtype) -> str:
    """Return OpenCL C of the number that no other one of `dtype` is below."""
    if dtype.is_floating_point:
        return "-INFINITY"
    least = 0 if dtype is torch.bool else torch.iinfo(dtype).min
    return f"({least + 1}L - 1)" if least else "0"  # the digits of the last one are too large


def encode(value: str, number: float) -> float:
    """Return `number` as a launch takes it for a scalar of C type `value`."""
    if value == "float":
        return float(number)
    if value == "double":
        bits: int = struct.unpack("q", struct.pack("d", number))[0]
        return bits
    return int(number)
