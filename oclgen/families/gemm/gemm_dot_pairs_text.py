"""What the template of `gemm_dot_pairs` writes: how the lanes of sums are added.

Pairs of vectors add halves of each other: 15 additions and 30 moves of lanes leave one vector of
the sums of 16 vectors, and each alone would take four of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

LANES = 16
STEPS = (
    (tuple(range(8)), tuple(range(8, 16))),
    ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
    ((0, 1), (2, 3)),
    ((0, 2), (1, 3)),
)
"""Lanes of a vector that are added to others, by step. Those of the last two steps are of each
quarter, where x86 moves lanes of two vectors at once."""


def groups(item_m: int, item_n: int) -> Iterator[list[tuple[int, int]]]:
    """Yield rows and columns of results whose lanes are added together, 16 or the last ones.

    Args:
        item_m: rows of a work-item.
        item_n: its columns.
    """
    places = [(i, j) for i in range(item_m) for j in range(item_n)]
    for start in range(0, len(places), LANES):
        yield places[start : start + LANES]


def added(group: int, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the vectors that lead to that of all sums; it is the last.

    Args:
        group: number of the group, a part of the names.
        names: of up to 16 vectors, whose sums are its lanes in this order.
    """
    level = [names[at] if at < len(names) else "" for at in order()]
    for number, step in enumerate(STEPS):
        pairs = list(zip(level[::2], level[1::2], strict=True))
        level = []
        for place, (one, two) in enumerate(pairs):
            if not (one or two):
                level.append("")
                continue
            left, right = (_lanes(one, two, lanes) for lanes in step)
            level.append(f"sums{group}_{number}_{place}")
            yield level[-1], f"({left}) + ({right})"


def _lanes(one: str, two: str, lanes: Sequence[int]) -> str:
    """Return the vector of lanes of two vectors, of each quarter by turns where they are two."""
    if len(lanes) == LANES // 2:
        parts = [_part(one, lanes), _part(two, lanes)]
    else:
        parts = [
            _part(name, [4 * quarter + lane for lane in lanes])
            for quarter in range(4)
            for name in (one, two)
        ]
    return f"(float16)({', '.join(parts)})"


def _part(name: str, lanes: Sequence[int]) -> str:
    """Return lanes of a vector, zeros where there is none."""
    if not name:
        return ", ".join(["0.0f"] * len(lanes))
    return f"{name}.s{''.join(f'{lane:x}' for lane in lanes)}"


@cache
def order() -> tuple[int, ...]:
    """Return which sum each vector has that goes in, so that the sums come out in order."""
    level: list[list[int]] = [[at] * LANES for at in range(LANES)]
    for first, _ in STEPS:
        level = [_taken(one, two, first) for one, two in zip(level[::2], level[1::2], strict=True)]
    wanted = [0] * LANES
    for lane, vector in enumerate(level[0]):
        wanted[vector] = lane
    return tuple(wanted)


def _taken(one: list[int], two: list[int], lanes: Sequence[int]) -> list[int]:
    if len(lanes) == LANES // 2:
        return [vector[lane] for vector in (one, two) for lane in lanes]
    return [
        vector[4 * quarter + lane]
        for quarter in range(4)
        for vector in (one, two)
        for lane in lanes
    ]
