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


def first_of_blocks(rows: Tensor, count: int, descending: bool) -> tuple[Tensor, Tensor]:
    """Return the first items of each row's sorted blocks, and where they were, as int64.

    Args:
        rows: [rows, size], dense, with items.
        count: of a block's first items, at most `BLOCK`; all where it has fewer.
        descending: the order.

    Returns:
        Both are [rows, items]; what comes first in a row is among its items.
    """
    size = rows.shape[1]
    if size <= BLOCK:
        keys, order = sorted_rows(rows, descending)
        return keys[:, :count], order[:, :count]
    whole = size // BLOCK
    keys, order = torch.empty_like(rows), torch.empty_like(rows, dtype=torch.int64)
    numbers = len(rows), size, BLOCK, ceil_div(size, BLOCK)
    launch = _prepared(rows.get_device(), "blocks", rows.dtype, descending, torch.int64, *numbers)
    launch(rows.data_ptr(), keys.data_ptr(), order.data_ptr())
    found = []
    for part in (keys, order):
        firsts = part[:, : whole * BLOCK].view(-1, whole, BLOCK)[:, :, :count].flatten(1)
        found.append(torch.cat((firsts, part[:, whole * BLOCK :][:, :count]), 1))
    return found[0], found[1]


def sorted_blocks(flat: Tensor) -> Tensor | None:
    """Return the items of [size] with each block in order; None: the device has no groups.

    Args:
        flat: dense, with items.
    """
    size, device = len(flat), flat.get_device()
    if not serves(devices()[device].limits, size):
        return None
    numbers = 1, size, min(BLOCK, places(size)), ceil_div(size, BLOCK)
    keys, order = torch.empty_like(flat), torch.empty_like(flat, dtype=torch.int32)
    launch = _prepared(device, "blocks", flat.dtype, False, order.dtype, *numbers)
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
        launch = _prepared(device, "blocks", dtype, descending, wide, count, size, places(size), 1)
        launch(rows.data_ptr(), keys.data_ptr(), order.data_ptr())
        return keys, order
    blocks = ceil_div(size, BLOCK)
    launch = _prepared(device, "blocks", dtype, descending, narrow, count, size, BLOCK, blocks)
    runs, found = torch.empty_like(rows), torch.empty_like(rows, dtype=narrow)
    launch(rows.data_ptr(), runs.data_ptr(), found.data_ptr())
    spare = (torch.empty_like(runs), torch.empty_like(found)) if size > 2 * BLOCK else (keys, order)
    length = BLOCK
    while length < size:
        is_last = 2 * length >= size
        made, kind = ((keys, order), wide) if is_last else (spare, narrow)
        launch = _prepared(device, "tiles", dtype, descending, kind, count, size, length, blocks)
        launch(*(part.data_ptr() for part in (runs, found, *made)))
        (runs, found), spare = made, (runs, found)
        length *= 2
    return keys, order


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int,
    kind: str,
    dtype: torch.dtype,
    descending: bool,
    order: torch.dtype,
    rows: int,
    size: int,
    length: int,
    blocks: int,
) -> KernelLaunch:
    """Prepare a launch of `kind`; `length`: of a padded row or a run, `blocks`: groups of a row."""
    item = dtype_of(dtype)
    source = rendered(
        "sort_groups", package="ocl_backend", kind=kind, dtype=item, descending=descending,
        group=GROUP, share=SHARE, order="long" if order is torch.int64 else "int",
    )  # fmt: skip
    pointers = [Pointer(item.item_bytes), Pointer(item.item_bytes), Pointer(order.itemsize)]
    at_once = 1
    if kind == "blocks":
        at_once = BLOCK // length
        numbers: list[Argument] = [np.int64(rows), *map(np.int32, (size, length, blocks))]
    else:
        pointers.insert(1, Pointer(4))
        numbers = list(map(np.int32, (size, length, blocks)))
    groups = ceil_div(rows, at_once) * blocks
    arguments: list[Argument] = [*pointers, *numbers]
    return prepare(device, source, f"sort_{kind}", (groups * GROUP,), arguments, (GROUP,))
