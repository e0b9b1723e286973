"""Padding by items of the image, in one to three dimensions, and gradients: a launch each.

The items are reflected, those at the border, or those of the other end. Padding by a constant is
torch's composition of copies, as is what else torch takes of the other end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import ge
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.composite import COMPOSED, are_plain, is_transformed
from ocl_backend.dispatch.outputs import into
from ocl_backend.kernels import axis_taps
from ocl_backend.kernels.axis_sums import Along, axis_sums
from ocl_backend.kernels.memory_formats import like_image
from oclgen.opencl.device import devices

NARROW, MANY = 32, 2**16
"""Items of a row from which on, and items up to which, one kernel is faster on processors than
copies of sides: narrow rows cost it a table's look-up for each item, few items copies' launches."""
WAYS: tuple[axis_taps.Way, ...] = ("reflection", "replication")

_libraries: list[Any] = []


def padded(x: Tensor, padding: Sequence[int], *, name: str, way: axis_taps.Way) -> Tensor:
    """Return x [batch?, channels, ...] padded along its last dimensions.

    Args:
        x: any dtype.
        padding: items before and after, of the last dimension first.
        name: of the operator.
        way: how.

    Raises:
        RuntimeError: x is empty, of other dimensions, or too small for the reflection.
    """
    rank = len(padding) // 2
    _check(x.shape, padding, name)
    y = like_image(_padded_shape(x.shape, padding), x, rank)
    return axis_sums(x, _along(x.shape, padding, way), y)


def padded_backward(
    grad: Tensor, x: Tensor, padding: Sequence[int], *, name: str, way: axis_taps.Way
) -> Tensor:
    """Return the gradient of x: the sums of the gradients of each item's copies."""
    _check(x.shape, padding, name)
    along = _along(x.shape, padding, way)
    grad_x = like_image(x.shape, x, len(padding) // 2)
    return axis_sums(grad, tuple(each.gradient() for each in along), grad_x)


def _pairs(padding: Sequence[int]) -> list[tuple[int, int]]:
    """Return the items before and after each dimension, the first one first."""
    return [(padding[at], padding[at + 1]) for at in range(len(padding) - 2, -1, -2)]


def _padded_shape(shape: Sequence[int], padding: Sequence[int]) -> tuple[int, ...]:
    pairs = _pairs(padding)
    rank = len(pairs)
    return (*shape[:-rank], *(n + a + b for n, (a, b) in zip(shape[-rank:], pairs, strict=True)))


def _along(shape: Sequence[int], padding: Sequence[int], way: axis_taps.Way) -> tuple[Along, ...]:
    pairs = _pairs(padding)
    return tuple(
        Along(axis_taps.padded, (size, before, after, way))
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


def register() -> None:
    """Let `pad_circular` serve torch's operator, which it composes of copies, above autograd."""
    library: Any = torch.library.Library  # torch types neither the class nor its methods
    _libraries.append(library("aten", "IMPL"))
    _libraries[0].impl("_pad_circular", pad_circular, "AutogradPrivateUse1")


def pad_circular(x: Tensor, padding: Sequence[int]) -> Tensor:
    """Return x [batch?, channels, ...] padded by items of the other end, with autograd or without.

    Args:
        x: any dtype.
        padding: items before and after, of the last dimension first.
    """
    learns = torch.is_grad_enabled() and x.requires_grad
    if _is_served(x, padding) and (learns or not _is_copied(x)):
        if learns:
            return _learning(x, tuple(padding))
        return _below_autograd(x, padding)
    composed: Tensor = torch.ops.aten._pad_circular.default._op_dk(COMPOSED, x, padding)
    return composed


def _is_served(x: Tensor, padding: Sequence[int]) -> bool:
    """Say whether one kernel computes a call."""
    rank = len(padding) // 2
    if not are_plain([x]) or x.is_conj() or x.is_neg() or is_transformed():
        return False
    return _wraps_once(x.shape, padding, rank)


def _is_copied(x: Tensor) -> bool:
    """Say whether torch's copies of sides take a device less time than the one kernel."""
    is_narrow = x.shape[-1] < NARROW and x.numel() > MANY
    return is_narrow and devices()[x.get_device()].limits.kind == "cpu"


def _wraps_once(shape: Sequence[int], padding: Sequence[int], rank: int) -> bool:
    """Whether each item is padded by items of the other end, of which there are as many."""
    if not 1 <= rank <= 3 or len(padding) % 2 or len(shape) not in (rank + 1, rank + 2):
        return False
    sizes = zip(shape[-rank:], _pairs(padding), strict=True)
    return 0 not in shape and all(0 <= min(pair) <= max(pair) <= size for size, pair in sizes)


def circular(x: Tensor, padding: Sequence[int]) -> Tensor:
    """Return x as `pad_circular` does, contiguous as torch's is.

    Raises:
        RuntimeError: x is empty, of other dimensions, or smaller than a padding.
    """
    if not _wraps_once(x.shape, padding, len(padding) // 2):
        composed: Tensor = torch.ops.aten._pad_circular.default._op_dk(COMPOSED, x, padding)
        return composed
    return axis_sums(
        x, _along(x.shape, padding, "circular"), x.new_empty(_padded_shape(x.shape, padding))
    )


def _circular_backward(grad: Tensor, shape: Sequence[int], padding: Sequence[int]) -> Tensor:
    """Return the sums of the gradients of each item's copies, of `shape`."""
    along = (each.gradient() for each in _along(shape, padding, "circular"))
    return axis_sums(grad, tuple(along), grad.new_empty(shape))


def _below_autograd(x: Tensor, padding: Sequence[int]) -> Tensor:
    """Return what `circular` does, as a call that is recalled."""
    with torch._C._AutoDispatchBelowAutograd():
        result: Tensor = torch.ops.aten._pad_circular(x, padding)
    return result


class _Circular(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, padding: tuple[int, ...]) -> Tensor:
        ctx.given = x.shape, padding
        return _below_autograd(x, padding)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _learning_backward(grad, *ctx.given), None


class _CircularBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, shape: Sequence[int], padding: tuple[int, ...]) -> Tensor:
        ctx.padding = padding
        return _circular_backward(grad, shape, padding)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return pad_circular(grad, ctx.padding), None, None


_learning: Callable[..., Tensor] = _Circular.apply
_learning_backward: Callable[..., Tensor] = _CircularBackward.apply


OPERATORS: dict[str, Callable[..., Any]] = {
    f"{way}_pad{rank}d{suffix}": operator
    for way in WAYS
    for rank in (1, 2, 3)
    for forward in (partial(padded, name=f"{way}_pad{rank}d", way=way),)
    for backward in (partial(padded_backward, name=f"{way}_pad{rank}d", way=way),)
    for suffix, operator in (
        ("", forward),
        (".out", into(forward)),
        ("_backward", backward),
        ("_backward.grad_input", into(backward, "grad_input")),
    )
}
"""Implementations by aten name."""
OPERATORS["_pad_circular"] = circular
