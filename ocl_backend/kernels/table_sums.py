"""Sums of values by row on GPUs, where many values meet in few rows.

Atomic additions that all meet in one place wait for each other. Here each work-item adds to a table
of its own, in local memory, and the tables are added up: no two work-items ever meet. Sums have one
order, so this also serves torch.use_deterministic_algorithms. Tables of many rows would leave few
work-items to a compute unit. There, work-items share tables, to which they add atomically; floats
only where no order is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.added_rows import are_faster
from ocl_backend.kernels.dimensions import broadcast_strides, contiguous_strides
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.fixed_order_scatter import is_wanted
from ocl_backend.kernels.owners import Dim, joined
from ocl_backend.kernels.places import PLACE, Places
from ocl_backend.kernels.vectors import busy_items
from ocl_backend.runtime.launch import (
    MOST_LAUNCHES,
    Argument,
    KernelLaunch,
    Pointer,
    Varying,
    prepare,
)  # fmt: skip
from oclgen.limits import KIB, Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

MEETING = 64
"""Values of a row that are worth a table: fewer rarely meet at the same time."""
GROUPS = (256, 128, 64, 32)
"""Work-items of a group: the most whose tables take no more than `FEW_BYTES`, else the fewest."""
FEW_BYTES, MOST_BYTES = 16 * KIB, 32 * KIB
"""Local memory of a group: more of it would keep other groups away."""
FEW_SLICES = 64
"""Slices, at most, whose sums a work-item adds to an item; more are summed by a reduction."""
SUMS = {"float": torch.float32, "double": torch.float64, "int": torch.int32, "long": torch.int64}
"""Dtypes of sums by their type in OpenCL C."""


@dataclass(frozen=True, slots=True)
class Tables:
    """How values are shared out; the template explains the names.

    Args:
        room, lanes, sharers, tables, lanes_first: as there.
        apart: dimensions of the columns.
        meeting: dimensions of a column's values.
        slices: groups that share a column's values.
    """

    room: int
    lanes: int
    sharers: int
    tables: int
    lanes_first: bool
    apart: tuple[Dim, ...]
    meeting: tuple[Dim, ...]
    slices: int

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return prod(dim.size for dim in self.apart)

    @property
    def values(self) -> int:
        """Values of a column."""
        return prod(dim.size for dim in self.meeting)

    @property
    def share(self) -> int:
        """Values of a column that a group takes."""
        return ceil_div(self.values, self.slices)


def are_possible(limits: Limits) -> bool:
    """Say whether a device has such tables: processors have owners instead."""
    return limits.kind != "cpu"


def tables(
    dims: list[Dim], rows: int, item_bytes: int, limits: Limits, may_share: bool = False
) -> Tables | None:
    """Return how values are shared out, or None where few meet or tables are too large.

    Args:
        dims: what is walked. Nothing meets along those along which the target moves.
        rows: of a table.
        item_bytes: of a sum.
        limits: of the device.
        may_share: whether work-items may add to one table atomically.
    """
    one = Dim(1, 0, 0, (0,))
    apart = _ordered([dim for dim in dims if dim.target]) or [one]
    meeting = _ordered([dim for dim in dims if not dim.target]) or [one]
    columns, values = (prod(dim.size for dim in some) for some in (apart, meeting))
    room = 1 << max(rows - 1, 1).bit_length()
    most = min(MOST_BYTES, limits.most_local_bytes)
    fitting = [
        group for group in GROUPS
        if room * group * item_bytes <= most and group <= limits.max_work_group
    ]  # fmt: skip
    if not fitting or values < MEETING * rows:
        return None
    group = next((n for n in fitting if room * n * item_bytes <= FEW_BYTES), fitting[-1])
    places = group
    if may_share:
        group = next(n for n in GROUPS if n <= limits.max_work_group)
        places = min(group, max(FEW_BYTES // (room * item_bytes), 1))
    lanes_first = abs(apart[-1].value) == 1 or abs(meeting[-1].value) != 1
    lanes = min(places, 1 << (columns - 1).bit_length())
    if not lanes_first:
        lanes = min(lanes, group // min(group, GROUPS[-1], 1 << (values - 1).bit_length()))
    # a work-item has twice as many values as it has places, which are zeroed and added up
    least = max(ceil_div(2 * rows * places, group), GROUPS[-1])
    slices = ceil_div(busy_items(limits), ceil_div(columns, lanes) * group)
    slices = max(1, min(slices, values // (group // lanes * least)))
    kept = tuple(apart), tuple(meeting)
    return Tables(room, lanes, group // lanes, places // lanes, lanes_first, *kept, slices)


def _ordered(dims: list[Dim]) -> list[Dim]:
    """Return the dimensions with those last along which the values are neighbours."""
    return sorted(dims, key=lambda dim: -abs(dim.value) or 1)


def add_by_tables(target: Tensor, places: Places, value: Tensor | float) -> bool:
    """Add values to `target` at places, those of a place in one order; narrow floats round once.

    Args:
        target: written in place.
        places: in it.
        value: a number, or a tensor that broadcasts to the places' shape.

    Returns:
        False where nothing was done, because it is not worth it or the dtype has no tables.
    """
    if not isinstance(value, Tensor):
        value = torch.full((), value, dtype=target.dtype, device=target.device)
    prepared = tables_for(target, places, value)
    if prepared is None:
        return False
    run, shared = prepared
    device, (index,) = target.get_device(), places.indices
    slices = shared.slices, places.sizes[0], shared.columns
    real = SUMS[dtype_of(target.dtype).value]
    out = target if shared.slices == 1 else target.new_empty(slices, dtype=real)
    noted = faults.record(device).data_ptr()
    run(out.data_ptr(), index.data_ptr(), value.data_ptr(), *places.numbers, noted)
    if out is not target:
        _add_up(target, out, shared, places)
    faults.check(device)
    return True


def tables_for(target: Tensor, places: Places, value: Tensor) -> tuple[KernelLaunch, Tables] | None:
    """Return what `add_by_tables` launches, and how it shares values out; None: it adds nothing.

    Args:
        target: as there.
        places: as there.
        value: as there.
    """
    device, shape = target.get_device(), places.shape
    if not are_possible(devices()[device].limits) or len(places.indices) != 1 or 0 in shape:
        return None
    if dtype_of(target.dtype).value not in SUMS:
        return None
    if not is_wanted(target, "add") and are_faster(target, places, value):
        return None
    (index,) = places.indices
    lies = (
        places.strides,
        broadcast_strides(shape, value.shape, value.stride()),
        broadcast_strides(shape, index.shape, index.stride()),
    )
    dtypes = target.dtype, value.dtype, index.dtype
    is_ordered = target.is_floating_point() and torch.are_deterministic_algorithms_enabled()
    return _prepared(device, dtypes, tuple(shape), lies, places.sizes[0], not is_ordered)


def _add_up(target: Tensor, sums: Tensor, shared: Tables, places: Places) -> None:
    """Add the slices' sums [slices, rows, columns] to the rows of the target."""
    sizes = (places.sizes[0], *(dim.size for dim in shared.apart))
    steps = (places.steps[0], *(dim.target for dim in shared.apart))
    rows = target.as_strided(sizes, steps, target.storage_offset())
    if shared.slices > FEW_SLICES:
        rows.add_(sums.sum(0, dtype=sums.dtype).view(sizes))
        return
    given = (rows, sums[0].view(sizes), shared.slices, sums.stride(0))
    launch(_adder(target.dtype, sums.dtype), sizes, given, {"sums": contiguous_strides(sizes)})


@cache
def _adder(dtype: torch.dtype, real: torch.dtype) -> Kernel:
    """Return the kernel that adds the sums of slices to each item, and rounds once."""
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("item", dtype, "inout", result="total"),
        Operand("sums", real, "address"),
        *(Scalar(name, "long") for name in ("slices", "step")),
    )
    body = """\
T total = item;
#pragma unroll 8
for (long k = 0; k < slices; ++k)
    total += LOAD_sums(sums_at + k * step);
"""
    return Kernel("add_slices", dtype_of(real).value, parameters, body, scalar_only=True)


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, dtypes: tuple[torch.dtype, ...], shape: tuple[int, ...],
    lies: tuple[tuple[int, ...], ...], rows: int, may_share: bool,
) -> tuple[KernelLaunch, Tables] | None:  # fmt: skip
    """Return a launch and how it shares the values out; None where tables are not worth it.

    Args:
        device: its index.
        dtypes: of target, value and index.
        shape: of the places.
        lies: strides of target, value and index over it.
        rows: that an index may name.
        may_share: whether the order of additions is free.
    """
    target, value, index = map(dtype_of, dtypes)
    dims = [
        Dim(size, at, moved, (along,)) for size, at, moved, along in zip(shape, *lies, strict=True)
    ]
    sum_bytes, limits = SUMS[target.value].itemsize, devices()[device].limits
    may_share &= sum_bytes == 4 or "cl_khr_int64_base_atomics" in limits.extensions
    shared = tables(joined(dims), rows, sum_bytes, limits, may_share)
    if shared is None:
        return None
    whole = shared.slices == 1
    reach = max(sum((n - 1) * abs(step) for n, step in zip(shape, each, strict=True))
                for each in lies)  # fmt: skip
    wide = max(reach, shared.values + 4 * GROUPS[0]) >= 2**31
    source = rendered(
        "table_sums", package="ocl_backend", room=shared.room, lanes=shared.lanes,
        sharers=shared.sharers, tables=shared.tables, lanes_first=shared.lanes_first,
        apart=len(shared.apart), meeting=len(shared.meeting), whole=whole, real=target.value,
        index=index, value=value, target=target, wide=wide, helpers=PLACE,
    )  # fmt: skip
    group = shared.lanes * shared.sharers
    items = ceil_div(shared.columns, shared.lanes) * group, shared.slices
    out_bytes = target.item_bytes if whole else sum_bytes
    pointers = [Pointer(size) for size in (out_bytes, index.item_bytes, value.item_bytes)]
    arguments: list[Argument] = [*pointers, *[Varying("long")] * 5, Pointer(8)]
    number = np.int64 if wide else np.int32
    arguments += map(number, _numbers(shared))
    run = prepare(device, source, "table_sums", items, arguments, (group, 1))
    return run, shared


def _numbers(shared: Tables) -> list[int]:
    """Return the launch's own numbers, in the template's order."""
    numbers = [shared.columns, shared.values, shared.share]
    for k, dim in enumerate(shared.apart):
        numbers += [*([dim.size] if k else []), *dim.indices, dim.value, dim.target]
    for k, dim in enumerate(shared.meeting):
        numbers += [*([dim.size] if k else []), *dim.indices, dim.value]
    return numbers
