"""How results of CPUs' convolutions lie in vector registers; lanes are channels.

`conv_register` and `conv_register_weights` make their guesses from it.
"""

from __future__ import annotations

from oclgen.families.conv.correlation import Correlation
from oclgen.families.parts.blocking import waste
from oclgen.limits import Limits

VECS = (1, 2, 3, 4)
MOST_GUESSES = 8
"""Guesses per family: more would leave a short search nothing to find."""


def cost(broadcasts: int, vecs: int) -> float:
    """Return an estimate of the time per multiply-add: one, plus what the loads add.

    Vectors come from the second cache and count four times a broadcast from the first.
    """
    return 1 + (2 * vecs + broadcasts / 2) / (broadcasts * vecs)


def channel_time(part: Correlation, vec: int, vecs: int) -> float:
    """Return the time per channel, which idle lanes of the last vectors lengthen.

    Args:
        part: the correlation whose channels lie in lanes.
        vec: lanes of a vector.
        vecs: vectors of a work-item.
    """
    return waste(part.channels, vec * vecs) / vec


def vector_widths(channels: int, limits: Limits) -> tuple[int, ...]:
    """Return the device's vector width and its half, or less where there are fewer channels."""
    width = limits.native_float_width
    while width > 1 and width >= 2 * channels:
        width //= 2
    return (width, width // 2) if width > 4 else (width,)
