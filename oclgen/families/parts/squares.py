"""Squares of 16 x 16 words that turn in registers; `squares.cl.mako` writes the steps."""

from __future__ import annotations

SQUARE = 16
"""Rows, and words of a row, that are turned in registers at a time."""


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
