"""The types in which families say what is worth trying, and ranges of values."""

from __future__ import annotations

from collections.abc import Mapping

Value = int | bool | str
Values = Mapping[str, tuple[Value, ...]]
"""Values worth trying of each parameter; a parameter that is missing keeps its default."""
BOTH = (False, True)


def up_to(extent: int, *values: int) -> tuple[int, ...]:
    """Return the ascending values that are not larger than `extent`, and one more to cover it."""
    below = [value for value in values if value < extent]
    return (*below, *values[len(below) : len(below) + 1])
