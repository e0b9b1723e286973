"""Keys of items in OpenCL C: unsigned numbers whose order is the items' order.

Both zeros have one key, and all NaNs have the largest.
"""

from __future__ import annotations

from typing import Literal

import torch

UNSIGNED = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
"""The type of an item's bits, by its bytes."""
INFINITIES = {
    torch.float16: 0x7C00, torch.bfloat16: 0x7F80, torch.float32: 0x7F800000,
    torch.float64: 0x7FF << 52,
}  # fmt: skip
"""Bits of infinity, above which those of a float are no number."""


def nature(dtype: torch.dtype) -> Literal["float", "signed", "unsigned"]:
    """Return how the bits of an item are ordered."""
    if dtype.is_floating_point:
        return "float"
    return "signed" if dtype.is_signed else "unsigned"


def key_of(dtype: torch.dtype, key: str) -> str:
    """Return the function `key_of`, which makes a key of an item's bits.

    Args:
        dtype: of the item.
        key: OpenCL C's type of the key, unsigned and at least as wide as the item.
    """
    bits, suffix = 8 * dtype.itemsize, "UL" if dtype.itemsize == 8 else "u"
    top, sign, rest = (
        f"{hex(number)}{suffix}" for number in (2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1)
    )
    body = {"signed": f"    return item ^ {sign};\n", "unsigned": "    return item;\n"}.get(
        nature(dtype),
        f"    const {key} size = item & {rest};\n"
        f"    const {key} ordered = item & {sign} ? {top} - item : item | {sign};\n"
        f"    return size > {hex(INFINITIES.get(dtype, 0))}{suffix} ? {top}"
        f" : size ? ordered : {sign};\n",
    )
    return f"{key} key_of(const {UNSIGNED[dtype.itemsize]} item)\n{{\n{body}}}\n"
