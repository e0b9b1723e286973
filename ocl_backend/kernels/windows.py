"""Windows of a pooling along a dimension, and the tables of them that kernels read.

Pure arithmetic on sizes; what is made of the items in a window is `pooling_windows`'s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ocl_backend.ops.linear.matmul import resized

Sizes = tuple[int, ...]


class Windows(NamedTuple):
    """Along one dimension: windows' first items, what ends them, and what a mean divides by."""

    first: Sizes
    last: Sizes
    divisor: Sizes


class Regular(NamedTuple):
    """Windows of `kernel` items `dilation` apart, `stride` apart from each other."""

    kernel: int
    stride: int
    pad: int = 0
    dilation: int = 1
    count_pad: bool = False

    def windows(self, size: int, out: int) -> Windows:
        """Return `out` windows over `size` items, cut off where those end."""
        starts = [o * self.stride - self.pad for o in range(out)]
        ends = [start + (self.kernel - 1) * self.dilation + 1 for start in starts]
        first = [start + -(min(start, 0) // self.dilation) * self.dilation for start in starts]
        last = [min(end, size) for end in ends]
        border = self.pad if self.count_pad else 0
        count = [min(b, size + border) - max(a, -border) for a, b in zip(starts, ends, strict=True)]
        return Windows(tuple(first), tuple(last), tuple(count))


class Adaptive(NamedTuple):
    """Windows that tile a dimension as evenly as their number allows."""

    dilation: int = 1

    def windows(self, size: int, out: int) -> Windows:
        """Return `out` windows over `size` items."""
        first = tuple(o * size // out for o in range(out))
        last = tuple(-(-(o + 1) * size // out) for o in range(out))
        return Windows(first, last, tuple(b - a for a, b in zip(first, last, strict=True)))


Kind = Regular | Adaptive
Tables = tuple[Tensor, ...]
"""First and last items of the windows along depth, height and width: six tensors of int64 that
broadcast to [planes, d, h, w]."""


@lru_cache(maxsize=1024)
def tables(device: torch.device, kinds: tuple[Kind, ...], size: Sizes, out: Sizes) -> Tables:
    """Return the tables of windows over `size` items, depth first, and their divisors' product."""
    dims = zip(kinds, size, out, strict=True)
    return _on_device(device, [kind.windows(items, windows) for kind, items, windows in dims])


@lru_cache(maxsize=1024)
def transposed(device: torch.device, kinds: tuple[Kind, ...], size: Sizes, out: Sizes) -> Tables:
    """Return for each of `size` items which windows it lies in, and 1: the gradient's tables."""
    turned = []
    for kind, items, windows in zip(kinds, size, out, strict=True):
        first, last, _ = kind.windows(items, windows)
        begin = tuple(bisect_right(last, item) for item in range(items))
        end = tuple(bisect_right(first, item) for item in range(items))
        turned.append(Windows(begin, end, (1,) * items))
    return _on_device(device, turned)


def _on_device(device: torch.device, dims: Sequence[Windows]) -> Tables:
    tensors, product = [], torch.ones((), dtype=torch.int64)
    for dim, windows in enumerate(dims):
        shape = [-1 if d == dim else 1 for d in range(3)]
        first, last, divisor = (torch.tensor(numbers).view(shape) for numbers in windows)
        tensors += [first.to(device), last.to(device)]
        product = product * divisor
    return (*tensors, product.to(device))


def pooled(size: int, kind: Regular, ceil_mode: bool) -> int:
    """Return how many windows there are over `size` items.

    Raises:
        RuntimeError: the padding is more than half a kernel, or there is no window.
    """
    kernel, stride, pad, dilation, _ = kind
    if pad > ((kernel - 1) * dilation + 1) // 2:
        raise RuntimeError(
            "pad should be at most half of effective kernel size, but got "
            f"pad={pad}, kernel_size={kernel} and dilation={dilation}"
        )
    room = size + 2 * pad - (kernel - 1) * dilation - 1
    out = -(-room // stride) + 1 if ceil_mode else room // stride + 1
    if ceil_mode and (out - 1) * stride >= size + pad:
        out -= 1  # the last window would begin in the padding
    if out < 1:
        raise RuntimeError(
            f"a kernel of {kernel} items does not fit {size} items: output size is too small"
        )
    return out


def check_planes(x: Tensor, rank: int) -> None:
    """Raise RuntimeError where x [batch?, channels, ...] has no channel or items in `rank` dims."""
    if x.dim() not in (rank + 1, rank + 2) or 0 in x.shape[-rank - 1 :]:
        raise RuntimeError(
            f"pooling of {[*x.shape]}: give {rank + 1} or {rank + 2} dimensions, of which the "
            "batch alone may be empty"
        )


def sized(out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return `out` with this shape; pooling converts nothing.

    Raises:
        RuntimeError: it has another dtype.
    """
    if out.dtype is not dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {dtype}, but got {out.dtype} instead"
        )
    return resized(out, shape)
