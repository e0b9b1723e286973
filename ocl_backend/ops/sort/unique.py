"""Distinct items and rows: those of a sorted tensor, or of runs as they come.

Sorting is `sorting`'s. Every form waits for the number of distinct ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.gathered_rows import BITS
from ocl_backend.kernels.row_blocks import BLOCK
from ocl_backend.kernels.selected_groups import select, serve
from ocl_backend.ops.sort.sort_groups import sorted_blocks
from oclgen.opencl.device import devices

MANY_BLOCKS = 8
"""Blocks from which on their distinct items are worth being counted, and the part of all items that
they must not be more than to be sorted instead."""

Unique = tuple[Tensor, Tensor, Tensor]
"""The distinct items, for each item its place among them, and how often each occurs."""


def _runs(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return where runs of equal rows of [n, k] begin, each row's run, and the runs' lengths."""
    first = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    first[1:] = (rows[1:] != rows[:-1]).any(1)
    starts = first.nonzero().squeeze(1)
    ends = torch.cat([starts[1:], starts.new_full((min(1, len(rows)),), len(rows))])
    return starts, first.cumsum(0) - 1, ends - starts


def unique(
    x: Tensor,
    sorted: bool = True,  # noqa: A002 (the schema's name)
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Unique:
    """Return the distinct items in order, each item's place among them, and their counts.

    As torch's own devices, leave empty what is not asked for.
    """
    flat = x.reshape(-1)
    none = torch.empty(0, dtype=torch.int64, device=x.device)
    if not (return_inverse or return_counts) and _have_groups(flat):
        return _distinct(flat), none, none
    keys, order = flat.sort()
    if not _have_groups(flat):
        starts, ranks, counts = _runs(keys.unsqueeze(1))
        inverse = torch.empty_like(ranks).scatter_(0, order, ranks).view(x.shape)
        return keys[starts], inverse, counts
    items, positions = select(keys, "change", keys, keys.shape)
    assert items is not None and positions is not None  # both were asked for
    inverse = _places(positions[0], order).view(x.shape) if return_inverse else none
    return items, inverse, _lengths(positions[0], len(keys)) if return_counts else none


def _have_groups(flat: Tensor) -> bool:
    """Say whether groups of a GPU select the first items of runs."""
    limits = devices()[flat.get_device()].limits
    return flat.numel() > 0 and serve(limits) and flat.itemsize in BITS and not flat.is_complex()


def _distinct(flat: Tensor) -> Tensor:
    """Return the distinct items in order: of blocks first, where most items occur often."""
    if len(flat) > MANY_BLOCKS * BLOCK and (keys := sorted_blocks(flat)) is not None:
        kept = select(keys, "change", keys, most=len(flat) // MANY_BLOCKS).items
        if kept is not None:
            return _distinct(kept)
    keys = flat.sort()[0]
    items = select(keys, "change", keys).items
    return keys if items is None else items


def _lengths(starts: Tensor, count: int) -> Tensor:
    """Return the lengths of runs of `count` items by where they begin."""
    return torch.diff(starts, append=starts.new_full((1,), count))


def _places(starts: Tensor, order: Tensor) -> Tensor:
    """Return for each item its run: `order` says where the sorted items were."""
    out = torch.empty_like(order)
    steps = {"position": (1,), "starts": (0,), "out": (0,)}
    launch(PLACES, order.shape, (starts, order, out, len(starts)), steps)
    return out


PLACES = Kernel(
    "run_places",
    "long",
    (
        Operand("position", role="position"),
        Operand("starts", torch.int64, "address"),
        Operand("order", torch.int64),
        Operand("out", torch.int64, "address"),
        Scalar("runs", "long"),
    ),
    """\
long low = 0, high = runs;
while (low < high) {
    const long middle = (low + high) / 2;
    if (LOAD_starts(middle) > position)
        high = middle;
    else
        low = middle + 1;
}
STORE_out(order, low - 1);
""",
    scalar_only=True,
)


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Unique:
    """Return the first of every run of equal items, or of equal slices along `dim`."""
    if dim is not None:
        return unique_dim_consecutive(x, dim)
    flat = x.reshape(-1)
    none = torch.empty(0, dtype=torch.int64, device=x.device)
    if not return_inverse and _have_groups(flat):
        items, positions = select(flat, "change", flat, flat.shape if return_counts else ())
        assert items is not None  # they were asked for
        counts = none if positions is None else _lengths(positions[0], len(flat))
        return items, none, counts
    starts, places, counts = _runs(flat.unsqueeze(1))
    return flat[starts], places.view(x.shape), counts


def unique_dim_consecutive(
    x: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> Unique:
    """Return the first of every run of equal slices along `dim`, slices' runs, and lengths."""
    starts, runs, counts = _runs(_slices(x, dim))
    return x.index_select(dim, starts), runs, counts


def unique_dim(
    x: Tensor,
    dim: int,
    sorted: bool = True,  # noqa: A002 (the schema's name)
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Unique:
    """Return the distinct slices along `dim` in order, each slice's place, and their counts."""
    rows = _slices(x, dim)
    order = torch.arange(len(rows), device=x.device)
    for column in reversed(range(rows.shape[1])):  # stable sorts from the last column to the first
        order = order[rows[order, column].argsort(stable=True)]
    starts, ranks, counts = _runs(rows[order])
    inverse = torch.empty_like(ranks).scatter_(0, order, ranks)
    return x.index_select(dim, order[starts]), inverse, counts


def _slices(x: Tensor, dim: int) -> Tensor:
    """Return the slices along `dim` as rows.

    Raises:
        RuntimeError: they have no items, so that nothing tells them apart.
    """
    if 0 in (*x.shape[:dim], *x.shape[dim:][1:]):
        raise RuntimeError(f"unique: slices of {[*x.shape]} along dimension {dim} have no items")
    rows = x.movedim(dim, 0)
    return rows.reshape(len(rows), rows.numel() // max(len(rows), 1))


OPERATORS: dict[str, Callable[..., Any]] = {
    "_unique": lambda x, *options: unique(x, *options)[:2],
    "_unique2": unique,
    "unique_consecutive": unique_consecutive,
    "unique_dim": unique_dim,
    "unique_dim_consecutive": unique_dim_consecutive,
}
"""Implementations by aten name."""
