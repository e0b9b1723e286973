"""Sorting of dense rows by work-groups: blocks in local memory, then tiles of merged runs.

A block is sorted by registers first, and then merged in pairs in local memory. Runs that are longer
than a block are merged in pairs, a launch for every doubling: each group finds the split of its
tile (Odeh et al. 2012, "Merge path"), and merges it in local memory.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.row_blocks import BLOCK, GROUP, SHARE, fit, places
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

MOST_BYTES = 12
"""Local memory of an item, at most: a key of 8 bytes and a position."""
ROOM = BLOCK + BLOCK // 32 + 1
"""Places of a block in local memory."""
MOST_ITEMS = 2**31 - 1
"""Of a row: positions are int."""


def serves(limits: Limits, size: int) -> bool:
    """Say whether groups sort rows of `size` items on a device."""
    return size <= MOST_ITEMS and fit(limits, ROOM * MOST_BYTES + 8)


def first(rows: Tensor, count: int, descending: bool) -> tuple[Tensor, Tensor]:
    """Return the first items of each sorted row, and where they were, as int64.

    Each launch leaves the first items of every block.

    Args:
        rows: [rows, size], dense, with items.
        count: items of a row, less than `BLOCK`, and at most `size`.
        descending: the order.
    """
    order: Tensor | None = None
    while True:
        size = rows.shape[1]
        blocks = ceil_div(size, BLOCK)
        written = count if blocks == 1 else (blocks - 1) * count + min(count, size % BLOCK or BLOCK)
        kind = torch.int64 if blocks == 1 else torch.int32
        keys, made = rows.new_empty((len(rows), written)), _places(rows, written, kind)
        launch = _blocks(rows, descending, kind, count, written, given=order is not None)
        given = () if order is None else (order.data_ptr(),)
        launch(rows.data_ptr(), *given, keys.data_ptr(), made.data_ptr())
        if blocks == 1:
            return keys, made
        rows, order = keys, made


def sorted_blocks(flat: Tensor) -> Tensor | None:
    """Return the items of [size] with each block in order; None: the device has no groups.

    Args:
        flat: dense, with items.
    """
    size, device = len(flat), flat.get_device()
    if not serves(devices()[device].limits, size):
        return None
    keys, order = torch.empty_like(flat), torch.empty_like(flat, dtype=torch.int32)
    launch = _blocks(flat.view(1, size), False, order.dtype, BLOCK, size)
    launch(flat.data_ptr(), keys.data_ptr(), order.data_ptr())
    return keys


def sorted_rows(rows: Tensor, descending: bool) -> tuple[Tensor, Tensor]:
    """Return the sorted rows, and where their items were, as int64.

    Args:
        rows: [rows, size], dense, with items.
        descending: the order.
    """
    count, size = rows.shape
    device, dtype = rows.get_device(), rows.dtype
    wide, narrow = torch.int64, torch.int32
    keys, order = torch.empty_like(rows), torch.empty_like(rows, dtype=wide)
    if size <= BLOCK:
        launch = _blocks(rows, descending, wide, BLOCK, size)
        launch(rows.data_ptr(), keys.data_ptr(), order.data_ptr())
        return keys, order
    blocks = ceil_div(size, BLOCK)
    launch = _blocks(rows, descending, narrow, BLOCK, size)
    runs, found = torch.empty_like(rows), torch.empty_like(rows, dtype=narrow)
    launch(rows.data_ptr(), runs.data_ptr(), found.data_ptr())
    spare = (torch.empty_like(runs), torch.empty_like(found)) if size > 2 * BLOCK else (keys, order)
    length = BLOCK
    while length < size:
        is_last = 2 * length >= size
        made, kind = ((keys, order), wide) if is_last else (spare, narrow)
        launch = _tiles(device, dtype, descending, kind, count, size, length, blocks)
        launch(*(part.data_ptr() for part in (runs, found, *made)))
        (runs, found), spare = made, (runs, found)
        length *= 2
    return keys, order


def _places(rows: Tensor, size: int, kind: torch.dtype) -> Tensor:
    return torch.empty((len(rows), size), dtype=kind, device=rows.device)


def _blocks(
    rows: Tensor,
    descending: bool,
    order: torch.dtype,
    kept: int,
    written: int,
    given: bool = False,
) -> KernelLaunch:
    """Prepare sorting blocks of `rows`, of which the first `kept` items go to rows of `written`."""
    count, size = rows.shape
    device, dtype = rows.get_device(), rows.dtype
    return _prepared_blocks(device, dtype, descending, order, given, count, size, kept, written)


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared_blocks(
    device: int,
    dtype: torch.dtype,
    descending: bool,
    order: torch.dtype,
    given: bool,
    rows: int,
    size: int,
    kept: int,
    written: int,
) -> KernelLaunch:
    padded, blocks = places(size), ceil_div(size, BLOCK)
    item, numbers = Pointer(dtype.itemsize), map(np.int32, (size, padded, blocks, kept, written))
    arguments: list[Argument] = [item, *[Pointer(4)] * given, item, Pointer(order.itemsize)]
    groups = ceil_div(rows, BLOCK // padded) * blocks
    source = _source("blocks", dtype, descending, order, given)
    return _launch(device, "blocks", source, groups, [*arguments, np.int64(rows), *numbers])


@lru_cache(maxsize=MOST_LAUNCHES)
def _tiles(
    device: int,
    dtype: torch.dtype,
    descending: bool,
    order: torch.dtype,
    rows: int,
    size: int,
    length: int,
    tiles: int,
) -> KernelLaunch:
    """Prepare merging pairs of runs of `length` items; a row has `tiles` groups."""
    item = Pointer(dtype.itemsize)
    numbers = map(np.int32, (size, length, tiles))
    source = _source("tiles", dtype, descending, order, False)
    arguments: list[Argument] = [item, Pointer(4), item, Pointer(order.itemsize), *numbers]
    return _launch(device, "tiles", source, rows * tiles, arguments)


def _source(
    kind: str, dtype: torch.dtype, descending: bool, order: torch.dtype, given: bool
) -> str:
    return rendered(
        "sort_groups", package="ocl_backend", kind=kind, dtype=dtype_of(dtype),
        descending=descending, group=GROUP, share=SHARE, given=given,
        order="long" if order is torch.int64 else "int",
    )  # fmt: skip


def _launch(
    device: int, kind: str, source: str, groups: int, arguments: list[Argument]
) -> KernelLaunch:
    return prepare(device, source, f"sort_{kind}", (groups * GROUP,), arguments, (GROUP,))
