"""Positions of items that are selected, and items at such positions, on GPUs: two launches.

Each work-group counts what is selected in its share of the items. The host reads the counts, which
say how large the result is, and each group then adds up those before its own and writes its part.
Where items are put to such positions, nothing waits for the host.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import DType, dtype_of
from ocl_backend.kernels.dimensions import merge
from ocl_backend.kernels.gathered_rows import BITS
from ocl_backend.kernels.row_blocks import BLOCK, GROUP, SHARE, fit
from ocl_backend.runtime.launch import (
    MOST_LAUNCHES,
    Argument,
    KernelLaunch,
    Pointer,
    Varying,
    prepare,
)
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.render import rendered

MOST_PARTS = 2048
"""Shares of the items, at most: a group adds up the counts of those before its own."""

Chosen = Literal["nonzero", "change"]


class Selected(NamedTuple):
    """What was written, None: nothing: copied items, and positions [dimensions, count]."""

    items: Tensor | None
    positions: Tensor | None


class Launches(NamedTuple):
    """What counts, and then selects, by as many work-groups."""

    counts: KernelLaunch
    selects: KernelLaunch
    groups: int


Lies = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""A tensor's dtype, shape and strides."""


class Form(NamedTuple):
    """What the kernels' texts depend on; the template's legend explains it."""

    rule: Chosen
    mask: torch.dtype
    values: torch.dtype | None
    walks: tuple[tuple[str, int], ...]
    positions: int
    number: Literal["uint", "ulong"]
    scatters: bool = False


def serve(limits: Limits) -> bool:
    """Say whether a device has such groups."""
    return fit(limits, 8 * GROUP + 4 * GROUP + 2 * BLOCK)


def select(
    mask: Tensor, rule: Chosen, x: Tensor | None = None, shape: tuple[int, ...] = (),
    most: int | None = None,
) -> Selected:  # fmt: skip
    """Return what is selected, in row-major order; waits for how much it is.

    Args:
        mask: which items are selected by `rule`; of real numbers.
        rule: "nonzero" of an item, or a "change" from the item before it.
        x: of the mask's shape, whose items are copied; of `BITS` bytes each.
        shape: by which positions are taken apart, as many items as the mask; (): of copied items
            none are written.
        most: if more are selected, nothing is written; None: all are.
    """
    many = 0
    if mask.numel():
        found = _launches(mask.get_device(), rule, _lies(mask), x if x is None else _lies(x), shape)
        totals = torch.empty(found.groups, dtype=torch.int32, device=mask.device)
        read = mask.data_ptr(), totals.data_ptr()
        found.counts(*read)
        many = int(totals.cpu().numpy().sum())  # takes less time than torch's sum
    if most is not None and many > most:
        return Selected(None, None)
    kept = None if x is None else x.new_empty(many)
    places = None
    if shape or x is None:
        places = torch.empty((len(shape), many), dtype=torch.int64, device=mask.device)
    if many:
        given = [] if kept is None or x is None else [x.data_ptr(), kept.data_ptr()]
        given += [places.data_ptr(), many] if places is not None and shape else []
        found.selects(*read, *given)
    return Selected(kept, places)


def scatter(x: Tensor, mask: Tensor, source: Tensor) -> None:
    """Write the first items of `source` to x where `mask` is not zero, in row-major order.

    Args:
        x: written; its items have one of `BITS`.
        mask: of x's shape; of real numbers.
        source: dense, not empty, of x's dtype; too few items are a fault of the device.
    """
    if not mask.numel():
        return
    device = mask.get_device()
    found = _launches(device, "nonzero", _lies(mask), _lies(x), (), scatters=True)
    totals = torch.empty(found.groups, dtype=torch.int32, device=mask.device)
    read = mask.data_ptr(), totals.data_ptr()
    found.counts(*read)
    ends = faults.record(device).data_ptr(), source.numel(), faults.NUMBERS["masked_scatter"]
    found.selects(*read, x.data_ptr(), source.data_ptr(), *ends)
    faults.check(device)


def _lies(x: Tensor) -> Lies:
    return x.dtype, x.shape, x.stride()


def _walk(lies: Lies) -> tuple[tuple[int, ...], ...]:
    """Return sizes and strides of the fewest dimensions that walk a tensor in row-major order."""
    dims = [dim for dim in zip(*lies[1:], strict=True) if dim[0] != 1]
    return tuple(merge(dims)) or ((1, 1),)


@lru_cache(maxsize=MOST_LAUNCHES)
def _launches(
    device: int, rule: Chosen, mask: Lies, x: Lies | None, shape: tuple[int, ...],
    scatters: bool = False,
) -> Launches:  # fmt: skip
    """Return the launches of a selection.

    Args:
        device: its index.
        rule: of what is selected.
        mask: how it lies.
        x: how the tensor lies from which, or to which, items are moved; None: none are.
        shape: by which positions are taken apart.
        scatters: whether items are moved to x.
    """
    count = prod(mask[1])
    part = max(1, ceil_div(ceil_div(count, BLOCK), MOST_PARTS)) * BLOCK
    walks = {"mask": _walk(mask)} | ({} if x is None else {"x": _walk(x)})
    bits = None if x is None else BITS[x[0].itemsize]
    ranks = tuple((name, len(walk)) for name, walk in walks.items())
    number: Literal["uint", "ulong"] = "ulong" if count >= 2**31 else "uint"
    form = Form(rule, mask[0], bits, ranks, len(shape), number, scatters)
    lies = tuple(walks.values())
    return Launches(
        _prepared(device, form, lies[:1], (), count, part, False),
        _prepared(device, form, lies, shape, count, part, True),
        ceil_div(count, part),
    )


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, form: Form, walks: tuple[tuple[tuple[int, ...], ...], ...],
    shape: tuple[int, ...], count: int, part: int, selects: bool,
) -> KernelLaunch:  # fmt: skip
    """Prepare a launch that counts items, or `selects` them."""
    mask = dtype_of(form.mask)
    values: DType | None = dtype_of(form.values) if selects and form.values else None
    text = rendered(
        "selected_groups", package="ocl_backend", mask=mask, rule=form.rule,
        walks=form.walks, values=values, positions=form.positions if selects else 0,
        index=form.number, selects=selects, group=GROUP, share=SHARE, scatters=form.scatters,
        helpers=faults.NOTE if selects and form.scatters else "",
    )  # fmt: skip
    number = np.uint64 if form.number == "ulong" else np.uint32
    arguments: list[Argument] = [Pointer(mask.item_bytes), Pointer(4)]
    if values:
        arguments += [Pointer(values.item_bytes)] * 2
        if form.scatters:
            arguments += [Pointer(8), Varying("long"), Varying("long")]
    if selects and shape:
        arguments += [Pointer(8), Varying("long")]
    for walk in walks:
        arguments += [np.int64(step) for _, step in walk]
        arguments += [number(size) for size, _ in walk[1:]]
    arguments += [number(size) for size in shape[1:]]
    arguments += [np.int64(count), np.int64(part)]
    name = "select_items" if selects else "count_selected"
    items = (ceil_div(count, part) * GROUP,)
    return prepare(device, text, name, items, arguments, (GROUP,))
