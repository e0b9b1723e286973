"""The iteration space of elementwise kernels: broadcast, ordered and collapsed dimensions.

Pure arithmetic on sizes and strides, in items; no tensor, no device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

Sizes = Sequence[int]


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Collapsed dimensions, outermost first; `strides[i]` are operand i's, one per dimension."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def inner(self) -> int:
        """Items along the innermost dimension."""
        return self.sizes[-1]

    @property
    def rows(self) -> int:
        """How often the innermost dimension is walked."""
        return prod(self.sizes[:-1])

    @property
    def reach(self) -> int:
        """The largest item index or count any operand needs: what an index type must hold."""
        spans = (
            sum((size - 1) * abs(stride) for size, stride in zip(self.sizes, strides, strict=True))
            for strides in self.strides
        )
        return max(prod(self.sizes), *spans)


def collapse(shape: Sizes, strides: Sequence[Sizes], lead: int = 0) -> Dimensions:
    """Return the fewest dimensions that walk `shape` with every operand's `strides`.

    Dimensions are ordered by the strides of operand `lead`, ties by the others': the order in
    which that operand lies in memory, so a dense channels-last tensor is walked as it lies.

    Args:
        shape: any rank; dimensions of one item are dropped.
        strides: of each operand, in items.
        lead: operand whose strides order the dimensions, ties by the others': the order in which it
            lies in memory, so a dense channels-last tensor is walked as it lies.
    """
    dims = [(size, *steps) for size, *steps in zip(shape, *strides, strict=True) if size != 1]
    dims.sort(key=lambda dim: [abs(dim[1 + lead]), *map(abs, dim[1:])], reverse=True)
    columns = list(zip(*merge(dims), strict=True)) or [(1,)] + [(0,)] * len(strides)
    return Dimensions(columns[0], tuple(columns[1:]))


def with_long_rows(dims: Dimensions, least: int) -> Dimensions:
    """Return the dimensions with the longest one innermost where rows are short and lie apart.

    Processors walk a row by vectors. If an operand's items lie apart along a row of a few items,
    those along the longest dimension are as good lanes, and need fewer divisions.

    Args:
        dims: outermost first.
        least: items of a row that is walked as it is.
    """
    longest = max(range(len(dims.sizes)), key=dims.sizes.__getitem__)
    lie_apart = any(steps[-1] not in (0, 1) for steps in dims.strides)
    if not lie_apart or dims.inner >= least or dims.sizes[longest] < 4 * least:
        return dims
    order = [d for d in range(len(dims.sizes)) if d != longest] + [longest]

    def ordered(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(numbers[d] for d in order)

    return Dimensions(ordered(dims.sizes), tuple(map(ordered, dims.strides)))


def merge(dims: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Join neighbours that all operands walk as one dimension, in the order that they have.

    Args:
        dims: size and each operand's stride of every dimension, outermost first.
    """
    merged: list[tuple[int, ...]] = []
    for dim in dims:
        if merged and _continues(merged[-1], dim):
            merged[-1] = (merged[-1][0] * dim[0], *dim[1:])
        else:
            merged.append(dim)
    return merged


def _continues(outer: tuple[int, ...], inner: tuple[int, ...]) -> bool:
    """Whether walking `inner` to its end leads every operand to the next item of `outer`."""
    return all(a == inner[0] * b for a, b in zip(outer[1:], inner[1:], strict=True))


def broadcast_shapes(*shapes: Sizes) -> tuple[int, ...]:
    """Return the common shape of tensors that are walked together.

    Raises:
        RuntimeError: two sizes of a dimension differ and neither is 1.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for dim, size in enumerate(shape, start=rank - len(shape)):
            if size != 1 and result[dim] not in (1, size):
                raise RuntimeError(
                    f"The size of tensor a ({result[dim]}) must match the size of tensor b ({size})"
                    f" at non-singleton dimension {dim}, or be 1: shapes "
                    f"{', '.join(str(tuple(s)) for s in shapes)}"
                )
            result[dim] = size if size != 1 else result[dim]
    return tuple(result)


def broadcast_strides(shape: Sizes, own: Sizes, strides: Sizes) -> tuple[int, ...]:
    """Return the strides that let a tensor of sizes `own` be walked as `shape` (0: repeated).

    Args:
        shape: what is walked; its last dimensions are those of `own`.
        own: the tensor's sizes.
        strides: the tensor's, in items.

    Raises:
        RuntimeError: the tensor does not broadcast to `shape`.
    """
    missing = len(shape) - len(own)
    if missing < 0 or any(n not in (1, m) for n, m in zip(own, shape[missing:], strict=True)):
        raise RuntimeError(f"a tensor {[*own]} does not broadcast to {[*shape]}")
    steps = (0 if size == 1 else stride for size, stride in zip(own, strides, strict=True))
    return (*(0,) * missing, *steps)


def axis_of(dim: int, rank: int) -> int:
    """Return the dimension that `dim` names in a tensor of `rank` dimensions, counted from 0.

    Raises:
        IndexError: there is none; of a tensor without dimensions 0 and -1 name its one item.
    """
    size = max(rank, 1)
    if not -size <= dim < size:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got "
            f"{dim})"
        )
    return dim % size


def contiguous_strides(shape: Sizes) -> tuple[int, ...]:
    """Return the strides of a dense row-major tensor."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * max(shape[dim + 1], 1)
    return tuple(strides)


@lru_cache(maxsize=4096)
def iterated_strides(shape: Sizes, operands: tuple[Sizes, ...]) -> tuple[int, ...]:
    """Return the strides of a result that lies as its operands do, by torch's `TensorIterator`.

    Dimensions are sorted by insertion: the first operand that moves along both of two decides.

    Args:
        shape: of the result.
        operands: how each moves along its dimensions, in items; 0: it does not.
    """
    order = list(reversed(range(len(shape))))  # the innermost dimension first
    for place in range(1, len(order)):
        at = place
        for before in range(place - 1, -1, -1):
            later = _lies_outside(order[before], order[at], shape, operands)
            if later is None:
                continue
            if not later:
                break
            order[before], order[at] = order[at], order[before]
            at = before
    strides, step = [0] * len(shape), 1
    for dim in order:
        strides[dim], step = step, step * max(shape[dim], 1)
    return tuple(strides)


def _lies_outside(dim: int, other: int, shape: Sizes, operands: tuple[Sizes, ...]) -> bool | None:
    """Say whether `dim` moves in longer steps than `other`; None: no operand decides."""
    for steps in operands:
        if steps[dim] and steps[other]:
            if steps[dim] != steps[other]:
                return steps[dim] > steps[other]
            if shape[dim] > shape[other]:
                return True
    return None
