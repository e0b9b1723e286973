"""Copies within a device that change dtype or layout: one strided kernel for all pairs of dtypes.

Copies of bytes, and those between host and device, are the shim's; it calls `strided_copy` here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
import torch

from ocl_backend.dtypes import COPIED, DType, dtype_of
from ocl_backend.fusion import recall
from ocl_backend.kernels.vectors import are_aligned
from ocl_backend.ops.fused.expressions import Expression, Loosely, Read, fits
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen import render
from oclgen.families.parts.packing import transpose_text
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div, round_up

TILE = 16
"""Side of the tiles by which dimensions that cross are copied."""

TILES = 4
"""Tiles that a work-item of a CPU turns: a single one takes no longer than to start a work-item."""
FLOAT_BYTES = 4
WORDS = {size: DType(name, name, size) for name, size in (("uint4", 16), ("uint2", 8), ("uint", 4))}
"""The type that a work-item of a GPU copies at once, by bytes, the longest first."""
INNER_ITEMS = 16
"""A contiguous dimension shorter than this leaves vector units idle: the longest goes innermost."""


def register() -> None:
    """Register the copy kernel with torch."""
    recall.register(torch.ops.ocl.strided_copy.default, strided_copy)


def strided_copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy `source` into `target`, both on one device and of one shape, any strides and dtypes.

    Conversions are C's: towards zero for integers, round to nearest even for floats.

    Raises:
        NotImplementedError: a dtype has no kernel.
    """
    if source.is_complex() or target.is_complex():
        _complex_copy(source, target)
        return
    addresses = source.data_ptr(), target.data_ptr()
    key = _Key(
        target.get_device(), source.dtype, target.dtype, target.shape, source.stride(),
        target.stride(), are_aligned(addresses),
    )  # fmt: skip
    _run(key)(addresses)


class _Key(NamedTuple):
    """All of a copy that decides its launch."""

    device: int
    source: torch.dtype
    target: torch.dtype
    shape: tuple[int, ...]
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...]
    aligned: bool


@lru_cache(maxsize=MOST_LAUNCHES)
def _run(key: _Key) -> Callable[[tuple[int, int]], None]:
    """Return what runs a copy, or holds it back, given both addresses."""
    launch = _prepared(key)
    read = Read("self", 0, key.source, key.shape, key.source_strides)
    out = Read("out", 1, key.target, key.shape, key.target_strides)
    copy = Expression("pointwise", (read,), out, "float", "const T out = self;")
    floats = key.source.is_floating_point and key.target.is_floating_point
    if not floats or not fits(copy):
        return lambda addresses: launch(*addresses)
    return Loosely("copy", key.device, launch, copy).enqueue


def _complex_copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy real and imaginary parts; a real source has none, and a real target drops it."""
    if not target.is_complex():
        target.copy_(torch.view_as_real(source)[..., 0])
    elif source.is_complex():
        torch.view_as_real(target).copy_(torch.view_as_real(source))
    else:
        real, imaginary = torch.view_as_real(target).unbind(-1)
        real.copy_(source)
        imaginary.zero_()


class Dim(NamedTuple):
    """A dimension both tensors walk: its size, and the items from one step to the next."""

    size: int
    source: int
    target: int


def _prepared(key: _Key) -> KernelLaunch:
    device, source, target = key.device, key.source, key.target
    dims = collapse(key.shape, key.source_strides, key.target_strides)
    reach = max(sum((dim.size - 1) * dim[side] for dim in dims) for side in (1, 2))
    wide = reach >= 2**31
    if word := _word(key, dims):
        return _in_words(device, word, source.itemsize, dims, wide)
    crossed = crossing(dims)
    tiles = crossed is not None and devices()[device].limits.max_work_group >= TILE * TILE
    walked = crossed if crossed and tiles else (_inner(dims),)
    outer = [dim for dim in dims if dim not in walked]
    rest = prod(dim.size for dim in outer)
    arguments = _arguments(source.itemsize, target.itemsize, (*walked, *outer), wide)
    if crossed and source is target and _turns(crossed, source, devices()[device].limits):
        return _turn(device, crossed, outer, arguments, wide)
    template = "strided_transpose" if tiles else "strided_copy"
    text = _source(template, source, target, len(outer), wide)
    if not tiles:
        return prepare(device, text, template, (walked[0].size, rest), arguments)
    sizes = (*(round_up(dim.size, TILE) for dim in walked), rest)
    return prepare(device, text, template, sizes, arguments, (TILE, TILE, 1))


def _arguments(source: int, target: int, dims: Sequence[Dim], wide: bool) -> list[Argument]:
    """Return the arguments of a kernel, by the bytes that a work-item reads and writes at once."""
    kind = np.int64 if wide else np.int32
    numbers = (kind(number) for dim in dims for number in dim)
    return [Pointer(source), Pointer(target), *numbers]


def _word(key: _Key, dims: Sequence[Dim]) -> int:
    """Return the bytes of the longest word that a GPU's copy is made of, 0 if of items."""
    *outer, inner = dims
    if key.source is not key.target or not key.aligned or (inner.source, inner.target) != (1, 1):
        return 0
    if devices()[key.device].limits.kind == "cpu":  # its compiler takes neighbours together
        return 0
    steps = [inner.size, *(step for dim in outer for step in dim[1:])]
    for word in WORDS:
        items = word // key.source.itemsize
        if items > 1 and not any(step % items for step in steps):
            return word
    return 0


def _in_words(
    device: int, word: int, itemsize: int, dims: Sequence[Dim], wide: bool
) -> KernelLaunch:
    items = word // itemsize
    inner = Dim(dims[-1].size // items, 1, 1)
    outer = [Dim(dim.size, dim.source // items, dim.target // items) for dim in dims[:-1]]
    text = _source("strided_copy", word, word, len(outer), wide)
    sizes = inner.size, prod(dim.size for dim in outer)
    arguments = _arguments(word, word, (inner, *outer), wide)
    return prepare(device, text, "strided_copy", sizes, arguments)


def _turns(crossed: tuple[Dim, Dim], dtype: torch.dtype, limits: Limits) -> bool:
    """Say whether tiles are turned in registers: local memory of a CPU is ordinary memory."""
    a, b = crossed
    is_plain = dtype.itemsize == FLOAT_BYTES and (a.target, b.source) == (1, 1)
    return is_plain and limits.kind == "cpu" and limits.native_float_width > 1


def _turn(
    device: int,
    crossed: tuple[Dim, Dim],
    outer: Sequence[Dim],
    arguments: list[Argument],
    wide: bool,
) -> KernelLaunch:
    vec = devices()[device].limits.native_float_width
    a, b = crossed
    items = (ceil_div(a.size, vec), ceil_div(b.size, vec * TILES), prod(dim.size for dim in outer))
    text = render.rendered(
        "strided_turn",
        package="ocl_backend",
        vec=vec,
        tiles=TILES,
        outer=len(outer),
        index="long" if wide else "int",
        transpose=transpose_text(vec),
    )
    return prepare(device, text, "strided_turn", items, arguments, (1, 1, 1))


@cache
def _source(
    template: str, source: torch.dtype | int, target: torch.dtype | int, outer: int, wide: bool
) -> str:
    given, wanted = (
        WORDS[one] if isinstance(one, int) else dtype_of(one, COPIED) for one in (source, target)
    )
    return render.render(
        template,
        package="ocl_backend",
        source=given,
        target=wanted,
        outer=outer,
        tile=TILE,
        index="long" if wide else "int",
    )


def collapse(shape: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]) -> list[Dim]:
    """Return the fewest dimensions that do the copy, from the target's slowest to its fastest."""
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

    None as well where either is too short for tiles to pay, or the source is broadcast.
    """
    a, b = dims[-1], min(dims, key=lambda dim: dim.source)
    if a is b or b.source == 0 or min(a.size, b.size) < TILE // 2:
        return None
    return a, b


def _inner(dims: Sequence[Dim]) -> Dim:
    fastest = dims[-1]
    return fastest if fastest.size >= INNER_ITEMS else max(dims)
