"""Copies within a device that change dtype or layout: one strided kernel for all pairs of dtypes.

Copies of bytes, and those between host and device, are the shim's; it calls `strided_copy` here.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import pairwise
from math import prod

import numpy as np
import torch

from ocl_backend.dtypes import dtype_of
from ocl_backend.launch import Launch, Pointer, prepare
from oclgen import render

INNER_ITEMS = 16
"""A contiguous dimension shorter than this leaves vector units idle: the longest goes innermost."""


def register() -> None:
    """Register the copy kernel with torch."""
    torch.library.impl("ocl::strided_copy", "PrivateUse1", strided_copy)


def strided_copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy `source` into `target`, both on one device and of one shape, any strides and dtypes.

    Conversions are C's: towards zero for integers, round to nearest even for floats.

    Raises:
        NotImplementedError: a dtype has no kernel.
    """
    launch = _prepared(
        target.device.index,
        source.dtype,
        target.dtype,
        tuple(target.shape),
        source.stride(),
        target.stride(),
    )
    launch(source.data_ptr(), target.data_ptr())


@lru_cache(maxsize=4096)
def _prepared(
    device: int,
    source: torch.dtype,
    target: torch.dtype,
    shape: tuple[int, ...],
    source_strides: tuple[int, ...],
    target_strides: tuple[int, ...],
) -> Launch:
    dims = collapse(shape, source_strides, target_strides)
    reach = max(
        sum((size - 1) * stride for size, stride, _ in dims),
        sum((size - 1) * stride for size, _, stride in dims),
    )
    wide = reach >= 2**31
    number = np.int64 if wide else np.int32
    (inner, *inner_strides), *outer = dims
    arguments = [
        Pointer(source.itemsize),
        Pointer(target.itemsize),
        *(number(stride) for stride in inner_strides),
        *(number(value) for dim in outer for value in dim),
    ]
    text = _source(source, target, len(outer), wide)
    global_size = (inner, prod(size for size, _, _ in outer))
    return prepare(device, text, "strided_copy", global_size, arguments)


@cache
def _source(source: torch.dtype, target: torch.dtype, outer: int, wide: bool) -> str:
    return render.render(
        "strided_copy",
        package="ocl_backend",
        source=dtype_of(source),
        target=dtype_of(target),
        outer=outer,
        index="long" if wide else "int",
    )


def collapse(
    shape: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]
) -> list[tuple[int, int, int]]:
    """Return the (size, source stride, target stride) of the fewest dimensions that do the copy.

    The first is the inner one; the rest are ordered from the slowest to the fastest.
    """
    dims = [dim for dim in zip(shape, source, target, strict=True) if dim[0] != 1]
    dims.sort(key=lambda dim: (dim[2], dim[1]), reverse=True)
    if not dims:
        return [(1, 0, 0)]
    merged = [dims[0]]
    for outer, inner in pairwise(dims):
        if outer[1] == inner[0] * inner[1] and outer[2] == inner[0] * inner[2]:
            merged[-1] = (merged[-1][0] * inner[0], inner[1], inner[2])
        else:
            merged.append(inner)
    fastest = merged[-1]
    inner_dim = fastest if fastest[0] >= INNER_ITEMS else max(merged)
    merged.remove(inner_dim)
    return [inner_dim, *merged]
