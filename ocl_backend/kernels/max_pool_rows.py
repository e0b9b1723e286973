"""Maxima of windows on processors: rows by vectors, of channels where those lie last.

GPUs, and dtypes that are not computed with as floats, have `pooling_2d` and `pooling_tables`.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.memory_formats import arranged, in_pixels
from ocl_backend.kernels.vectors import CPU_GROUP_ITEMS, CPU_WIDTHS
from ocl_backend.kernels.windows import Regular
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

MOST_LINE = 2048
"""Items of a row with its padding that a work-item has in private memory, with their places."""


class MaxPool(NamedTuple):
    """What decides the kernel: sizes of x [n, channels, d, h, w] and of the results [d, h, w]."""

    device: int
    dtype: torch.dtype
    backward: bool
    pixels: bool
    size: tuple[int, ...]
    out: tuple[int, ...]
    windows: tuple[Regular, ...]

    @property
    def line(self) -> int:
        """Items of a row of x with the padding on its sides."""
        along, width = self.windows[-1], self.size[-1]
        reach = (self.out[-1] - 1) * along.stride + along.reach
        return max(reach, along.pad + width) + along.stride * max(CPU_WIDTHS)


def max_rows(x: Tensor, y: Tensor, indices: Tensor, windows: tuple[Regular, ...]) -> bool:
    """Write the maxima of x [batch?, channels, d?, h, w] and their places.

    Args:
        x: floats.
        y: [batch?, channels, out_d?, out_h, out_w]; written.
        indices: int64 of the same shape; written.
        windows: along h and w, or d, h and w.

    Returns:
        False where nothing was done, because these kernels do not serve x.
    """
    if not _serves(x) or not y.numel():
        return False
    if len(windows) == 3:
        x, y, indices = (t if t.dim() == 5 else t[None] for t in (x, y, indices))
    many = x.shape[-len(windows) - 1] >= min(CPU_WIDTHS)
    pixels = many and in_pixels(x) and in_pixels(y) and in_pixels(indices)
    pool = _of(x, y, False, pixels, windows)
    if not pixels and pool.line > MOST_LINE:
        return False
    x = x if pixels else x.contiguous()
    results = [t if pixels or t.is_contiguous() else t.new_empty(t.shape) for t in (indices, y)]
    _prepared(pool)(x.data_ptr(), *(tensor.data_ptr() for tensor in results))
    for given, result in zip((indices, y), results, strict=True):
        if result is not given:
            given.copy_(result)
    return True


def max_rows_backward(
    grad: Tensor, indices: Tensor, grad_x: Tensor, windows: tuple[Regular, ...]
) -> bool:
    """Write the gradient of x, where channels lie last.

    Args:
        grad: [batch?, channels, out_d?, out_h, out_w].
        indices: int64 of the same shape.
        grad_x: [batch?, channels, d?, h, w]; written.
        windows: along h and w, or d, h and w.

    Returns:
        False where nothing was done, because these kernels do not serve it.
    """
    if len(windows) == 3:
        grad, indices, grad_x = (t if t.dim() == 5 else t[None] for t in (grad, indices, grad_x))
    many = in_pixels(grad_x) and grad_x.shape[-len(windows) - 1] >= min(CPU_WIDTHS)
    if not (many and _serves(grad) and grad.numel() and grad_x.numel()):
        return False
    given = [arranged(tensor, True) for tensor in (grad, indices)]
    pool = _of(grad_x, grad, True, True, windows)
    _prepared(pool)(*(tensor.data_ptr() for tensor in (*given, grad_x)))
    return True


def _serves(x: Tensor) -> bool:
    known = x.dtype in (torch.float32, torch.float16, torch.bfloat16)
    return known and devices()[x.get_device()].limits.kind == "cpu"


def _of(
    x: Tensor, y: Tensor, backward: bool, pixels: bool, windows: tuple[Regular, ...]
) -> MaxPool:
    rank = len(windows)
    flat = (1,) * (3 - rank)  # an image is a volume of one slice
    size = (prod(x.shape[: -rank - 1]), x.shape[-rank - 1], *flat, *x.shape[-rank:])
    out, along = (*flat, *y.shape[-rank:]), (*(Regular(1, 1) for _ in flat), *windows)
    return MaxPool(x.get_device(), x.dtype, backward, pixels, size, out, along)


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(pool: MaxPool) -> KernelLaunch:
    dtype, (images, channels, *sizes) = dtype_of(pool.dtype), pool.size
    kernel, stride, pad, dilation, _ = zip(*pool.windows, strict=True)
    # a work-item makes rows of results, each of `across` items
    *down, across = sizes if pool.backward else pool.out
    lanes = channels if pool.pixels else min(sizes[-1], across)
    source = rendered(
        "max_pool_rows", package="ocl_backend", dtype=dtype, backward=pool.backward,
        apart=all(one.apart for one in pool.windows), pixels=pool.pixels,
        kernel=kernel, stride=stride, pad=pad, dilation=dilation,
        line=0 if pool.pixels else 1 << (pool.line - 1).bit_length(),
        width=next((wide for wide in CPU_WIDTHS if lanes >= wide), min(CPU_WIDTHS)),
    )  # fmt: skip
    rows = images * prod(down) * (1 if pool.pixels else channels)
    items = across * (channels if pool.pixels else 1)
    share = max(1, CPU_GROUP_ITEMS // (4 * items))
    image, longs = Pointer(dtype.item_bytes), Pointer(8)
    numbers = (rows, share, channels, *sizes, *pool.out)
    arguments: list[Argument] = [image, longs, image, *map(np.int64, numbers)]
    groups = ceil_div(rows, share)
    return prepare(pool.device, source, "max_pool_rows", (groups,), arguments, (1,))
