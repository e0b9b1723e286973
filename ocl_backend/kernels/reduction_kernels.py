"""The generator of reductions: map, combine and finish in, prepared launches out.

`reductions` has the operators, `reduction_arrangement` spreads them over a device.
Sums of floats are made in vectors and pieces, so they are pairwise at the top.
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
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import Dimensions, collapse, contiguous_strides
from ocl_backend.kernels.reduction_arrangement import CPU_PIECE, GROUP, Arrangement, Reading
from ocl_backend.runtime.launch import (
    MOST_LAUNCHES,
    Argument,
    KernelLaunch,
    LaunchSequence,
    Part,
    Pointer,
    Prepared,
    prepare,
)
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.render import render

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
    """What is combined, in OpenCL C: `map` of x, y, center, position; `combine` of a, b.

    `finish` sees acc and count. `merge` is the map of a second launch over pieces. All but those
    with a position must be right for vectors.
    """

    name: str
    combine: str
    initial: str
    map: str = "x"
    finish: str = "acc"

    @property
    def by_position(self) -> bool:
        """Whether `map` reads an item's position."""
        return "position" in self.map

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
    combined; `count` is what `finish` divides by; `aligned`, whether all begin where an access may.
    `other` is the dtype of a second input with the first one's strides, which the map calls y.
    """

    reduction: Reduction
    item: str
    value: str
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype | None]
    shape: tuple[int, ...]
    reduced: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    count: float
    aligned: bool = True
    other: torch.dtype | None = None


def run(
    device: int,
    spec: Spec,
    source: Tensor,
    target: Tensor,
    center: Tensor | None,
    other: Tensor | None = None,
) -> None:
    """Launch `spec` on the tensors it describes.

    Args:
        device: its index.
        spec: shapes, strides and dtypes of the tensors.
        source: what is reduced.
        target: written.
        center: an input of the target's shape, which the reduction's map reads, or None.
        other: an input of the source's shape and strides, which the map reads, or None.
    """
    first, second, pieces = _prepared(device, spec)
    extra = [tensor.data_ptr() for tensor in (other, center) if tensor is not None]
    if second is None:
        first(source.data_ptr(), *extra, target.data_ptr())
        return
    dtype = VALUE_DTYPES[spec.value]
    kept = prod(_kept(spec.shape, spec.reduced))
    space = torch.empty(pieces * kept, dtype=dtype, device=source.device)
    first(source.data_ptr(), *extra, space.data_ptr())
    second(space.data_ptr(), target.data_ptr())


@lru_cache(maxsize=MOST_LAUNCHES)
def as_one(device: int, spec: Spec) -> Prepared:
    """Return what runs a reduction without a center; call it with the addresses of both tensors."""
    first, second, pieces = _prepared(device, spec)
    if second is None:
        return first
    space = pieces * prod(_kept(spec.shape, spec.reduced)) * VALUE_DTYPES[spec.value].itemsize
    return LaunchSequence(device, [Part(first, (0, 2)), Part(second, (2, 1))], 2, [space])


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


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(device: int, spec: Spec) -> tuple[KernelLaunch, KernelLaunch | None, int]:
    """Return the launch, the one that completes it where it is cut, and the number of pieces."""
    limits = devices()[device].limits
    layout = arranged(spec, limits)
    pieces = layout.pieces
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
        spec.aligned,
        spec.other,
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
    last = arranged(completion, limits, whole=True)
    return (
        _launch(device, partial, layout, prod(kept)),
        _launch(device, completion, last, 0),
        pieces,
    )


def arranged(spec: Spec, limits: Limits, whole: bool = False) -> Arrangement:
    """Return how a device with these limits reduces; `whole` keeps it in one piece.

    Args:
        spec: shapes, strides and dtypes.
        limits: of the device.
        whole: whether no results may be made in pieces that a second launch joins.
    """
    reading = Reading(dtype_of(spec.dtypes[0]), spec.aligned, spec.reduction.by_position)
    return Arrangement.of(*_layouts(spec), reading, limits, whole)


def _layouts(spec: Spec) -> tuple[Dimensions, Dimensions]:
    """Return the collapsed dimensions that stay and those that go, in the input's order."""
    stay = [dim for dim in range(len(spec.shape)) if dim not in spec.reduced]
    kept = collapse(
        [spec.shape[dim] for dim in stay],
        [[strides[dim] for dim in stay] for strides in spec.strides],
    )
    go = list(spec.reduced)
    reduced = collapse([spec.shape[dim] for dim in go], [[spec.strides[0][dim] for dim in go]])
    return kept, reduced


def _launch(device: int, spec: Spec, layout: Arrangement, piece: int) -> KernelLaunch:
    reach = max(
        layout.kept.reach + layout.reduced.reach, prod(spec.shape), piece * GROUP,
        layout.item_spans * layout.item_span,
    )  # fmt: skip
    wide = reach >= 2**31 - 4 * CPU_PIECE
    kept = layout.kept.sizes[:-1] if layout.columns else layout.kept.sizes
    text = _source(
        spec.reduction, spec.item, spec.value, spec.dtypes, max(len(kept), 1),
        max(len(layout.reduced.sizes) - 1, 1), layout.columns, layout.width, layout.lanes > 1,
        layout.unroll, wide, spec.other,
    )  # fmt: skip
    read = (spec.dtypes[0], spec.other, spec.dtypes[2])
    pointers = [dtype for dtype in (*read, spec.dtypes[1]) if dtype]
    count = NUMBERS[spec.value]
    number = np.int64 if wide else np.int32
    arguments: list[Argument] = [Pointer(dtype.itemsize) for dtype in pointers]
    arguments.append(count(spec.count if "count" in spec.reduction.finish else 0))
    arguments += [number(value) for value in _numbers(layout, piece)]
    per_group = layout.group // layout.lanes
    groups = -(-layout.blocks // (per_group * layout.outputs_per_item))
    size = (groups * layout.group, layout.pieces)
    return prepare(
        device, text, f"reduce_{spec.reduction.name}", size, arguments, (layout.group, 1)
    )


def _numbers(layout: Arrangement, piece: int) -> list[int]:
    """Return sizes and strides in the template's order."""
    rows, items = layout.reduced.rows, layout.reduced.inner
    numbers = [layout.blocks, layout.outputs_per_item, rows, -(-rows // layout.row_spans)]
    numbers += [items, layout.item_span, layout.item_spans, layout.reduced.strides[0][-1], piece]
    if layout.lanes > 1:  # powers of two, as exponents
        numbers += [n.bit_length() - 1 for n in (layout.lanes, layout.across, layout.apart)]
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
def _source(
    reduction: Reduction,
    item: str,
    value: str,
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype | None],
    kept: int,
    reduced: int,
    columns: bool,
    width: int,
    shared: bool,
    unroll: int,
    wide: bool,
    other: torch.dtype | None,
) -> str:
    """Return the OpenCL C of one arrangement of a reduction; see the template's legend."""
    kinds = [dtype_of(dtype) for dtype in dtypes if dtype is not None]
    second = dtype_of(other) if other else None
    met = dict.fromkeys([*kinds, second] if second else kinds)

    def typed(text: str, width: int) -> str:
        text = re.sub(r"\bT\b", vectors.vector(value, width), text)
        text = re.sub(r"\bX\b", vectors.vector(item, width), text)
        return vectors.in_precision(text, value)

    def load(dtype: DType, name: str, at: str, width: int, dense: bool) -> str:
        raw = vectors.load(dtype, name, at, "1" if dense else "0", width, True)
        return vectors.convert(dtype.value, item, raw, width)

    def stored(text: str, width: int) -> list[str]:
        given = f"const {vectors.vector(value, width)} finished = {typed(text, width)};"
        item = vectors.to_dtype(kinds[1], value, "finished", width)
        return [given, *vectors.store(kinds[1], "target_data", "target_at", "1", item, width, True)]

    return render(
        "reduction",
        package="ocl_backend",
        name=reduction.name,
        prelude="".join(vectors.prelude(kind, width) for kind in met),
        source=kinds[0],
        other=second,
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
        shared=shared,
        unroll=unroll,
        group=GROUP,
        index="long" if wide else "int",
        typed=typed,
        load=load,
        stored=stored,
    )
