"""Selection of the item of a rank in each row, without a sort: medians and k-th smallest items.

Items have keys, unsigned numbers in the items' order. A work-group counts the highest digits of a
row's keys in bins of local memory, picks the bin with the rank, and goes on with the next digit of
the keys that agree. Few long rows are shared by several groups, a launch for each digit. Items of
short rows are compared with each other. Of equal items the first is taken.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import CallForTheCpuError, dtype_of
from ocl_backend.kernels.memory_formats import as_rows
from ocl_backend.kernels.ordered_keys import key_of, nature
from ocl_backend.runtime.launch import (
    MOST_LAUNCHES,
    Argument,
    KernelLaunch,
    Pointer,
    Varying,
    prepare,
)
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

Sought = Literal["rank", "median", "nanmedian"]
Stage = Literal["short", "whole", "digit", "place"]

GROUP, LONG_GROUP = 256, 1024
"""Work-items of a GPU's group, at most, of a row and of a long one; a processor's has one."""
MOST_SHORT = {"cpu": 64, "gpu": GROUP}
"""Items of a row up to which they are compared with each other."""
LONG = 4096
"""Items of a long row, whose digits have 11 bits, not 8: bins are cleared and added up."""
MANY_GROUPS = {"cpu": 2, "gpu": 4}
"""Groups of a row that are worth a launch for each digit."""
LEAST_SHARE = {"cpu": 1 << 15, "gpu": 1 << 13}
"""Items of a row that are worth a group of their own among several."""
WALKED = 4096
"""Items that a group of a processor takes, of several rows."""
MOST_ITEMS = 2**31 - 2**20
"""Of a row: positions are int."""


class Form(NamedTuple):
    """What the kernels' texts depend on; the template's legend explains it."""

    dtype: torch.dtype
    rule: Sought
    bits: int
    group: int

    @property
    def digits(self) -> tuple[tuple[int, int], ...]:
        """The lowest bit of each digit and its bits, the highest digit first."""
        most = 8 * self.dtype.itemsize
        ends = range(most, 0, -self.bits)
        return tuple((max(end - self.bits, 0), min(end, self.bits)) for end in ends)

    @property
    def room(self) -> int:
        """Bins of a digit, and the number of NaNs."""
        return (1 << self.digits[0][1]) + 1

    def text(self, kind: Stage, turn: int = 0, padded: int = 0, across: bool = False) -> str:
        """Return the OpenCL C of a kernel.

        Args:
            kind: which one.
            turn: number of the digit that it counts.
            padded: places of a short row.
            across: whether neighbouring work-items read neighbouring rows.
        """
        key = "ulong" if self.dtype.itemsize == 8 else "uint"
        return rendered(
            "digit_select", package="ocl_backend", kind=kind, bits=8 * self.dtype.itemsize,
            nature=nature(self.dtype), key_of=key_of(self.dtype, key), rule=self.rule,
            digits=self.digits, turn=turn, group=self.group,
            at_once=16 if self.group == 1 else 4, padded=padded, across=across,
        )  # fmt: skip


def selected(x: Tensor, axis: int, rule: Sought, rank: int = 0) -> tuple[Tensor, Tensor]:
    """Return the item of a rank in each row, and its first position as int64.

    Args:
        x: of any sizes and strides.
        axis: along which a row lies.
        rule: the "rank" that is given; the lower "median", a NaN where there is one; or
            "nanmedian", that of what is no NaN, a NaN where there is nothing else.
        rank: from 0; a NaN counts as the largest, and zeros are equal.

    Returns:
        Both have x's sizes without that of `axis`.

    Raises:
        IndexError: rows have no items.
        CallForTheCpuError: no kernel serves the dtype, or rows of more than `MOST_ITEMS`.
    """
    size = x.shape[axis]
    if not size:
        raise IndexError(f"Expected reduction dim {axis} to have non-zero size.")
    if size > MOST_ITEMS:
        raise CallForTheCpuError(f"a row of {size} items is too long to select of")
    dtype_of(x.dtype)  # refuses what no kernel serves
    kept = x.shape[:axis] + x.shape[axis + 1 :]
    values = torch.empty(kept, dtype=x.dtype, device=x.device)
    places = torch.empty(kept, dtype=torch.int64, device=x.device)
    device, rows = x.get_device(), values.numel()
    if not rows:
        return values, places
    limits = devices()[device].limits
    kind = "cpu" if limits.kind == "cpu" else "gpu"
    most = LONG_GROUP if size >= LONG else GROUP
    group = 1 if kind == "cpu" else min(most, 1 << (limits.max_work_group.bit_length() - 1))
    if not x.dtype.is_floating_point:
        rank, rule = (rank if rule == "rank" else (size - 1) // 2), "rank"
    form = Form(x.dtype, rule, 11 if size >= LONG else 8, group)
    outputs = values.data_ptr(), places.data_ptr()
    if size <= (MOST_SHORT["cpu"] if kind == "cpu" else group):
        lies, inner = _short_rows(x, axis)
        _short(device, form, rows, size, inner)(lies.data_ptr(), *outputs, rank)
        return values, places
    dense = as_rows(x, axis)
    groups = min(ceil_div(2 * limits.compute_units, rows), size // LEAST_SHARE[kind])
    if rows >= limits.compute_units or groups < MANY_GROUPS[kind]:
        _whole(device, form, rows, size)(dense.data_ptr(), *outputs, rank)
    else:
        _by_digits(form, dense, values, places, rank, groups)
    return values, places


def _short_rows(x: Tensor, axis: int) -> tuple[Tensor, int]:
    """Return x dense, and the distance of a row's items: x as it lies, if it lies so."""
    moved = x.movedim(axis, -1)
    if moved.is_contiguous():
        return moved, 1
    dense = x.contiguous()
    return dense, dense.stride(axis)


def _by_digits(
    form: Form, dense: Tensor, values: Tensor, places: Tensor, rank: int, groups: int
) -> None:
    """Select of few long rows: a launch counts a digit, and the next one picks its bin."""
    rows, size = dense.shape
    device, turns = dense.get_device(), len(form.digits)
    bins = torch.zeros(rows, turns * form.room, dtype=torch.int32, device=dense.device)
    states = torch.empty(rows, 2 * (turns + 1), dtype=torch.int64, device=dense.device)
    kept = places.data_ptr(), bins.data_ptr(), states.data_ptr(), rank
    for turn in range(turns):
        _shared(device, form, "digit", turn, rows, size, groups)(dense.data_ptr(), *kept)
    last = _shared(device, form, "place", turns, rows, size, groups)
    last(dense.data_ptr(), values.data_ptr(), *kept)


def _pointers(form: Form) -> list[Argument]:
    """Return x, values and places."""
    return [Pointer(form.dtype.itemsize), Pointer(form.dtype.itemsize), Pointer(8)]


@lru_cache(maxsize=MOST_LAUNCHES)
def _short(device: int, form: Form, rows: int, size: int, inner: int) -> KernelLaunch:
    """Prepare a launch over rows whose items are `inner` items apart."""
    padded = MOST_SHORT["cpu"] if form.group == 1 else 1 << (size - 1).bit_length()
    share = max(1, WALKED // (size * size)) if form.group == 1 else form.group // padded
    text = form.text("short", padded=padded, across=inner > 1)
    numbers: list[Argument] = [np.int64(rows), np.int32(size), np.int32(inner), np.int64(share)]
    arguments: list[Argument] = [*_pointers(form), Varying("long"), *numbers]
    items = ceil_div(rows, share) * form.group
    return prepare(device, text, "select_short", (items,), arguments, (form.group,))


@lru_cache(maxsize=MOST_LAUNCHES)
def _whole(device: int, form: Form, rows: int, size: int) -> KernelLaunch:
    """Prepare a launch whose groups have whole rows."""
    share = max(1, WALKED // size) if form.group == 1 else 1
    numbers: list[Argument] = [np.int64(rows), np.int32(size), np.int64(share)]
    arguments: list[Argument] = [*_pointers(form), Varying("long"), *numbers]
    items = ceil_div(rows, share) * form.group
    return prepare(device, form.text("whole"), "select_whole", (items,), arguments, (form.group,))


@lru_cache(maxsize=MOST_LAUNCHES)
def _shared(
    device: int, form: Form, kind: Stage, turn: int, rows: int, size: int, groups: int
) -> KernelLaunch:
    """Prepare a launch of several groups for each row."""
    x, values, places = _pointers(form)
    written = [values] if kind == "place" else []
    pointers = [x, *written, places, Pointer(4), Pointer(8)]
    share = ceil_div(size, groups)
    arguments: list[Argument] = [*pointers, Varying("long"), np.int32(size), np.int32(share)]
    sizes = groups * form.group, rows
    text = form.text(kind, turn)
    return prepare(device, text, f"select_{kind}", sizes, arguments, (form.group, 1))
