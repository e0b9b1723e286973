"""How a reduction is spread over a device: vectors, lanes and pieces. No tensor, no text."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ocl_backend.dtypes import DType
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import Dimensions
from oclgen.limits import Limits
from oclgen.plan import WARP, ceil_div, round_up

CPU_PIECE, GPU_PIECE = 4096, 8192
"""Items worth a work-item of their own on a CPU, a work-group on a GPU."""

CHAIN = 1024
"""Items that are added one behind the other, at most: each addition rounds, so pieces of millions
would lose digits. Sums of pieces are added in the end."""

WIDE, STRIP = 1024, 64
"""Columns from which on a CPU reduces strips of rows, and the rows of a strip."""

GROUP = 256
"""Most work-items of a group on GPUs."""
GROUPS_PER_UNIT = 16
"""Work-groups per compute unit of a GPU: twice what it holds, so that all units end together."""
BUSY_GROUPS = 4
"""Work-groups that keep a compute unit of a GPU busy if their work-items have batches of loads."""
VECTORS = 4
"""Vector loads that a GPU work-item keeps in flight (twice as many where they are not as wide as a
load can be). A row with fewer gets no work-item of its own."""
LINE = 8
"""Neighbouring vectors of a row that fill whole lines of memory. A group has at least as many
columns, so that no line is read twice."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How items are read: `aligned` where an access may begin, `by_position` one at a time."""

    dtype: DType
    aligned: bool
    by_position: bool


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a reduction is spread: collapsed dimensions, vectors, lanes and pieces.

    `group` work-items are `lanes` for each output, or vector of outputs where those are `columns`;
    `across` of them lie along the items. A piece is a span of rows or of items.
    """

    kept: Dimensions
    reduced: Dimensions
    columns: bool
    width: int
    lanes: int = 1
    across: int = 1
    group: int = 1
    unroll: int = 1
    outputs_per_item: int = 1
    row_spans: int = 1
    item_spans: int = 1

    @property
    def blocks(self) -> int:
        """Outputs, or vectors of outputs, to be computed."""
        if not self.columns:
            return prod(self.kept.sizes)
        return self.kept.rows * ceil_div(self.kept.inner, self.width)

    @property
    def pieces(self) -> int:
        """The parts of each output that are computed apart."""
        return self.row_spans * self.item_spans

    @property
    def item_span(self) -> int:
        """Items of a row that a piece takes: on a GPU whole rounds of all its work-items."""
        span = ceil_div(self.reduced.inner, self.item_spans)
        if self.columns or self.lanes == 1 or self.item_spans == 1:
            return span
        return round_up(span, self.across * self.width * self.unroll)

    @property
    def apart(self) -> int:
        """The distance of an output's lanes in a work-group; between lie other columns' lanes."""
        return self.group // self.lanes if self.columns and self.lanes > 1 else 1

    @staticmethod
    def of(
        kept: Dimensions,
        reduced: Dimensions,
        reading: Reading,
        limits: Limits,
        whole: bool = False,
    ) -> Arrangement:
        """Choose for a device; `whole` forbids pieces.

        Args:
            kept: dimensions that stay.
            reduced: dimensions that go.
            reading: how items are read.
            limits: of the device.
            whole: whether no results may be made in pieces that a second launch joins.
        """
        choose = _on_cpu if limits.kind == "cpu" else _on_gpu
        return choose(kept, reduced, reading, limits, whole)


def _on_cpu(
    kept: Dimensions, reduced: Dimensions, reading: Reading, limits: Limits, whole: bool
) -> Arrangement:
    scalar = reading.by_position
    along_items = reduced.strides[0][-1] == 1
    columns = not scalar and _dense(kept) and not along_items
    width = 16 if not scalar and (columns or along_items) else 1
    terms = prod(reduced.sizes)
    at_once = width if columns else 1
    per_item = max(1, CPU_PIECE // max(terms * at_once, 1))
    groups = ceil_div(prod(kept.sizes) // at_once, per_item)
    room = limits.compute_units * 2 // max(groups, 1)
    pieces = 1 if whole else max(1, min(room, terms * at_once // CPU_PIECE))
    if columns and not whole and kept.inner >= WIDE and terms >= 4 * STRIP:
        # few rows at a time: a column of a wide matrix touches a new page with every item
        pieces = max(pieces, terms // STRIP)
        per_item = max(1, CPU_PIECE // (STRIP * width))
    if not whole:
        pieces = max(pieces, terms * at_once // (CHAIN * width))
    row_spans, item_spans = _spans(reduced, pieces)
    return Arrangement(
        kept, reduced, columns, width, outputs_per_item=per_item, row_spans=row_spans,
        item_spans=item_spans,
    )  # fmt: skip


def _on_gpu(
    kept: Dimensions, reduced: Dimensions, reading: Reading, limits: Limits, whole: bool
) -> Arrangement:
    columns = _dense(kept) and reduced.strides[0][-1] != 1
    width = _width(kept, reduced, reading, columns)
    terms = prod(reduced.sizes)
    group, room = min(GROUP, limits.max_work_group), limits.compute_units * GROUPS_PER_UNIT
    loads = most_loads(width, reading.dtype.item_bytes)
    if columns:
        # where nothing else fills the device, lanes do
        side = min(LINE if whole else WARP, _power(kept.inner // width))
        lanes = min(max(1, group // side), _power(terms // VECTORS))
        items, outputs = terms * width * (group // lanes), prod(kept.sizes) // width
        across = min(lanes, _power(reduced.inner))
    else:
        items, outputs = terms, prod(kept.sizes)
        lanes, across = along_rows(reduced, outputs, width, loads, limits)
    room //= max(1, ceil_div(outputs * lanes, group))
    pieces = 1 if whole else max(1, min(room, items // GPU_PIECE))
    if not whole:
        pieces = max(pieces, terms // (CHAIN * lanes * (1 if columns else width)))
    row_spans, item_spans = _spans(reduced, pieces)
    own = ceil_div(reduced.inner, item_spans * across * (1 if columns else width))
    return Arrangement(
        kept, reduced, columns, width, lanes, across, group, unroll=in_flight(own, loads),
        row_spans=row_spans, item_spans=item_spans,
    )  # fmt: skip


def most_loads(width: int, item_bytes: int) -> int:
    """Return how many loads of `width` items a GPU's work-item keeps in flight, at most."""
    return VECTORS if width * item_bytes == vectors.ACCESS_BYTES else 2 * VECTORS


def in_flight(own: int, most: int) -> int:
    """Return how many loads of a work-item are in flight together: batches of the same size.

    Args:
        own: loads of a work-item.
        most: loads of a batch.
    """
    return ceil_div(own, ceil_div(own, most))


def along_rows(
    reduced: Dimensions, outputs: int, width: int, loads: int, limits: Limits
) -> tuple[int, int]:
    """Return the lanes of an output of a GPU, and how many of them lie along its dense rows.

    Args:
        reduced: dimensions that go.
        outputs: how many there are.
        width: items of a load.
        loads: that a work-item keeps in flight.
        limits: of the device.
    """
    terms = prod(reduced.sizes)
    lanes = min(GROUP, limits.max_work_group, _power(terms // (VECTORS * width)))
    if reduced.rows > 1:
        return lanes, min(lanes, _across(ceil_div(reduced.inner, width)))
    if lanes > LINE:
        # few lanes of many loads, where outputs keep the device busy: adding up costs barriers
        share = limits.compute_units * BUSY_GROUPS * GROUP // max(1, outputs)
        lanes = max(LINE, min(lanes, _power(terms // (loads * width)), _power(share + 1) // 2))
    return lanes, lanes


def _dense(kept: Dimensions) -> bool:
    return all(strides[-1] == 1 for strides in kept.strides)


def _spans(reduced: Dimensions, pieces: int) -> tuple[int, int]:
    """Return into how many spans rows and items are cut."""
    row_spans = min(pieces, reduced.rows)
    return row_spans, min(pieces // row_spans, reduced.inner)


def _width(kept: Dimensions, reduced: Dimensions, reading: Reading, columns: bool) -> int:
    """Return how many items a GPU reads at once: all vectors are aligned where the first one is."""
    if reading.by_position or not reading.aligned:
        return 1
    if columns:
        begins = [step for strides in kept.strides for step in strides[:-1]]
        steps = [kept.inner, *reduced.strides[0], *begins]
    elif reduced.strides[0][-1] == 1:
        steps = [*reduced.strides[0][:-1], *kept.strides[0]]
    else:
        return 1
    return vectors.width_at_once([reading.dtype], steps)


def _across(steps: int) -> int:
    """Return the work-items along a row of `steps` vectors, a power of two.

    Each has some VECTORS of them, since only the loads of its own row are in flight together, but
    there are at least as many work-items as fill a line of memory.
    """
    return max(min(LINE, _power(steps)), _power(steps // VECTORS + 1) // 2)


def _power(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()
