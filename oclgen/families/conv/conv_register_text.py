"""What the template of `conv_register` writes of vectors of results."""

from __future__ import annotations

from collections.abc import Iterable


def stored_counts(results: Iterable[int], vec: int) -> list[int]:
    """Return how many results are stored at a time: a vector's lanes, or a block's last ones."""
    return sorted({min(vec, count - start) for count in results for start in range(0, count, vec)})


def sums(n: int, u: int, start: int, vec: int, count: int) -> str:
    """Return `vec` sums of image n and vector u of channels; past `count` results they are 0.

    Args:
        n: image of the work-item.
        u: vector of channels of the work-item.
        start: first column of results.
        vec: columns, lanes of the vector that is returned.
        count: columns that the work-item has.
    """
    places = range(start, start + vec)
    return ", ".join(f"acc{n}_{x}_{u}" if x < count else "0.0f" for x in places)
