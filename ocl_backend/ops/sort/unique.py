"""Distinct items and rows: those of a sorted tensor, or of runs as they come.

Sorting is `sorting`'s. Every form waits for the number of distinct ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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
    """Return the distinct items in order, each item's place among them, and their counts."""
    flat, order = x.reshape(-1).sort()
    starts, ranks, counts = _runs(flat.unsqueeze(1))
    inverse = torch.empty_like(ranks).scatter_(0, order, ranks).view(x.shape)
    return flat[starts], inverse, counts


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Unique:
    """Return the first of every run of equal items, or of equal slices along `dim`."""
    if dim is not None:
        return unique_dim_consecutive(x, dim)
    flat = x.reshape(-1)
    starts, runs, counts = _runs(flat.unsqueeze(1))
    return flat[starts], runs.view(x.shape), counts


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
