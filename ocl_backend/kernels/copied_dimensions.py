"""Dimensions that a copy walks: pure arithmetic on sizes and strides, in items."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Dim(NamedTuple):
    """A dimension both tensors walk: its size, and the items from one step to the next."""

    size: int
    source: int
    target: int


def collapse(shape: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]) -> list[Dim]:
    """Return the fewest dimensions that do the copy, from the target's slowest to its fastest.

    Args:
        shape: of both tensors.
        source: strides of what is copied, in items.
        target: strides of where it goes.
    """
    dims = [Dim(*dim) for dim in zip(shape, source, target, strict=True) if dim[0] != 1]
    dims.sort(key=lambda dim: (dim.target, dim.source), reverse=True)
    if not dims:
        return [Dim(1, 0, 0)]
    merged = [dims[0]]
    for outer, inner in pairwise(dims):
        together = (inner.size * inner.source, inner.size * inner.target)
        if (outer.source, outer.target) == together:
            merged[-1] = inner._replace(size=merged[-1].size * inner.size)
        else:
            merged.append(inner)
    return merged


def crossing(dims: Sequence[Dim]) -> tuple[Dim, Dim] | None:
    """Return the fastest dimension of the target and that of the source, if they differ.

    None as well where the target's fastest is broadcast.
    """
    moving = [dim for dim in dims if dim.source]
    a, b = dims[-1], min(moving, key=lambda dim: abs(dim.source), default=dims[-1])
    return None if a is b or a.source == 0 else (a, b)
