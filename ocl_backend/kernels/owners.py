"""Who combines what at computed places on processors: each item of the target has one owner.

Without meetings no atomics are needed, and an owner walks the values in their order. Pure
arithmetic on sizes and strides, in items; no tensor, no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

from ocl_backend.kernels.dimensions import merge
from ocl_backend.kernels.elementwise import CHUNK
from oclgen.limits import Limits

LINE = 64
"""Bytes of a cache line: owners that write to the same line wait for each other."""
LINES = 4
"""The fewest lines of a part whose neighbours have other owners."""
WALKS = 16
"""Owners for each column of a row: they all look at a place in the time of one addition by
compare-and-swap, or less. On two cores (EPYC, Zen 5) that took 10 ns and more, a look 1.3."""
ALONE = 4
"""Threads that one owner is as fast as, and rows of how many columns it takes alone: to add an item
takes it 0.6 ns, so that several owners would only look, each at all places."""
SHORT = 8
"""Items of an innermost dimension that is not walked innermost where one of four times as many can
be: to begin a row takes as long as some items."""
WIDTHS = (16, 8)
"""Items of vectors; of shorter ones, a kernel expects aligned rows."""

Way = Literal["apart", "columns", "tested"]


class Dim(NamedTuple):
    """A dimension: its size, and the strides of target, value and all indices along it."""

    size: int
    target: int
    value: int
    indices: tuple[int, ...]

    @property
    def is_row(self) -> bool:
        """Whether its items are neighbours in the target and share a place."""
        return self.target == 1 and self.value in (0, 1) and not any(self.indices)


@dataclass(frozen=True, slots=True)
class Owners:
    """How `parts` work-items share out the first dimension of `walked`, and so the target.

    - `apart`: positions along that dimension never meet, such as those along the batch.
    - `columns`: it numbers the owners. Each has a range of the columns of all rows.
    - `tested`: it numbers the owners. Blocks of the target take turns, and an owner looks at all
      places to find its own.

    Args:
        way: which of these.
        parts: work-items.
        walked: outermost first, at least two; all but the first as the caller's, or joined.
        columns: items of a row, neighbours in memory; 1 where each item has a place of its own.
        column_step: how the value moves along them: 0 or 1.
        block: log2 of the items of a block.
    """

    way: Way
    parts: int
    walked: tuple[Dim, ...]
    columns: int = 1
    column_step: int = 0
    block: int = 0

    @property
    def width(self) -> int:
        """Items of a vector of columns, 1 if rows are shorter than all vectors."""
        return next((width for width in WIDTHS if width <= self.columns), 1)

    @property
    def share(self) -> int:
        """Columns that an owner combines, in whole vectors."""
        parts = self.parts if self.way == "columns" else 1
        return -(-self.columns // (parts * self.width)) * self.width


def are_possible(limits: Limits) -> bool:
    """Say whether a device has owners at all: GPUs have too many threads."""
    return limits.kind == "cpu"


def owners(
    dims: Sequence[Dim], reach: Sequence[int], item_bytes: int, limits: Limits
) -> Owners | None:
    """Return how to share out a target, or None where atomics are faster or the device is a GPU.

    Meeting values keep the order that `dims` gives them, whatever the number of owners.

    Args:
        dims: what is walked, outermost first. Those along which the target moves are parts of a
            place, and nothing meets along them.
        reach: how far the target moves for a step of each index.
        item_bytes: of the target.
        limits: of the device.
    """
    if not are_possible(limits):
        return None
    rest = joined(dims)
    row = next((dim for dim in reversed(rest) if dim.is_row), None)
    columns, column_step = (row.size, row.value) if row else (1, 0)
    whole = joined([dim for dim in rest if dim is not row])
    rest = with_long_rows(whole)
    items = prod(dim.size for dim in rest) * columns
    many = min(limits.compute_units, -(-items // CHUNK))

    def numbered(way: Way, parts: int, block: int = 0) -> Owners:
        number = Dim(parts, 0, 0, tuple(0 for _ in reach))
        return Owners(way, parts, (number, *(rest or [number._replace(size=1)])), columns,
                      column_step, block)  # fmt: skip

    if many == 1:
        return numbered("columns", 1)
    least = LINE * LINES // item_bytes
    split = _split(rest, many, least) or _split(whole, many, least)
    if split:
        return Owners("apart", min(4 * many, split[0].size), split, columns, column_step)
    if columns >= many * least:
        return numbered("columns", many)
    if columns < ALONE:
        return numbered("columns", 1) if many <= ALONE else None
    if many > WALKS * columns:
        return None
    block = max(least, columns, min((abs(step) for step in reach if step), default=1))
    return numbered("tested", many, (block - 1).bit_length())


def joined(dims: Sequence[Dim]) -> list[Dim]:
    """Return the dimensions of more than one item, neighbours as one where they can be."""
    flat = [(dim.size, dim.target, dim.value, *dim.indices) for dim in dims if dim.size != 1]
    return [Dim(size, target, value, tuple(k)) for size, target, value, *k in merge(flat)]


def with_long_rows(dims: Sequence[Dim]) -> list[Dim]:
    """Return the dimensions with the longest along which indices stay innermost, if that is short.

    One index then serves a row of items that lie a step apart, and rows are long. Values that meet
    keep their order: along such a dimension nothing meets where the target moves.

    Args:
        dims: outermost first.
    """
    rest = list(dims)
    still = [at for at, dim in enumerate(rest) if dim.target and not any(dim.indices)]
    longest = max(still, key=lambda at: rest[at].size, default=-1)
    if still and rest[-1].size < SHORT and rest[longest].size >= 4 * SHORT:
        rest.append(rest.pop(longest))
    return rest


def _split(dims: Sequence[Dim], many: int, least: int) -> tuple[Dim, ...] | None:
    """Return the dimensions with one in front that keeps `many` owners busy and apart, if any.

    The first may be such a one as it is. Of another, a divisor is taken, so that what is walked
    inside keeps its order, in which it lies in memory.
    """
    for at, dim in enumerate(dims):
        if not dim.target:
            continue
        even = dim.size >= 4 * many or dim.size % many == 0
        if at == 0 and even and dim.size // min(dim.size, 4 * many) * dim.target >= least:
            return (dim, *(dims[1:] or [Dim(1, 0, 0, tuple(0 for _ in dim.indices))]))
        for parts in range(many, 4 * many + 1):
            inner = dim.size // parts
            if at and dim.size % parts == 0 and inner * dim.target >= least:
                steps = tuple(inner * step for step in dim.indices)
                front = Dim(parts, inner * dim.target, inner * dim.value, steps)
                return (front, *dims[:at], dim._replace(size=inner), *dims[at + 1 :])
    return None
