"""How results of CPUs' convolutions lie in vector registers; lanes are channels."""

from __future__ import annotations

from oclgen.families.conv.correlation import Correlation
from oclgen.limits import Limits
from search_spaces.blocking import waste

REGISTERS = 28
"""Vectors of accumulators that leave room for operands in a file of 32."""
VECS = (1, 2, 3, 4)
SEEDS = 8
"""Start points per family: more would leave a short search nothing to find."""


def cost(broadcasts: int, vecs: int) -> float:
    """Return an estimate of the time per multiply-add: one, plus what the loads add.

    Vectors come from the second cache and count four times a broadcast from the first.
    """
    return 1 + (2 * vecs + broadcasts / 2) / (broadcasts * vecs)


def lanes(part: Correlation, vec: int, vecs: int) -> float:
    """Return the time per channel, which idle lanes of the last vectors lengthen."""
    return waste(part.channels, vec * vecs) / vec


def vectors(channels: int, limits: Limits) -> tuple[int, ...]:
    """Return the device's vector width and its half, or less where there are fewer channels."""
    width = limits.native_float_width
    while width > 1 and width >= 2 * channels:
        width //= 2
    return (width, width // 2) if width > 4 else (width,)
