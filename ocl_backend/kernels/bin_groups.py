"""Counts of items by bins, or sums of their weights, in tables of a GPU's local memory.

Each work-group has a table for a stretch of the items, and the tables are added up. Its work-items
add to the table atomically; few bins have several tables, so that neighbours seldom meet. Counts in
more bins than a table has are added to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of, encode
from ocl_backend.kernels.row_blocks import GROUP, fit
from ocl_backend.kernels.vectors import in_type
from ocl_backend.runtime.launch import (
    MOST_LAUNCHES,
    Argument,
    KernelLaunch,
    Pointer,
    Varying,
    prepare,
)
from oclgen.limits import KIB, Limits
from oclgen.plan import WARP, ceil_div
from oclgen.render import rendered

TABLE_BYTES = 16 * KIB
"""Local memory of a group: more of it would keep other groups away."""
AT_ONCE = 4
"""Items that a work-item reads before it looks at the first one."""
GROUPS_PER_UNIT = 8
"""Work-groups for each compute unit: as many as its work-items are."""
ATOMIC_DOUBLES = {"cl_khr_fp64", "cl_khr_int64_base_atomics"}
MOST_ITEMS = 2**31 - 1
"""Of a call: counts are added in 32 bits."""


class Form(NamedTuple):
    """What the kernel's text depends on; the template's legend explains it."""

    x: torch.dtype
    edges: torch.dtype | None
    weight: torch.dtype | None
    value: str
    find: str
    room: int


def binned_by_groups(
    given: Sequence[Tensor], has_edges: bool, value: str, find: str, bins: int,
    low: float, high: float, limits: Limits,
) -> Tensor | None:  # fmt: skip
    """Return counts by bins, int64 [bins], or sums of weights in those' dtype.

    Args:
        given: dense items, perhaps the bins' edges, and perhaps the items' weights.
        has_edges: whether there are edges.
        value: type of an item in registers.
        find: statements that give an item's bin as `found`, `bins` where it counts nowhere.
        bins: how many.
        low: a number that `find` uses.
        high: another one.
        limits: of the device.

    Returns:
        None where there are no such groups: weights of other dtypes, in more bins than a table has,
        or to be added in one order.
    """
    items = given[0]
    weight = given[-1] if len(given) > 1 + has_edges else None
    count, device = items.numel(), items.get_device()
    room = _room(bins, weight, limits)
    if not count or count > MOST_ITEMS or not fit(limits, TABLE_BYTES) or room is None:
        return None
    parts = max(1, min(GROUPS_PER_UNIT * limits.compute_units, count // max(4 * GROUP, 2 * room)))
    sums = torch.int32 if weight is None else weight.dtype
    if room:
        total = torch.empty(parts, bins, dtype=sums, device=items.device)
    else:
        total = torch.zeros(1, bins, dtype=torch.int64, device=items.device)
    edges = given[1].dtype if has_edges else None
    form = Form(items.dtype, edges, None if weight is None else weight.dtype, value, find, room)
    run = _prepared(device, form, count, parts)
    ends = encode(value, low), encode(value, high)
    run(*(tensor.data_ptr() for tensor in given), total.data_ptr(), bins, *ends)
    return total.sum(0, dtype=torch.int64 if weight is None else sums) if room else total[0]


def _room(bins: int, weight: Tensor | None, limits: Limits) -> int | None:
    """Return the places of a table, 0 for none, or None where no kernel serves."""
    item_bytes = 4 if weight is None else weight.itemsize
    room = 1 << (bins - 1).bit_length()
    fits = room * item_bytes <= TABLE_BYTES
    if weight is None:
        return room if fits else 0
    if not fits or weight.dtype not in (torch.float32, torch.float64):
        return None
    if weight.dtype is torch.float64 and not limits.extensions >= ATOMIC_DOUBLES:
        return None
    return None if torch.are_deterministic_algorithms_enabled() else room


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(device: int, form: Form, count: int, parts: int) -> KernelLaunch:
    """Prepare a launch of `parts` groups over `count` items."""
    x, weight = dtype_of(form.x), dtype_of(form.weight) if form.weight else None
    edges = dtype_of(form.edges) if form.edges else None
    sum_bytes = form.weight.itemsize if form.weight else 4
    find = form.find.replace("LOAD_edges(", "EDGE(")
    head = f"#define EDGE(at) ({edges.load('edges_data', '(at)')})\n" if edges else ""
    replicas = min(WARP, max(1, TABLE_BYTES // (max(form.room, 1) * sum_bytes)))
    text = head + rendered(
        "bin_groups", package="ocl_backend", x=x, weight=weight, value=form.value, edges=edges,
        find=in_type(find, form.value), room=form.room, replicas=replicas, group=GROUP,
        at_once=AT_ONCE,
    )  # fmt: skip
    end = Varying("float" if form.value == "float" else "long")
    given = [each.item_bytes for each in (x, edges, weight) if each]
    pointers = [Pointer(size) for size in (*given, sum_bytes if form.room else 8)]
    share = ceil_div(count, parts)
    numbers: list[Argument] = [Varying("long"), end, end, np.int64(count), np.int64(share)]
    arguments = [*pointers, *numbers]
    return prepare(device, text, "bin_groups", (parts * GROUP,), arguments, (GROUP,))
