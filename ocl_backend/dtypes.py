"""How each torch dtype is stored, loaded and computed with in OpenCL C.

It knows names and expressions of single items, not kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from oclgen.render import bf16_keeping_nan, bf16_widened


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


class UnsupportedDtypeError(NotImplementedError):
    """No kernel can be written for a dtype: the call is one for the CPU."""


def dtype_of(dtype: torch.dtype) -> DType:
    """Return how `dtype` is handled.

    Raises:
        UnsupportedDtypeError: no kernel can be written for it.
    """
    if dtype not in DTYPES:
        names = ", ".join(str(known).removeprefix("torch.") for known in DTYPES)
        raise UnsupportedDtypeError(f"{dtype} is not supported on ocl devices; they know {names}.")
    return DTYPES[dtype]


STORAGE: dict[torch.dtype, str] = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
"""The dtypes that the generated families compute with."""
