"""What `gemm_pack` writes of pairs: 16-bit elements in 32-bit lanes."""

from __future__ import annotations


def load(width: int, pointer: str) -> str:
    """Return the load of `width` elements, each in the lower half of a 32-bit lane."""
    if width == 1:
        return f"(uint)*({pointer})"
    return f"convert_uint{width}(vload{width}(0, {pointer}))"
