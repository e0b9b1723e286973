"""Operators that move items along dimensions, each by one launch: rolls and gradients of slices.

A kernel walks the result and computes where its items come from. If nothing moves along the last
dimension, it walks vectors along that dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.gathered_rows import BITS
from ocl_backend.kernels.owners import are_possible
from ocl_backend.ops.reduce.reductions import dims_of
from ocl_backend.ops.tensor.shape import common_format
from oclgen.opencl.device import devices

VECTOR = 4
"""Items that are moved at once, as bits."""
CPU_VECTOR = 16
"""The same on processors."""
FILLED = 4096
"""Items of a gradient from which on a processor fills it before it copies: two launches."""
MANY = 1024
"""Items from which on a processor rolls by copies of blocks: a work-item moves single items."""


def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Move items along `dims` by `shifts`, round the end; without dims the flattened tensor."""
    if not dims:
        return roll(x.reshape(-1), shifts, [0]).view(x.shape)
    cuts = [0] * x.dim()
    if not x.numel():
        return x.clone()
    for shift, dim in zip(shifts, dims, strict=True):
        cuts[dim] = (cuts[dim] - shift) % max(x.shape[dim], 1)
    moved = tuple(axis for axis, cut in enumerate(cuts) if cut)
    if not moved:
        return x.clone()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=common_format([x]))
    numbers = [
        number
        for axis in moved
        for step, size, cut in [(x.stride(axis), x.shape[axis], cuts[axis])]
        for number in (size - cut, cut * step, (cut - size) * step)
    ]
    if x.numel() >= MANY and are_possible(devices()[x.get_device()].limits):
        _copy_blocks(x, out, cuts)
        return out
    items = 1 if x.dim() - 1 in moved else _vector(x, out)
    walk = _Walk(out, items)
    strides = {f"place{i}": walk.place(axis) for i, axis in enumerate(moved)}
    strides |= {"out": walk.over(out.stride()), "self": walk.over(x.stride())}
    kernel = _rolling(BITS.get(x.itemsize, x.dtype), len(moved), items)
    launch(kernel, walk.shape, (out, x, *numbers), strides)
    return out


def _copy_blocks(x: Tensor, out: Tensor, cuts: Sequence[int]) -> None:
    """Copy the blocks that a roll moves as wholes, two along each dimension: by long runs.

    Args:
        x: what is rolled.
        out: of its shape; written.
        cuts: where the item lies, along each dimension, that comes to the front.
    """
    halves = [
        ((0, size - cut, cut), (size - cut, cut, 0))
        for size, cut in zip(x.shape, cuts, strict=True)
    ]
    for block in product(*(pair if pair[1][1] else pair[:1] for pair in halves)):
        to, source = out, x
        for axis, (begin, size, place) in enumerate(block):
            to, source = to.narrow(axis, begin, size), source.narrow(axis, place, size)
        to.copy_(source)


@cache
def _rolling(dtype: torch.dtype, moved: int, items: int) -> Kernel:
    steps = "".join(
        f" + (place{i} < (INDEX)keep{i} ? (INDEX)ahead{i} : (INDEX)behind{i})" for i in range(moved)
    )
    labels = [f"{label}{i}" for i in range(moved) for label in ("keep", "ahead", "behind")]
    many = "S" if items > 1 else ""
    return Kernel(
        "roll",
        dtype_of(dtype).value,
        (
            Operand("out", dtype, "address", items=items),
            Operand("self", dtype, "address", items=items),
            *(Operand(f"place{i}", role="position") for i in range(moved)),
            *(Scalar(label, "long") for label in labels),
        ),
        f"STORE{many}_out(out_at, LOAD{many}_self(self_at{steps}))" + ";" * (items == 1),
        scalar_only=True,
    )


def select_backward(grad: Tensor, input_sizes: Sequence[int], dim: int, index: int) -> Tensor:
    """Return zeros of `input_sizes` with `grad` at `index` of `dim`."""
    (axis,) = dims_of(dim, len(input_sizes))
    size = input_sizes[axis]
    if not -size <= index < size:
        raise IndexError(f"select_backward: index {index} of a dimension of {size}")
    return _placed(grad.unsqueeze(axis), input_sizes, axis, index % size, 1)


def slice_backward(
    grad: Tensor, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Tensor:
    """Return zeros of `input_sizes` with `grad` from `start` of `dim` on, each `step`th."""
    del end  # is where the gradient ends
    (axis,) = dims_of(dim, len(input_sizes))
    size = input_sizes[axis]
    return _placed(grad, input_sizes, axis, min(max(start + size * (start < 0), 0), size), step)


def _placed(grad: Tensor, sizes: Sequence[int], axis: int, start: int, step: int) -> Tensor:
    count = grad.shape[axis]
    part = [*sizes[:axis], count, *sizes[axis + 1 :]]
    if [*grad.shape] != part or (count and start + (count - 1) * step >= sizes[axis]):
        raise RuntimeError(
            f"gradient of a slice: shape {[*grad.shape]} from {start} of dimension {axis} of "
            f"{[*sizes]} with step {step}"
        )
    out = torch.empty(sizes, dtype=grad.dtype, device=grad.device)
    if not grad.numel():
        return out.zero_()
    if out.numel() >= FILLED and are_possible(devices()[grad.get_device()].limits):
        # a processor fills memory and copies runs in less time than a place is compared for each
        place = [slice(None)] * axis + [slice(start, start + (count - 1) * step + 1, step)]
        out.zero_()[tuple(place)].copy_(grad)
        return out
    items = 1 if axis == len(sizes) - 1 else _vector(grad, out)
    walk = _Walk(out, items)
    along = grad.stride(axis)
    steps = [*grad.stride()]
    steps[axis] = 0  # the kernel computes where along it
    strides = {"place": walk.place(axis), "out": walk.over(out.stride()), "grad": walk.over(steps)}
    kernel = _placing(BITS.get(grad.itemsize, grad.dtype), step > 1, items)
    launch(kernel, walk.shape, (out, grad, start, count, step, along), strides)
    return out


@cache
def _placing(dtype: torch.dtype, skips: bool, items: int) -> Kernel:
    many = "S" if items > 1 else ""
    kind = vectors.vector(dtype_of(dtype).value, items)
    from_start = "const INDEX from = place - (INDEX)start;\n"
    item = "const INDEX item = from;\n"
    if skips:
        item = "const INDEX item = from < 0 ? -1 : from % (INDEX)step ? -1 : from / (INDEX)step;\n"
    return Kernel(
        "place_slice",
        dtype_of(dtype).value,
        (
            Operand("out", dtype, "address", items=items),
            Operand("grad", dtype, "address", items=items),
            Operand("place", role="position"),
            *(Scalar(label, "long") for label in ("start", "count", "step", "along")),
        ),
        f"{from_start}{item}"
        f"{kind} value = ({kind})(0);\n"
        "if (item >= 0 && item < (INDEX)count)\n"
        f"    value = LOAD{many}_grad(grad_at + item * (INDEX)along);\n"
        f"STORE{many}_out(out_at, value)" + ";" * (items == 1),
        scalar_only=True,
    )


class _Walk:
    """The items of a result, or vectors of its last dimension."""

    def __init__(self, out: Tensor, items: int) -> None:
        self._items = items
        *rows, last = out.shape or (1,)
        self.shape = (*rows, last // items)

    def over(self, strides: Sequence[int]) -> tuple[int, ...]:
        """Return the steps of an operand from its strides."""
        *rows, last = strides
        return (*rows, last * self._items)

    def place(self, axis: int) -> tuple[int, ...]:
        """Return the steps of the position along a dimension."""
        return tuple(int(d == axis) for d in range(len(self.shape)))


def _vector(x: Tensor, out: Tensor) -> int:
    """Return how many items are moved at once where rows of both tensors are whole vectors."""
    lie = x.stride(-1) == out.stride(-1) == 1
    rows = (x.shape[-1], *x.stride()[:-1], *out.stride()[:-1])
    is_cpu = are_possible(devices()[x.get_device()].limits)
    widths = (CPU_VECTOR, VECTOR) if is_cpu else (VECTOR,)
    if not lie:
        return 1
    return next((width for width in widths if not any(step % width for step in rows)), 1)


OPERATORS: dict[str, Callable[..., Any]] = {
    "roll": roll,
    "select_backward": select_backward,
    "slice_backward": slice_backward,
}
"""Implementations by aten name."""
