"""Weighted sums of a few items along each dimension of images, which `axis_taps` says: kernels.

Resizing, padding, means of windows, and the gradients of all these. On processors a work-item makes
rows of the result: in planes it adds rows of the image first, and then takes along them; where
channels lie last they are the lanes. On GPUs it makes one item, or a few that are copies
(`axis_copies`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.axis_copies import AXES, copy_items
from ocl_backend.kernels.axis_taps import Taps, same
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.vectors import CPU_GROUP_ITEMS, CPU_WIDTHS
from ocl_backend.runtime import capture
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from ocl_backend.runtime.tables import as_table
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

MOST_LINE = 8192
"""Items of a row that a processor's work-item adds to in its private memory."""
COPIED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The dtype as which items of a number of bytes are copied."""


class Along(NamedTuple):
    """What makes the taps of a dimension, with its arguments; `turned`: those of the gradient."""

    make: Callable[..., Taps]
    arguments: tuple[Any, ...]
    turned: bool = False

    def taps(self) -> Taps:
        """Return the taps."""
        made = self.make(*self.arguments)
        return made.transposed() if self.turned else made

    def gradient(self) -> Along:
        """Return what makes the taps of the gradient."""
        return self._replace(turned=True)


class Tables(NamedTuple):
    """Taps on a device, int32 but weights, and what is known of them.

    With `equal` taps the items and weights of the first tap of all results come first.
    """

    begin: Tensor
    item: Tensor
    weight: Tensor
    equal: int
    is_copy: bool
    is_same: bool
    run: tuple[int, int, int]
    results: int


@dataclass(frozen=True, slots=True)
class Form:
    """What a processor's launch is made for; sizes are of [n, c, d, h, w]."""

    device: int
    dtype: torch.dtype
    pixels: bool
    along: tuple[Along, ...]
    size: tuple[int, ...]
    out: tuple[int, ...]
    steps: tuple[int, ...]


def axis_sums(x: Tensor, along: tuple[Along, ...], y: Tensor) -> Tensor:
    """Write what the taps take of x's last dimensions to y, and return it.

    Args:
        x: [..., *sizes], a size for each of `along`, with one or two dimensions before.
        along: the taps of each dimension, one to three.
        y: [..., *results]; written.
    """
    if not y.numel():
        return y
    if not x.numel():
        return y.zero_()
    if x.is_complex():
        parts = (torch.view_as_real(x).select(-1, part) for part in (0, 1))
        real = [axis_sums(each, along, each.new_empty(y.shape)) for each in parts]
        return y.copy_(torch.complex(*real))
    given = (*(Along(same, (1,)),) * (3 - len(along)), *along)
    source, target = (_volume(tensor, len(along)) for tensor in (x, y))
    tables = [_tables(x.device, each, torch.float32, False) for each in given]
    if all(table.is_copy for table in tables):
        kind = COPIED[x.dtype.itemsize]
        source, target = source.view(kind), target.view(kind)
    lined = any(not table.is_copy for table in tables[:2])
    limits = devices()[x.get_device()].limits
    if limits.kind == "cpu" and not (lined and x.shape[-1] > MOST_LINE):
        _by_rows(source, given, target)
    elif all(table.is_copy for table in tables) and target.is_contiguous():
        copy_items(source, [None if t.is_same else t.item for t in tables], target)
    else:
        _by_items(source, given, target)
    return y


def _volume(x: Tensor, rank: int) -> Tensor:
    """Return x, the last `rank` dimensions of which are images, as [n, c, d, h, w]."""
    whole = x if x.dim() == rank + 2 else x.unsqueeze(0)
    for _ in range(3 - rank):
        whole = whole.unsqueeze(2)
    return whole


@lru_cache(maxsize=1024)
@capture.aside()
def _tables(device: torch.device, along: Along, dtype: torch.dtype, across: bool) -> Tables:
    """Return the tables of a dimension on a device.

    Args:
        device: where they lie.
        along: what makes the taps.
        dtype: of the weights.
        across: whether equally many taps lie tap by tap.
    """
    taps = along.taps()
    item, weight, equal = taps.item, taps.weight, taps.equal
    if across and equal:
        item = item.reshape(-1, equal).T.copy().reshape(-1)
        weight = weight.reshape(-1, equal).T.copy().reshape(-1)
    begin, items = (
        as_table(torch.from_numpy(part.astype(np.int32)).to(device)) if len(part) else _none(device)
        for part in (taps.begin, item)
    )
    weights = (
        as_table(torch.from_numpy(weight).to(dtype).to(device)) if len(weight) else _none(device)
    )
    is_same = taps.is_copy and taps.run == (0, taps.size, 0) and taps.results == taps.size
    return Tables(begin, items, weights, equal, taps.is_copy, is_same, taps.run, taps.results)


def _none(device: torch.device) -> Tensor:
    return as_table(torch.zeros(1, dtype=torch.int32, device=device))


def _weights_of(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


def _by_rows(x: Tensor, along: tuple[Along, ...], y: Tensor) -> None:
    """Launch a processor's kernel; x and y are [n, c, d, h, w]."""
    last = y.is_contiguous(memory_format=torch.channels_last_3d)
    begin, end, _ = _tables(x.device, along[2], _weights_of(x.dtype), True).run
    fills = x.shape[1] >= min(CPU_WIDTHS) or 2 * (end - begin) > y.shape[4]
    pixels = last and not y.is_contiguous() and fills
    dense = y if pixels or y.is_contiguous() else y.new_empty(y.shape)
    if pixels and x.stride(1) != 1:
        x = x.contiguous(memory_format=torch.channels_last_3d)
    elif not pixels and x.stride(4) != 1:
        x = x.contiguous()
    form = Form(x.get_device(), x.dtype, pixels, along, tuple(x.shape), tuple(y.shape), x.stride())
    run, addresses, _ = _prepared(form)
    run(x.data_ptr(), dense.data_ptr(), *addresses)
    if dense is not y:
        y.copy_(dense)


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(form: Form) -> tuple[KernelLaunch, tuple[int, ...], list[Tables]]:
    """Return the launch of a form, the addresses of its tables, and them, which have to stay."""
    device = torch.device("ocl", form.device)
    weights = _weights_of(form.dtype)
    tables = [
        _tables(device, each, weights, axis == "w")
        for axis, each in zip(AXES, form.along, strict=True)
    ]
    outer = tuple(a for a, table in zip("dh", tables[:2], strict=True) if not table.is_same)
    lined = not form.pixels and any(not table.is_copy for table in tables[:2])
    w, dtype, items = tables[2], dtype_of(form.dtype), form.size[4]
    run = (0, 0, 0) if form.pixels and form.steps[4] != form.size[1] else w.run
    run_lanes = (run[1] - run[0]) * form.size[1]
    width = _width(max(form.size[1], run_lanes) if form.pixels else form.out[4])
    if not form.pixels and (width == 1 or run[1] - run[0] < width):
        run = (0, 0, 0)
    source = rendered(
        "axis_sums", package="ocl_backend", dtype=dtype, outer=outer, pixels=form.pixels,
        equal=w.equal, weighted=not w.is_copy, lined=lined, width=width,
        line_width=_width(items), line=1 << (items - 1).bit_length() if lined else 0,
        copies=all(table.is_copy for table in tables),
    )  # fmt: skip
    channels = form.size[1]
    rows = form.out[0] * form.out[2] * form.out[3] * (1 if form.pixels else channels)
    cost = max(form.out[4], items) * (channels if form.pixels else 1)
    share = max(1, CPU_GROUP_ITEMS // cost)
    numbers = (rows, share, channels, *form.out[2:], items, *form.steps, *run)
    used = [table for axis, table in zip(AXES, tables, strict=True) if axis in (*outer, "w")]
    arguments: list[Argument] = [Pointer(dtype.item_bytes)] * 2
    for _ in used:
        arguments += [Pointer(4), Pointer(4), Pointer(weights.itemsize)]
    arguments += map(np.int64, numbers)
    addresses = tuple(part.data_ptr() for table in used for part in table[:3])
    launched = prepare(form.device, source, "axis_sums", (ceil_div(rows, share),), arguments, (1,))
    return launched, addresses, used


def _width(items: int) -> int:
    """Return the widest vector that a row of items fills."""
    return next((width for width in CPU_WIDTHS if items >= width), 1)


def _by_items(x: Tensor, along: tuple[Along, ...], y: Tensor) -> None:
    """Launch a kernel of which each work-item makes items; x and y are [n, c, d, h, w]."""
    weights = _weights_of(x.dtype)
    tables = [_tables(x.device, each, weights, False) for each in along]
    kernel = _kernel(x.dtype, weights, tuple((t.is_same, t.is_copy) for t in tables))
    given: list[Tensor | float] = [x]
    walked = {"x": list(x.stride())}
    for at, (axis, table) in enumerate(zip(AXES, tables, strict=True), start=2):
        if table.is_same:
            continue
        walked["x"][at] = 0
        lies = [-1 if dim == at else 1 for dim in range(5)]
        if table.is_copy:
            given += [table.item.view(lies), x.stride(at)]
            continue
        begin = table.begin
        given += [begin[:-1].view(lies), begin[1:].view(lies), table.item, table.weight]
        given.append(x.stride(at))
        walked |= {f"item_{axis}": [0] * 5, f"weight_{axis}": [0] * 5}
    launch(kernel, y.shape, [*given, y], walked)


@cache
def _kernel(
    dtype: torch.dtype, weights: torch.dtype, kinds: tuple[tuple[bool, bool], ...]
) -> Kernel:
    """Return the kernel of items.

    Args:
        dtype: of x and y.
        weights: of the tables' weights.
        kinds: of each axis, whether it stays, and whether its results are copies.
    """
    parameters: list[Operand | Scalar] = [Operand("x", dtype, "address")]
    begin, middle, end, at, weight = "", [], "", "x_at", ""
    for axis, (is_same, is_copy) in zip(AXES, kinds, strict=True):
        if is_same:
            continue
        step = Scalar(f"step_{axis}", "long")
        if is_copy:
            parameters += [Operand(f"item_{axis}", torch.int32, "input", "long"), step]
            at += f" + item_{axis} * step_{axis}"
            continue
        parameters += [
            *(Operand(f"{name}_{axis}", torch.int32, "input", "int") for name in ("first", "last")),
            Operand(f"item_{axis}", torch.int32, "address", "int"),
            Operand(f"weight_{axis}", weights, "address"),
            step,
        ]
        tap = f"tap_{axis}"
        middle.append(
            f"for (int {tap} = first_{axis}; {tap} < last_{axis}; ++{tap}) {{\n"
            f"const long at_{axis} = LOAD_item_{axis}({tap}) * step_{axis};\n"
            f"const T weight_of_{axis} = LOAD_weight_{axis}({tap});"
        )
        at += f" + at_{axis}"
        weight += f"weight_of_{axis} * "
        end += "}\n"
    parameters.append(Operand("y", dtype, "output", "", "sum"))
    sums = f"sum {'+' if middle else ''}= {weight}LOAD_x({at});"
    body = begin + "T sum = 0;\n" + "\n".join([*middle, sums]) + "\n" + end
    value = dtype_of(dtype).value
    return Kernel("axis_sums", value, tuple(parameters), body, scalar_only=True, work=8)
