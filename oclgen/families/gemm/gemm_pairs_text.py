"""What `gemm_pack` writes of pairs: 16-bit elements in 32-bit lanes."""

from __future__ import annotations

SQUARE = 16
"""Pairs of as many rows that are turned in registers at a time."""


def exchanged(low: str, high: str, distance: int, half: int) -> str:
    """Return the lanes of a row after a step: each pair of lanes `distance` apart changes one.

    Args:
        low: the row whose lanes before the step lie in the lower half.
        high: the row `distance` behind it.
        distance: of the rows, and of the lanes that change places.
        half: 0 for the first of the two rows, 1 for the second.
    """
    sources = (
        (high, lane + (half - 1) * distance) if lane & distance else (low, lane + half * distance)
        for lane in range(SQUARE)
    )
    return ", ".join(f"{row}.s{lane:x}" for row, lane in sources)


def load(width: int, pointer: str) -> str:
    """Return the load of `width` elements, each in the lower half of a 32-bit lane."""
    if width == 1:
        return f"(uint)*({pointer})"
    return f"convert_uint{width}(vload{width}(0, {pointer}))"
