"""Strips of columns of a depthwise convolution in channels_last, and what their texts read.

Rows of results that lie along an image's edge leave elements out by their text; it knows no
parameter of the families.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oclgen.families.conv.correlation import Axis
from oclgen.families.depthwise.patches import has_long_text, phases, window
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem

Taps = Sequence[Sequence[tuple[int, int]]]
"""For each phase along an axis the taps: place in the kernel, and in the window of result 0."""


class Strip(NamedTuple):
    """Text for some strips of columns (None: all others).

    Attributes:
        columns: numbers of the strips.
        low, high: first element of their window that lies inside of the image, and the one behind
            the last.
        results: of all phases, that lie inside of the output.
    """

    columns: tuple[int, ...] | None
    low: int
    high: int
    results: int


def strips(axes: Sequence[Axis], patch_w: int) -> list[Strip]:
    """Return the texts that strips of `patch_w` results of each phase need, the commonest last.

    Args:
        axes: columns of every phase; they differ in taps alone.
        patch_w: results of a phase along a row.
    """
    found: dict[tuple[int, int, int], list[int]] = {}
    extent, cols = window(axes, patch_w), axes[0]
    stored = patch_w * cols.store_step
    for column in range(ceil_div(cols.results, patch_w)):
        first = column * patch_w * cols.step + extent.first
        low, high = max(0, -first), min(extent.elements, cols.read - first)
        results = min(stored, cols.written - column * stored)
        found.setdefault((low, high, results), []).append(column)
    ranked = sorted(found.items(), key=lambda entry: len(entry[1]))
    return [
        Strip(None if at == len(ranked) - 1 else tuple(columns), *text)
        for at, (text, columns) in enumerate(ranked)
    ]


def met_by(
    strip: Strip, cols: Taps, patch_w: int, step_w: int, store_w: int
) -> list[tuple[int, list[tuple[int, int]]]]:
    """Return the elements that a row of taps reads for a strip, and what each is added to.

    Args:
        strip: says which elements and results there are.
        cols: taps of each phase along a row.
        patch_w: results of a phase.
        step_w: distance of what neighbouring results read.
        store_w: distance of a phase's neighbouring results in the output.

    Returns:
        For each element (result, tap of the row) of all sums that it meets.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for phase, taps in enumerate(cols):
        for tap, place in taps:
            for x in range(patch_w):
                element, result = x * step_w + place, x * store_w + phase
                if strip.low <= element < strip.high and result < strip.results:
                    found.setdefault(element, []).append((result, tap))
    return sorted(found.items())


def written(problem: ConvProblem, patch_w: int) -> int:
    """Return the multiply-adds of vectors in the text of rows of `patch_w` results.

    Args:
        problem: in channels_last.
        patch_w: results of a phase along a row.
    """
    rows, cols = phases(problem)
    of_a_row = sum(axis.taps for axis in cols) * patch_w
    taps_h = len(rows) if has_long_text(problem) else problem.kernel_h
    return len(strips(cols, patch_w)) * of_a_row * taps_h
