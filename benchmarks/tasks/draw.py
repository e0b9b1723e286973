"""Shapes that a seed draws: figures on chosen shapes alone would praise what was tuned for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
MOST_TRIES = 10_000
"""Draws after which a distribution that yields no further shape is an error."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What is drawn: the seed, and how many shapes of each kind, None for the kind's own number."""

    seed: int
    count: int | None = None

    def of(self, usual: int) -> int:
        """Return how many shapes are drawn of a kind that usually draws `usual`."""
        return usual if self.count is None else self.count


def log_uniform(random: Random, low: int, high: int) -> int:
    """Return an integer between `low` and `high`, both included, whose logarithm is uniform.

    Args:
        random: is drawn from.
        low: 1 or more.
        high: `low` or more.
    """
    return min(high, int(exp(random.uniform(log(low), log(high + 1)))))


def distinct(kind: str, seed: int, count: int, one: Callable[[Random], T | None]) -> list[T]:
    """Return `count` different shapes of a kind.

    Args:
        kind: name of the kind; kinds draw independently of each other.
        seed: equal seeds give equal shapes, on any machine.
        count: how many; a greater count begins with the shapes of a smaller one.
        one: draws one shape, or None for a draw that is to be left out.

    Raises:
        ValueError: `one` yields fewer different shapes.
    """
    random = Random(f"{kind} {seed}")
    found: dict[T, None] = {}
    for _ in range(MOST_TRIES):
        if len(found) >= count:
            return list(found)
        shape = one(random)
        if shape is not None:
            found.setdefault(shape)
    raise ValueError(
        f"{MOST_TRIES} draws gave {len(found)} {kind} shapes, not {count}: ask for fewer"
    )
