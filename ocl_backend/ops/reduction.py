"""The generator of reductions: map, combine and finish in, prepared launches out.

Which operators there are is in `reductions`; here is how dimensions, vectors, work-items and
pieces are laid out. Sums of floats are made in vectors and pieces, so they are pairwise at the top.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from math import prod

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import DType, dtype_of
from ocl_backend.launch import Argument, Launch, Pointer, prepare
from ocl_backend.ops import vectors
from ocl_backend.ops.layout import Layout, collapse, contiguous_strides
from oclgen.device import devices
from oclgen.limits import Limits
from oclgen.render import render

GROUP = 256
"""Work-items of a group on GPUs; the template's local array has as many entries."""

PIECE = 4096
"""Items worth a work-item of their own on a CPU, or a work-group on a GPU."""

WIDE, STRIP = 1024, 64
"""Columns from which on a CPU reduces strips of rows, and the rows of a strip."""

NUMBERS: dict[str, type[np.generic]] = {
    "float": np.float32,
    "double": np.float64,
    "long": np.int64,
    "int": np.int32,
    "short": np.int16,
    "char": np.int8,
    "uchar": np.uint8,
}
"""The numpy scalar of each C type combined in."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """What is combined, in OpenCL C: `map` of x, center, position; `combine` of a, b.

    `finish` sees acc and count. `merge` is the map of a second launch over pieces. All but those
    with a position must be right for vectors.
    """

    name: str
    combine: str
    initial: str
    map: str = "x"
    finish: str = "acc"

    @property
    def completion(self) -> Reduction:
        """The same reduction over pieces that are already mapped."""
        return Reduction(self.name, self.combine, self.initial, "x", self.finish)

    @property
    def partial(self) -> Reduction:
        """The same reduction, not finished."""
        return Reduction(self.name, self.combine, self.initial, self.map)


@dataclass(frozen=True, slots=True)
class Spec:
    """One reduction of tensors with known layout: what a prepared run is remembered by.

    `strides` are the input's, and the output's and center's with dimensions kept (a reduced one
    has stride 0). `item` and `value` are the C types of x and of what is
    combined; `count` is what `finish` divides by.
    """

    reduction: Reduction
    item: str
    value: str
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype | None]
    shape: tuple[int, ...]
    reduced: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    count: float


def run(device: int, spec: Spec, source: Tensor, target: Tensor, center: Tensor | None) -> None:
    """Launch `spec` on the tensors it describes."""
    first, second, pieces = _prepared(device, spec)
    extra = () if center is None else (center.data_ptr(),)
    if second is None:
        first(source.data_ptr(), *extra, target.data_ptr())
        return
    dtype = VALUE_DTYPES[spec.value]
    kept = prod(_kept(spec.shape, spec.reduced))
    space = torch.empty(pieces * kept, dtype=dtype, device=source.device)
    first(source.data_ptr(), *extra, space.data_ptr())
    second(space.data_ptr(), target.data_ptr())


VALUE_DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "long": torch.int64,
    "int": torch.int32,
    "short": torch.int16,
    "char": torch.int8,
    "uchar": torch.uint8,
}


def _kept(shape: Sequence[int], reduced: Sequence[int]) -> list[int]:
    return [1 if dim in reduced else size for dim, size in enumerate(shape)]


@lru_cache(maxsize=4096)
def _prepared(device: int, spec: Spec) -> tuple[Launch, Launch | None, int]:
    """Return the launch, the one that completes it where it is cut, and the number of pieces."""
    limits = devices()[device].limits
    layout = Arrangement.of(spec, limits)
    pieces = layout.row_spans * layout.item_spans
    if pieces == 1:
        return _launch(device, spec, layout, 0), None, 1
    kept = _kept(spec.shape, spec.reduced)
    dense = tuple(
        0 if dim in spec.reduced else stride for dim, stride in enumerate(contiguous_strides(kept))
    )
    partial = Spec(
        spec.reduction.partial,
        spec.item,
        spec.value,
        (spec.dtypes[0], VALUE_DTYPES[spec.value], spec.dtypes[2]),
        spec.shape,
        spec.reduced,
        (spec.strides[0], dense, *spec.strides[2:]),
        spec.count,
    )
    completion = Spec(
        spec.reduction.completion,
        spec.value,
        spec.value,
        (VALUE_DTYPES[spec.value], spec.dtypes[1], None),
        (pieces, *kept),
        (0,),
        ((prod(kept), *dense), (0, *spec.strides[1])),
        spec.count,
    )
    last = Arrangement.of(completion, limits, whole=True)
    return (
        _launch(device, partial, layout, prod(kept)),
        _launch(device, completion, last, 0),
        pieces,
    )


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a reduction is spread: collapsed dimensions, vectors, lanes and pieces."""

    kept: Layout
    reduced: Layout
    columns: bool
    width: int
    lanes: int
    across: int
    group: int
    outputs_per_item: int
    row_spans: int
    item_spans: int

    @property
    def blocks(self) -> int:
        """Outputs, or vectors of outputs, to be computed."""
        if not self.columns:
            return prod(self.kept.sizes)
        return self.kept.rows * -(-self.kept.inner // self.width)

    @staticmethod
    def of(spec: Spec, limits: Limits, whole: bool = False) -> Arrangement:
        """Choose for a device; `whole` forbids pieces."""
        kept, reduced = _layouts(spec)
        cpu = limits.kind == "cpu"
        scalar = not cpu or "position" in spec.reduction.map
        dense = all(strides[-1] == 1 for strides in kept.strides)
        along_items = reduced.strides[0][-1] == 1
        columns = not scalar and dense and not along_items
        width = 16 if not scalar and (columns or along_items) else 1
        terms = prod(reduced.sizes)
        group = 1 if cpu else min(GROUP, limits.max_work_group)
        lanes = 1 if cpu or (dense and not along_items) else min(group, _power(terms // 4))
        outputs = prod(kept.sizes) // (width if columns else 1)
        per_item = max(1, PIECE // max(terms * (width if columns else 1), 1)) if cpu else 1
        groups = -(-outputs * lanes // (group * per_item))
        room = limits.compute_units * (2 if cpu else 8) // max(groups, 1)
        worth = terms * (width if columns else 1) // PIECE
        pieces = 1 if whole else max(1, min(room, worth))
        if columns and not whole and kept.inner >= WIDE and terms >= 4 * STRIP:
            # few rows at a time: a column of a wide matrix touches a new page with every item
            pieces = max(pieces, terms // STRIP)
            per_item = max(1, PIECE // (STRIP * width))
        row_spans = min(pieces, reduced.rows)
        across = min(lanes, _power(reduced.inner))
        return Arrangement(
            kept, reduced, columns, width, lanes, across, group, per_item,
            row_spans, min(pieces // row_spans, reduced.inner),
        )  # fmt: skip


def _power(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


def _layouts(spec: Spec) -> tuple[Layout, Layout]:
    """Return the collapsed dimensions that stay and those that go, in the input's order."""
    stay = [dim for dim in range(len(spec.shape)) if dim not in spec.reduced]
    kept = collapse(
        [spec.shape[dim] for dim in stay],
        [[strides[dim] for dim in stay] for strides in spec.strides],
    )
    go = list(spec.reduced)
    reduced = collapse([spec.shape[dim] for dim in go], [[spec.strides[0][dim] for dim in go]])
    return kept, reduced


def _launch(device: int, spec: Spec, layout: Arrangement, piece: int) -> Launch:
    reach = max(layout.kept.reach + layout.reduced.reach, prod(spec.shape), piece * GROUP)
    wide = reach >= 2**31 - PIECE
    kept = layout.kept.sizes[:-1] if layout.columns else layout.kept.sizes
    text = source(
        spec.reduction, spec.item, spec.value, spec.dtypes, max(len(kept), 1),
        max(len(layout.reduced.sizes) - 1, 1), layout.columns, layout.width, layout.lanes,
        layout.across, wide,
    )  # fmt: skip
    pointers = [dtype for dtype in (spec.dtypes[0], spec.dtypes[2], spec.dtypes[1]) if dtype]
    count = NUMBERS[spec.value]
    number = np.int64 if wide else np.int32
    arguments: list[Argument] = [Pointer(dtype.itemsize) for dtype in pointers]
    arguments.append(count(spec.count if "count" in spec.reduction.finish else 0))
    arguments += [number(value) for value in _numbers(layout, piece)]
    per_group = layout.group // layout.lanes
    groups = -(-layout.blocks // (per_group * layout.outputs_per_item))
    pieces = layout.row_spans * layout.item_spans
    size = (groups * layout.group, pieces)
    return prepare(
        device, text, f"reduce_{spec.reduction.name}", size, arguments, (layout.group, 1)
    )


def _numbers(layout: Arrangement, piece: int) -> list[int]:
    """Return sizes and strides in the template's order."""
    rows, items = layout.reduced.rows, layout.reduced.inner
    item_span = -(-items // layout.item_spans)
    numbers = [layout.blocks, layout.outputs_per_item, rows, -(-rows // layout.row_spans)]
    numbers += [items, item_span, layout.item_spans, layout.reduced.strides[0][-1], piece]
    sizes, strides = layout.kept.sizes, layout.kept.strides
    if layout.columns:
        numbers.append(layout.kept.inner)
        sizes, strides = sizes[:-1], tuple(steps[:-1] for steps in strides)
    numbers += sizes[1:]
    numbers += chain(*zip(*strides, strict=True)) if sizes else [0] * len(strides)
    numbers += layout.reduced.sizes[1:-1]
    numbers += layout.reduced.strides[0][:-1] or [0]
    return numbers


@cache
def source(
    reduction: Reduction,
    item: str,
    value: str,
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype | None],
    kept: int,
    reduced: int,
    columns: bool,
    width: int,
    lanes: int,
    across: int,
    wide: bool,
) -> str:
    """Return the OpenCL C of one arrangement of a reduction; see the template's legend."""
    kinds = [dtype_of(dtype) for dtype in dtypes if dtype is not None]

    def typed(text: str, width: int) -> str:
        text = re.sub(r"\bT\b", vectors.vector(value, width), text)
        text = re.sub(r"\bX\b", vectors.vector(item, width), text)
        return re.sub(r"(?<![\w.])(\d+\.\d+)", r"\1f", text) if value == "float" else text

    def load(dtype: DType, name: str, at: str, width: int, dense: bool) -> str:
        raw = vectors.load(dtype, name, at, "1" if dense else "0", width)
        return vectors.convert(dtype.value, item, raw, width)

    def stored(text: str, width: int) -> list[str]:
        given = f"const {vectors.vector(value, width)} finished = {typed(text, width)};"
        item = vectors.to_dtype(kinds[1], value, "finished", width)
        return [given, *vectors.store(kinds[1], "target_data", "target_at", "1", item, width)]

    return render(
        "reduction",
        package="ocl_backend",
        name=reduction.name,
        prelude="".join(vectors.prelude(kind, width) for kind in dict.fromkeys(kinds)),
        source=kinds[0],
        target=kinds[1],
        center=kinds[2] if len(kinds) > 2 else None,
        value=value,
        map=reduction.map,
        combine=reduction.combine,
        initial=reduction.initial,
        finish=reduction.finish,
        kept=kept,
        reduced=reduced,
        columns=columns,
        width=width,
        lanes=lanes,
        across=across,
        index="long" if wide else "int",
        typed=typed,
        load=load,
        stored=stored,
    )
