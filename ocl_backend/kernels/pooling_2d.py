"""Maximum, average and adaptive average in two dimensions, forward and backward: kernels.

They have the sizes of planes as constants, which makes them faster than those of `pooling_tables`;
how many planes there are is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of, lowest
from ocl_backend.kernels.vectors import ACCESS_ITEMS, are_aligned
from ocl_backend.kernels.windows import Regular
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import WORK_ITEMS_PER_UNIT, ceil_div, round_up
from oclgen.render import rendered

Name = Literal["max", "avg", "adaptive"]

ADAPTIVE = (Regular(1, 1),) * 2
"""In place of windows for an adaptive average, which has its own."""

LOCAL = 64
"""Work-items per group: every device has as many."""
LARGE = 256
"""Work-items per group of a GPU that is full."""
MOST_PRIVATE = 16384
"""Sums that a work-item of a processor keeps in private memory."""
MOST_SUMS = 16
"""Sums that a work-item keeps in registers at most."""
INDEX: dict[type, str] = {np.uint32: "uint", np.uint64: "ulong"}
"""OpenCL C's type of a count."""


@dataclass(frozen=True, slots=True)
class Pooling:
    """Everything that decides the kernel; `planes` is the product of the leading dimensions.

    `size` and `out` are (height, width), `windows` theirs. An average divides by the windows'
    items, or by `divisor`, unless it is 0.
    """

    kind: Name
    backward: bool
    device: int
    dtype: torch.dtype
    planes: int
    size: tuple[int, ...]
    out: tuple[int, ...]
    windows: tuple[Regular, ...]
    divisor: int

    @property
    def count(self) -> str:
        """The OpenCL C of what an average divides by, of the window that begins at `top`, `left`.

        A window that reaches over the end of its plane ends there, or at the end of the padding
        where padding counts.
        """
        if self.divisor or self.is_whole:
            return str(self.divisor or prod(along.kernel for along in self.windows))
        sides = zip(("top", "left"), self.size, self.windows, strict=True)
        return " * ".join(
            f"(min({start} + {along.kernel}, {size + along.pad}) - {start})"
            if along.count_pad
            else f"(min({start} + {along.kernel}, {size}) - max({start}, 0))"
            for start, size, along in sides
        )

    @property
    def is_whole(self) -> bool:
        """Whether no window reaches over an edge of its plane."""
        return all(
            w.pad == 0 and (out - 1) * w.stride + w.reach <= size
            for size, out, w in zip(self.size, self.out, self.windows, strict=True)
        )

    @property
    def is_tiled(self) -> bool:
        """Whether the windows lie side by side and cover their plane."""
        return all(
            w[:4] == (w.kernel, w.kernel, 0, 1) and out * w.stride == size
            for size, out, w in zip(self.size, self.out, self.windows, strict=True)
        )


def pool(
    kind: Name, x: Tensor, outputs: Sequence[Tensor], windows: tuple[Regular, ...], divisor: int = 0
) -> None:
    """Write the pooled x [..., h, w] to `outputs`: for a maximum (indices, y), else (y,).

    Args:
        kind: which pooling.
        x: floats [..., h, w].
        outputs: (indices, y) of a maximum, else (y,).
        windows: along h and w.
        divisor: of a mean; 0: the window's items.
    """
    y = outputs[-1]
    if y.numel():
        _call(_pooling(kind, False, x, y, windows, divisor), (x,), outputs)


def pool_backward(
    kind: Name,
    inputs: Sequence[Tensor],
    grad_x: Tensor,
    windows: tuple[Regular, ...],
    divisor: int = 0,
) -> None:
    """Write the gradient of a pooling.

    Args:
        kind: which pooling.
        inputs: (grad, indices) of a maximum, else (grad,).
        grad_x: [..., h, w]; written.
        windows: along h and w.
        divisor: of a mean; 0: the window's items.
    """
    if grad_x.numel() and inputs[0].numel():
        _call(_pooling(kind, True, grad_x, inputs[0], windows, divisor), inputs, (grad_x,))
    else:
        grad_x.zero_()


def _call(pooling: Pooling, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Launch on dense tensors, and copy to the outputs that are not."""
    given = [tensor.contiguous() for tensor in inputs]
    dense = [out if out.is_contiguous() else out.new_empty(out.shape) for out in outputs]
    addresses = [tensor.data_ptr() for tensor in (*given, *dense)]
    _prepared(pooling, are_aligned(addresses))(*addresses)
    for out, result in zip(outputs, dense, strict=True):
        if out is not result:
            out.copy_(result)


def _pooling(
    kind: Name, backward: bool, x: Tensor, y: Tensor, windows: tuple[Regular, ...], divisor: int
) -> Pooling:
    planes, size, out = prod(x.shape[:-2]), tuple(x.shape[-2:]), tuple(y.shape[-2:])
    return Pooling(kind, backward, x.get_device(), x.dtype, planes, size, out, windows, divisor)


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(pooling: Pooling, aligned: bool) -> KernelLaunch:
    """Return the launch for tensors that begin where any access of a GPU may, or for others."""
    return _backward(pooling, aligned) if pooling.backward else _forward(pooling, aligned)


def _forward(pooling: Pooling, aligned: bool) -> KernelLaunch:
    limits = devices()[pooling.device].limits
    whole, outputs = pooling.is_whole, pooling.planes * prod(pooling.out)
    if limits.kind == "cpu":
        source = _rendered("pooling_2d", pooling, whole=whole, flat=False, index="", abreast=0)
        return _launch(pooling, source, (*reversed(pooling.out), pooling.planes), None)
    abreast = _abreast(pooling) if whole and aligned else 0
    count = _count(outputs)
    source = _rendered(
        "pooling_2d", pooling, whole=whole, flat=True, index=INDEX[type(count)], abreast=abreast
    )
    items = outputs // max(abreast, 1)
    local = _local(items, limits)
    return _launch(pooling, source, (round_up(items, local),), (local,), count)


def _abreast(pooling: Pooling) -> int:
    """Return how many neighbouring windows a vector of a row holds, all of it; 0 if none does."""
    dtype, along = dtype_of(pooling.dtype), pooling.windows[1]
    tiles = along.kernel == along.stride and along.dilation == 1 and dtype.value == "float"
    if not tiles or along.kernel not in (2, 4):
        return 0
    abreast = ACCESS_ITEMS // along.kernel
    whole = pooling.size[1] % ACCESS_ITEMS == 0 and pooling.out[1] % abreast == 0
    return abreast if whole else 0


def _local(items: int, limits: Limits) -> int:
    """Return the work-items of a GPU's group: many where a device is full, which starts fewer."""
    fills = items >= WORK_ITEMS_PER_UNIT * limits.compute_units
    return min(LARGE, limits.max_work_group) if fills else LOCAL


def _backward(pooling: Pooling, aligned: bool) -> KernelLaunch:
    dtype = dtype_of(pooling.dtype)
    # sums in narrow storage are made in private memory, which is small: rows of one window
    apart = all(one.apart for one in pooling.windows)
    rows = pooling.windows[0].reach
    fits = dtype.storage == dtype.value or apart or rows * pooling.size[1] <= MOST_PRIVATE
    limits = devices()[pooling.device].limits
    cpu, is_max = limits.kind == "cpu", pooling.kind == "max"
    scatters = is_max and fits and cpu
    tiles = is_max and aligned and not cpu and pooling.is_tiled
    abreast = _abreast(pooling) if tiles else 0
    strides = tuple(along.stride for along in pooling.windows)
    block = strides if is_max and prod(strides) <= MOST_SUMS else (1, 1)
    if abreast:
        block = (strides[0], ACCESS_ITEMS)
    sides = zip(pooling.size, pooling.windows, block, strict=True)
    blocks = prod(ceil_div(size + along.pad % items, items) for size, along, items in sides)
    items = pooling.planes * (1 if scatters else blocks)
    count = _count(items)
    source = _rendered(
        "pooling_2d_backward",
        pooling,
        scatters=scatters,
        apart=apart,
        block=block,
        index=INDEX[type(count)],
        abreast=abreast,
    )
    local = 1 if scatters else LOCAL if cpu else _local(items, limits)
    return _launch(pooling, source, (round_up(items, local),), (local,), count)


def _count(number: int) -> np.uint32 | np.uint64:
    """Return how many outputs or work-items there are, as the kernel's index counts them."""
    return np.uint32(number) if number < 2**31 else np.uint64(number)


def _rendered(template: str, pooling: Pooling, **more: object) -> str:
    height, width = pooling.size
    out_h, out_w = pooling.out
    kernel, stride, pad, dilation, _ = zip(*pooling.windows, strict=True)
    return rendered(
        template, package="ocl_backend", kind=pooling.kind, dtype=dtype_of(pooling.dtype),
        height=height, width=width, out_h=out_h, out_w=out_w, kernel=kernel, stride=stride,
        pad=pad, dilation=dilation, count=pooling.count, lowest=lowest(pooling.dtype), **more,
    )  # fmt: skip


def _launch(
    pooling: Pooling,
    source: str,
    global_size: tuple[int, ...],
    local_size: tuple[int, ...] | None,
    *counts: np.uint32 | np.uint64,
) -> KernelLaunch:
    image, indices = Pointer(dtype_of(pooling.dtype).item_bytes), Pointer(torch.int64.itemsize)
    arguments: list[Argument] = [image, indices, image] if pooling.kind == "max" else [image, image]
    arguments += counts
    name = f"pool_{pooling.kind}{'_backward' if pooling.backward else ''}"
    return prepare(pooling.device, source, name, global_size, arguments, local_size)
