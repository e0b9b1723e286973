"""Windows of a pooling along a dimension, and the tables of them that kernels read.

Pure arithmetic on sizes; `pooling_2d` and `pooling_tables` compute with the items of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ocl_backend.dispatch.arguments import spread
from ocl_backend.runtime import capture
from ocl_backend.runtime.tables import as_table
from oclgen.problem import output_size

Sizes = tuple[int, ...]


class Bounds(NamedTuple):
    """Along one dimension: windows' first items, what ends them, and what a mean divides by.

    Tensors of int64 on the CPU: a dimension may have millions of windows.
    """

    first: Tensor
    last: Tensor
    divisor: Tensor


class Regular(NamedTuple):
    """Windows of `kernel` items `dilation` apart, `stride` apart from each other."""

    kernel: int
    stride: int
    pad: int = 0
    dilation: int = 1
    count_pad: bool = False

    @property
    def reach(self) -> int:
        """Items from a window's first to its last."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def apart(self) -> bool:
        """Whether no item lies in two windows."""
        return self.reach <= self.stride

    def bounds(self, size: int, out: int) -> Bounds:
        """Return those of `out` windows over `size` items, cut off where the items end."""
        starts = _numbers(out) * self.stride - self.pad
        ends = starts + self.reach
        outside = -starts.clamp(max=0).div(self.dilation, rounding_mode="floor")
        border = self.pad if self.count_pad else 0
        count = ends.clamp(max=size + border) - starts.clamp(min=-border)
        return Bounds(starts + outside * self.dilation, ends.clamp(max=size), count)


def anywhere(size: int, out: int) -> Regular:
    """Return regular windows of which none leaves an item that a later one may meet.

    Gradients of maxima that are added up so serve any windows of `out` over `size` items.
    """
    return Regular(size, 1, size + out)


class Adaptive(NamedTuple):
    """Windows that tile a dimension as evenly as their number allows."""

    dilation: int = 1

    def bounds(self, size: int, out: int) -> Bounds:
        """Return those of `out` windows over `size` items."""
        ends = _numbers(out + 1) * size
        first = ends[:-1] // max(out, 1)
        last = -(-ends[1:] // max(out, 1))
        return Bounds(first, last, last - first)


Windows = tuple[Regular | Adaptive, ...]
"""The windows of a pooling, by dimension."""
Tables = tuple[Tensor, ...]
"""First and last items of the windows along depth, height and width: six tensors of int64 that
broadcast to [planes, d, h, w]."""


def regular(
    rank: int,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    count_pad: bool = False,
) -> tuple[Regular, ...]:
    """Return the windows of torch's arguments; a single number serves all dimensions.

    Args:
        rank: number of dimensions.
        kernel: items of a window.
        stride: distance of windows; none: they lie side by side.
        padding: items that are added at both ends.
        dilation: distance of a window's items.
        count_pad: whether means divide by padding, too.
    """
    numbers = (spread(given, rank) for given in (kernel, stride or kernel, padding, dilation))
    dims = zip(*numbers, strict=True)
    return tuple(Regular(k, s, p, d, count_pad) for k, s, p, d in dims)


@lru_cache(maxsize=1024)
@capture.aside()
def tables(
    device: torch.device, windows: Windows, size: Sizes, out: Sizes, divisor: int = 0
) -> tuple[Tables, Tensor]:
    """Return the tables of windows, and what their means divide by.

    Args:
        device: where the tables lie.
        windows: along each dimension.
        size: items along each.
        out: windows along each.
        divisor: what all means divide by; 0: the window's number of items.

    Returns:
        The tables, depth first, and int64 [*out], or [] where one number serves all.
    """
    dims = [
        along.bounds(items, results)
        for along, items, results in zip(windows, size, out, strict=True)
    ]
    count = torch.ones((), dtype=torch.int64, device="cpu")
    for dim, bounds in enumerate(dims):
        count = count * _along(dim, bounds.divisor)
    counts = torch.full(out, divisor) if divisor else count
    return _on_device(device, dims), as_table(counts.to(device))


def _on_device(device: torch.device, dims: Sequence[Bounds]) -> Tables:
    return tuple(
        as_table(_along(dim, items).to(device))
        for dim, bounds in enumerate(dims)
        for items in (bounds.first, bounds.last)
    )


def _numbers(count: int) -> Tensor:
    """Return 0, 1, ... on the CPU, whichever device is the default one."""
    return torch.arange(count, device="cpu")


def _along(dim: int, numbers: Tensor) -> Tensor:
    """Return the numbers as a tensor of three dimensions of which the others are 1."""
    return numbers.view([-1 if d == dim else 1 for d in range(3)])


def pooled(size: int, windows: Regular, ceil_mode: bool) -> int:
    """Return how many windows there are over `size` items.

    Args:
        size: items along the dimension.
        windows: along it.
        ceil_mode: whether the last window may reach over the end.

    Raises:
        RuntimeError: the padding is more than half a kernel, or there is no window.
    """
    kernel, stride, pad, dilation, _ = windows
    if pad > ((kernel - 1) * dilation + 1) // 2:
        raise RuntimeError(
            "pad should be at most half of effective kernel size, but got "
            f"pad={pad}, kernel_size={kernel} and dilation={dilation}"
        )
    # with ceil_mode the last window may reach over the end, but not begin in the padding after it
    out = output_size(size + (stride - 1 if ceil_mode else 0), kernel, stride, pad, dilation)
    if ceil_mode and (out - 1) * stride >= size + pad:
        out -= 1
    if out < 1:
        raise RuntimeError(
            f"a kernel of {kernel} items does not fit {size} items: output size is too small"
        )
    return out
