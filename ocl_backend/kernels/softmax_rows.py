"""Softmax of dense rows, and its gradient, by one kernel that reads and writes each item once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import axis_of
from ocl_backend.kernels.vectors import CPU_GROUP_ITEMS
from ocl_backend.runtime.launch import Argument, KernelLaunch, Pointer, prepare
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

GROUP = 256
"""Work-items of a GPU's group at most, where they keep a row."""
WIDE_GROUP = 1024
"""The same where they read it again: few rows at a time stay in the last cache meanwhile."""
AIM, MOST = 4, 8
"""Vectors of a row that a work-item of a GPU keeps in registers: wanted, and at most."""
LOADS = 4
"""Vectors of a row that is read again which a work-item of a GPU has under way."""
MOST_ON_CPU = 4096
"""Items of a row that a CPU keeps: they stay in its first cache."""
GROUPS_PER_UNIT = 2
"""Groups that keep a compute unit busy."""
LONG_ROW = 65_536
"""Items of a row that a core of a processor walks by itself, however few rows there are: sums that
cores share are two launches more, and a core takes some 50 us for these items."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What decides the kernel: tensors are [rows, inner], dense."""

    device: int
    dtype: torch.dtype
    rows: int
    inner: int

    @property
    def limits(self) -> Limits:
        """The limits of the device."""
        return devices()[self.device].limits


@dataclass(frozen=True, slots=True)
class Shares:
    """How rows are shared among work-items; the template explains the names."""

    width: int
    lanes: int
    at_once: int
    rounds: int
    held: int
    unroll: bool
    lies: Literal["whole", "overlapped", "across"] = "whole"

    @property
    def room(self) -> int:
        """Vectors the kernel has room for: a power of two, so that few texts serve all rows."""
        return 1 << (self.held - 1).bit_length() if self.held else 0


def rows_of(x: Tensor, dim: int) -> Rows | None:
    """Return the rows of x along `dim`, or None if they are not dense or too few and too long."""
    if x.dim() == 0 or axis_of(dim, x.dim()) != x.dim() - 1 or not x.is_contiguous():
        return None
    rows = Rows(x.get_device(), x.dtype, prod(x.shape[:-1]), x.shape[-1])
    is_short = rows.limits.kind == "cpu" and rows.inner <= LONG_ROW
    is_busy = rows.rows >= GROUPS_PER_UNIT * rows.limits.compute_units
    return rows if is_short or is_busy or shares(rows).held > 0 else None


@lru_cache(maxsize=1024)
def shares(rows: Rows) -> Shares:
    """Return how work-items share rows: one each on a CPU, as many as keep `AIM` vectors else."""
    limits = rows.limits
    width = vectors.width_of_rows(rows.inner, limits)
    count = rows.inner // width
    if limits.kind == "cpu":
        return _cpu_shares(rows)
    group = min(GROUP, limits.max_work_group)
    lanes = _lanes(count, group)
    held = ceil_div(count, lanes)
    if held > MOST:
        wide = _lanes(count, min(WIDE_GROUP, limits.max_work_group))
        return Shares(width, wide, 1, 1, 0, unroll=False)
    return Shares(width, lanes, group // lanes, 1, held, unroll=True)


def _cpu_shares(rows: Rows) -> Shares:
    """Return vectors along a row, or across rows that are shorter than a vector."""
    width = vectors.CPU_WIDTHS[0]
    count = max(1, CPU_GROUP_ITEMS // rows.inner)
    if rows.inner >= width:
        held = ceil_div(rows.inner, width) if rows.inner <= MOST_ON_CPU else 0
        return Shares(width, 1, 1, count, held, unroll=False, lies="overlapped")
    if rows.rows >= width:
        rounds = ceil_div(count, width)
        return Shares(width, 1, 1, rounds, rows.inner, unroll=False, lies="across")
    return Shares(1, 1, 1, count, rows.inner, unroll=False)


def _lanes(count: int, most: int) -> int:
    """Return the work-items that share a row of `count` vectors, a power of two up to `most`."""
    lanes = 1
    while lanes < most and lanes * AIM < count:
        lanes *= 2
    return lanes


def run(rows: Rows, direction: str, logarithm: bool, *tensors: Tensor) -> None:
    """Enqueue the kernel.

    Args:
        rows: sizes and dtypes of the rows.
        direction: "fwd" or "bwd".
        logarithm: whether it is the logarithm of the softmax.
        *tensors: forward (x, out), backward (grad, output, out).
    """
    pointers = [each.data_ptr() for each in tensors]
    _prepared(rows, direction, logarithm)(*pointers)


@lru_cache(maxsize=1024)
def _prepared(rows: Rows, direction: str, logarithm: bool) -> KernelLaunch:
    share, dtype = shares(rows), dtype_of(rows.dtype)
    source = rendered(
        "softmax_rows", package="ocl_backend", direction=direction, logarithm=logarithm,
        dtype=dtype, width=share.width, lanes=share.lanes, at_once=share.at_once,
        held=share.room, unroll=share.unroll, lies=share.lies,
        loads=LOADS if direction == "fwd" and not share.held and share.lanes > 1 else 0,
    )  # fmt: skip
    local = share.lanes * share.at_once
    at_once = share.width if share.lies == "across" else share.at_once
    items = ceil_div(rows.rows, at_once * share.rounds) * local
    sizes = map(np.int32, (rows.inner, rows.rows, share.rounds, share.held))
    pointers = [Pointer(dtype.item_bytes)] * (2 if direction == "fwd" else 3)
    arguments: list[Argument] = [*pointers, *sizes]
    return prepare(rows.device, source, "softmax_rows", (items,), arguments, (local,))
