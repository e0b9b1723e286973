"""The types in which families say what is worth trying, and ranges of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Value = int | bool | str
Values = Mapping[str, tuple[Value, ...]]
"""Values worth trying of each parameter; a parameter that is missing keeps its default."""
BOTH = (False, True)


def up_to(extent: int, *values: int) -> tuple[int, ...]:
    """Return the ascending values that are not larger than `extent`, and one more to cover it."""
    below = [value for value in values if value < extent]
    return (*below, *values[len(below) : len(below) + 1])


def tails(guesses: Iterable[Any]) -> dict[str, tuple[Value, ...]]:
    """Return the values of `tail_k` and `head_tiles`: none, and those of the first guess with both.

    Args:
        guesses: configs of a family that has these parameters.
    """
    found = next((one for one in guesses if one.tail_k > 1), None)
    if found is None:
        return {"tail_k": (1,), "head_tiles": (0,)}
    return {"tail_k": (1, found.tail_k), "head_tiles": (0, found.head_tiles)}
