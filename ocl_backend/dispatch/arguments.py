"""Arguments in the forms that torch allows for them."""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[int, int]


def spread(values: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return a number for each of `rank` dimensions; a single one serves all of them."""
    return (*values,) * rank if len(values) == 1 else (*values,)


def pair(values: Sequence[int]) -> Pair:
    """Return one or two numbers as (h, w); a single one serves both."""
    return values[0], values[-1]
