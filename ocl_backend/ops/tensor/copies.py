"""Copies within a device that change dtype or layout: one strided kernel for all pairs of dtypes.

Copies of bytes, and those between host and device, are the shim's; it calls `strided_copy` here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import inf, prod
from typing import NamedTuple

import numpy as np
import torch

from ocl_backend.dtypes import COPIED, DTYPES, DType, dtype_of
from ocl_backend.fusion import recall
from ocl_backend.kernels.copied_dimensions import Dim, collapse, crossing
from ocl_backend.kernels.elementwise import Kernel, Operand, Run, prepare_elementwise
from ocl_backend.kernels.vectors import are_aligned
from ocl_backend.ops.fused.expressions import Expression, Loosely, Read, fits
from ocl_backend.runtime.launch import (
    MOST_LAUNCHES,
    Argument,
    KernelLaunch,
    Pointer,
    Prepared,
    prepare,
)  # fmt: skip
from oclgen import render
from oclgen.families.parts.lane_packing import transpose_text
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div, round_up

TILE = 16
"""Side of the smallest tiles by which dimensions that cross are copied; a CPU takes no others."""
ROW_BYTES = 128
"""Of a GPU's tile: what its memory hands out at once."""
GROUP = 256
"""Work-items of a group."""
FEWEST = 16
"""Work-items of a CPU's group that has some of several rows: Intel's compiler then makes vectors of
items of different rows, which takes up to ten times as long."""
BANK_BYTES = 4
"""What a bank of local memory hands out at once."""

TILES = 4
"""Tiles that a work-item of a CPU turns: a single one takes no longer than to start a work-item."""
LONG_TILES, ITEMS_PER_UNIT = 16, 8
"""Tiles of a row of several, along the longer dimension, and work-items of a core from which on
there are such rows: caches ask ahead for them. With AVX2's vectors, 20 images of 96x56x56 take 2.0
to 2.3 ms to turn, and 6 to 8.5 by single rows of `TILES` tiles."""
TURNED = {2: 4, 4: 2}
"""Bytes of items that are the lanes of vectors while a CPU turns them, and the size from which on a
dimension is turned: between fewer, items of two bytes are copied one by one in less time."""
LONGER = 8
"""The longer side of what is turned, at least: less would fill a corner of a tile."""
WORDS = {
    size: DType(name, name, size)
    for name, size in (("uint4", 16), ("uint2", 8), ("uint", 4), ("ushort", 2), ("uchar", 1))
}
"""What a work-item copies at once where no dtype changes, by bytes, the longest first."""
INNER_ITEMS = 16
"""A dimension shorter than this leaves a CPU's vector units idle: the fastest of the target's that
is longer goes innermost, or the longest."""
SHORTEST_RUN = 4
"""Neighbours from which on a GPU's work-item converts a vector of them."""
AS_STORED = {dtype.itemsize: dtype for dtype in (torch.int8, torch.int16, torch.int32, torch.int64)}
"""Items of a copy that converts none, by their bytes."""


def register() -> None:
    """Register the copy kernel with torch."""
    recall.register("ocl::strided_copy", lambda: strided_copy)


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


def mirrored_copy(source: torch.Tensor, target: torch.Tensor, dim: int) -> None:
    """Copy what `source` has along `dim` from its last item to its first, by one launch of a GPU.

    Args:
        source: any strides.
        target: of its shape and dtype, any strides.
        dim: the dimension that is mirrored.
    """
    steps = list(source.stride())
    last = (source.shape[dim] - 1) * steps[dim] * source.element_size()
    steps[dim] = -steps[dim]
    addresses = source.data_ptr() + last, target.data_ptr()
    key = _Key(
        target.get_device(), source.dtype, target.dtype, target.shape, tuple(steps),
        target.stride(), are_aligned(addresses),
    )  # fmt: skip
    _prepared(key)(*addresses)


Types = tuple[torch.dtype | int, torch.dtype | int]
"""Of source and target: a dtype, or the bytes of a word where none changes."""


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
    if not floats or not fits(copy) or not isinstance(launch, Prepared):
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


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(key: _Key) -> Run:
    device, source, target = key.device, key.source, key.target
    limits = devices()[device].limits
    dims = collapse(key.shape, key.source_strides, key.target_strides)
    reach = max(sum((dim.size - 1) * abs(dim[side]) for dim in dims) for side in (1, 2))
    wide = reach >= 2**31
    if word := _word(key, dims):
        return _flat(device, (word, word), _of_words(dims, word // source.itemsize), wide)
    types = (source.itemsize,) * 2 if source is target else (source, target)
    crossed = crossing(dims)
    outer = [dim for dim in dims if crossed and dim not in crossed]
    if crossed and source is target and _turns(crossed, source, limits):
        return _turn(device, source.itemsize, crossed, outer, wide)
    if crossed and limits.max_work_group >= GROUP and _are_long(crossed):
        return _tiled(device, types, crossed, outer, wide)
    is_run = _is_run(dims[-1]) and source is not target
    if _are_vectors(types) and (limits.kind == "cpu" or is_run):
        return _by_runs(device, types, dims)
    if limits.kind == "cpu":
        return _by_rows(device, types, dims, wide)
    return _flat(device, types, dims, wide)


def _flat(device: int, types: Types, dims: Sequence[Dim], wide: bool) -> KernelLaunch:
    """Prepare a copy whose work-items follow the target's items in order."""
    items = prod(dim.size for dim in dims)
    group = min(GROUP, devices()[device].limits.max_work_group)
    text = _source("strided_copy", types, len(dims), wide, flat=True)
    pointers, numbers = _arguments(types, dims, wide)
    arguments = [*pointers, _index(wide)(items), *numbers]
    return prepare(device, text, "strided_copy", (round_up(items, group),), arguments, (group,))


def _by_rows(device: int, types: Types, dims: Sequence[Dim], wide: bool) -> KernelLaunch:
    """Prepare a copy whose work-items walk an inner dimension without divisions.

    Work-groups are given: a runtime may choose single work-items where a size is a prime.
    """
    inner = _inner(dims)
    outer = [dim for dim in dims if dim is not inner]
    text = _source("strided_copy", types, len(outer), wide, flat=False)
    pointers, numbers = _arguments(types, (inner, *outer), wide)
    rows, most = prod(dim.size for dim in outer), devices()[device].limits.max_work_group
    across = min(GROUP, 1 << (inner.size - 1).bit_length(), most)
    down = min(max(1, FEWEST // across), 1 << (rows - 1).bit_length(), most // across)
    sizes = round_up(inner.size, across), round_up(rows, down)
    arguments = [*pointers, _index(wide)(rows), *numbers]
    return prepare(device, text, "strided_copy", sizes, arguments, (across, down))


def _by_runs(device: int, types: Types, dims: Sequence[Dim]) -> Run:
    """Prepare a copy whose work-items convert vectors, of items that lie apart, too.

    With those, a CPU needs a quarter of the time of `_by_rows`, whose lanes are work-items.
    """
    source, target = (AS_STORED[one] if isinstance(one, int) else one for one in types)
    operands = Operand("self", source), Operand("out", target, "output", result="self")
    sizes, *steps = zip(*dims, strict=True)
    kernel = Kernel("copy", dtype_of(source).value, operands, "")
    return prepare_elementwise(device, kernel, sizes, steps)


def _is_run(fastest: Dim) -> bool:
    """Whether both sides have neighbours along the target's fastest dimension."""
    return (fastest.source, fastest.target) == (1, 1) and fastest.size >= SHORTEST_RUN


def _are_vectors(types: Types) -> bool:
    """Whether vectors of items convert as single ones do.

    Of floats beyond a narrow integer's range a processor keeps the lowest bits, one by one.
    """
    source, target = types
    if isinstance(source, int) or isinstance(target, int):
        return True
    is_cut = source.is_floating_point and target in (torch.int8, torch.uint8, torch.int16)
    return DTYPES.keys() >= {source, target} and not is_cut


def _tiled(
    device: int, types: Types, crossed: tuple[Dim, Dim], outer: Sequence[Dim], wide: bool
) -> KernelLaunch:
    """Prepare a copy by tiles of local memory."""
    is_cpu = devices()[device].limits.kind == "cpu"
    tile = TILE if is_cpu else _tile(crossed, max(map(_bytes, types)))
    rows = GROUP // tile
    padding = max(1, BANK_BYTES // _bytes(types[0]))
    text = _source(
        "strided_transpose", types, len(outer), wide, tile=tile, rows=rows, padding=padding
    )
    pointers, numbers = _arguments(types, (*crossed, *outer), wide)
    columns, lines = (ceil_div(dim.size, tile) for dim in crossed)
    sizes = columns * tile, lines * rows, prod(dim.size for dim in outer)
    return prepare(device, text, "strided_transpose", sizes, [*pointers, *numbers], (tile, rows, 1))


def _tile(crossed: tuple[Dim, Dim], itemsize: int) -> int:
    """Return the side of a GPU's tile: rows of memory where neither dimension is much shorter."""
    side, shorter = ROW_BYTES // itemsize, min(dim.size for dim in crossed)
    while side > TILE and (side > GROUP // 4 or shorter <= side // 2):
        side //= 2
    return max(side, TILE)


def _bytes(given: torch.dtype | int) -> int:
    return given if isinstance(given, int) else given.itemsize


def _index(wide: bool) -> type[np.int64 | np.int32]:
    return np.int64 if wide else np.int32


def _arguments(
    types: Types, dims: Sequence[Dim], wide: bool
) -> tuple[list[Argument], list[Argument]]:
    """Return a kernel's pointers, and the numbers of its dimensions."""
    kind = _index(wide)
    pointers: list[Argument] = [Pointer(_bytes(given)) for given in types]
    return pointers, [kind(number) for dim in dims for number in dim]


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


def _of_words(dims: Sequence[Dim], items: int) -> list[Dim]:
    """Return the dimensions of a copy whose work-items copy `items` neighbours at once."""
    inner = Dim(dims[-1].size // items, 1, 1)
    return [*(Dim(dim.size, dim.source // items, dim.target // items) for dim in dims[:-1]), inner]


def _turns(crossed: tuple[Dim, Dim], dtype: torch.dtype, limits: Limits) -> bool:
    """Say whether tiles are turned in registers: local memory of a CPU is ordinary memory."""
    a, b = crossed
    is_plain = (a.target, b.source) == (1, 1)
    sizes = sorted((a.size, b.size))
    is_long = sizes[0] >= TURNED.get(dtype.itemsize, inf) and sizes[1] >= LONGER
    return is_plain and is_long and limits.kind == "cpu" and limits.native_float_width > 1


def _turn(
    device: int, itemsize: int, crossed: tuple[Dim, Dim], outer: Sequence[Dim], wide: bool
) -> KernelLaunch:
    limits = devices()[device].limits
    vec, many = limits.native_float_width, prod(dim.size for dim in outer)
    tiles_a, tiles_b = (ceil_div(dim.size, vec) for dim in crossed)
    tiles = _turned_at_once(tiles_a, tiles_b, many, limits)
    items = [ceil_div(dim.size, vec * count) for dim, count in zip(crossed, tiles, strict=True)]
    short_b = crossed[1].size < vec
    text = render.rendered(
        "strided_turn",
        package="ocl_backend",
        bytes=itemsize,
        vec=vec,
        tiles_a=tiles[0],
        tiles_b=tiles[1],
        short_a=crossed[0].size < vec,
        short_b=short_b,
        outer=len(outer),
        index="long" if wide else "int",
        transpose=transpose_text(vec),
    )
    pointers, numbers = _arguments((itemsize, itemsize), (*crossed, *outer), wide)
    readable = 1 + sum((dim.size - 1) * dim.source for dim in (*crossed, *outer))
    given = [*pointers, *[_index(wide)(readable)] * short_b, *numbers]
    sizes = (*items, many)
    return prepare(device, text, "strided_turn", sizes, given, (1, 1, 1))


def _turned_at_once(tiles_a: int, tiles_b: int, many: int, limits: Limits) -> tuple[int, int]:
    """Return how many tiles along both dimensions a work-item turns; powers of two share texts.

    Args:
        tiles_a: tiles along the target's fastest dimension.
        tiles_b: tiles along the source's.
        many: pairs of these dimensions.
        limits: of the device.
    """
    long, short = max(tiles_a, tiles_b), min(tiles_a, tiles_b)
    items = ceil_div(long, LONG_TILES) * ceil_div(short, TILES) * many
    if items < ITEMS_PER_UNIT * limits.compute_units:
        of_b = min(TILES, 1 << (tiles_b - 1).bit_length())
        return TILES // of_b, of_b
    most = (LONG_TILES, TILES) if tiles_a > tiles_b else (TILES, LONG_TILES)
    of_a, of_b = (
        min(least, 1 << (tiles - 1).bit_length())
        for least, tiles in zip(most, (tiles_a, tiles_b), strict=True)
    )
    return of_a, of_b


@cache
def _source(template: str, types: Types, outer: int, wide: bool, **layout: int) -> str:
    source, target = (
        WORDS[one] if isinstance(one, int) else dtype_of(one, COPIED) for one in types
    )
    return render.render(
        template,
        package="ocl_backend",
        source=source,
        target=target,
        outer=outer,
        index="long" if wide else "int",
        **layout,
    )


def _are_long(crossed: tuple[Dim, Dim]) -> bool:
    """Say whether tiles of local memory pay."""
    return min(dim.size for dim in crossed) >= TILE // 2


def _inner(dims: Sequence[Dim]) -> Dim:
    return next((dim for dim in reversed(dims) if dim.size >= INNER_ITEMS), max(dims))
