"""Padding by reflected items or by those at the border, in one to three dimensions, and gradients.

Padding by a constant and by the other end are torch's compositions of copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import ge
from typing import Any

from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.kernels import axis_taps
from ocl_backend.kernels.axis_sums import Along, axis_sums
from ocl_backend.kernels.memory_formats import like_image


def padded(x: Tensor, padding: Sequence[int], *, name: str) -> Tensor:
    """Return x [batch?, channels, ...] padded along its last dimensions.

    Args:
        x: any dtype.
        padding: items before and after, of the last dimension first.
        name: of the operator, which says how.

    Raises:
        RuntimeError: x is empty, of other dimensions, or too small for the reflection.
    """
    rank = len(padding) // 2
    _check(x.shape, padding, name)
    pairs = zip(x.shape[-rank:], _pairs(padding), strict=True)
    sizes = (size + before + after for size, (before, after) in pairs)
    y = like_image((*x.shape[:-rank], *sizes), x, rank)
    return axis_sums(x, _along(x.shape, padding, name), y)


def padded_backward(grad: Tensor, x: Tensor, padding: Sequence[int], *, name: str) -> Tensor:
    """Return the gradient of x: the sums of the gradients of each item's copies."""
    _check(x.shape, padding, name)
    along = _along(x.shape, padding, name)
    grad_x = like_image(x.shape, x, len(padding) // 2)
    return axis_sums(grad, tuple(each.gradient() for each in along), grad_x)


def _pairs(padding: Sequence[int]) -> list[tuple[int, int]]:
    """Return the items before and after each dimension, the first one first."""
    return [(padding[at], padding[at + 1]) for at in range(len(padding) - 2, -1, -2)]


def _along(shape: Sequence[int], padding: Sequence[int], name: str) -> tuple[Along, ...]:
    reflects = name.startswith("reflection")
    pairs = _pairs(padding)
    return tuple(
        Along(axis_taps.padded, (size, before, after, reflects))
        for size, (before, after) in zip(shape[-len(pairs) :], pairs, strict=True)
    )


def _check(shape: Sequence[int], padding: Sequence[int], name: str) -> None:
    """Raise RuntimeError where torch's kernels do."""
    pairs = _pairs(padding)
    rank, sizes = len(pairs), shape[-len(pairs) :]
    if len(shape) not in (rank + 1, rank + 2) or 0 in (*sizes, shape[-rank - 1]):
        raise RuntimeError(
            f"{name}: expected {rank + 1}D or {rank + 2}D input, empty in no dimension "
            f"but the batch's, got {[*shape]}"
        )
    if name.startswith("reflection") and any(map(ge, map(max, pairs), sizes)):
        raise RuntimeError(f"{name}: padding {[*padding]} must be less than the sizes {[*sizes]}")
    if any(size + sum(pair) < 1 for size, pair in zip(sizes, pairs, strict=True)):
        raise RuntimeError(f"{name}: padding {[*padding]} of {[*sizes]} leaves no items")


OPERATORS: dict[str, Callable[..., Any]] = {
    f"{kind}_pad{rank}d{suffix}": operator
    for kind in ("reflection", "replication")
    for rank in (1, 2, 3)
    for forward in (partial(padded, name=f"{kind}_pad{rank}d"),)
    for backward in (partial(padded_backward, name=f"{kind}_pad{rank}d"),)
    for suffix, operator in (
        ("", forward),
        (".out", into(forward)),
        ("_backward", backward),
        ("_backward.grad_input", into(backward, "grad_input")),
    )
}
"""Implementations by aten name."""
