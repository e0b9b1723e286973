"""What the nearest cache of a processor holds: lines by the sets that their addresses share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SETS, WAYS, LINE = 64, 8, 64
"""Sets and ways of the nearest cache of the smallest processors, and bytes of its lines."""
CACHE = SETS * WAYS * LINE
"""Bytes of it."""


def are_held(lines: Iterable[int]) -> bool:
    """Say whether the nearest cache holds these lines at once.

    Args:
        lines: numbers of lines, which are addresses over `LINE`; a line may come repeatedly, and
            then counts as often.
    """
    sets = Counter(line % SETS for line in lines)
    return max(sets.values(), default=0) <= WAYS
