"""2-d pooling, forward and backward: maximum, average, adaptive average.

torch turns 1-d pooling into these. Other kinds are in `pooling_windows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.vectors import ACCESS_ITEMS, are_aligned
from ocl_backend.kernels.windows import Regular, check_planes, pooled, sized
from ocl_backend.ops.conv.convolution import Pair, pair
from ocl_backend.runtime.launch import Argument, Launch, Pointer, prepare
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import WORK_ITEMS_PER_UNIT, ceil_div, round_up
from oclgen.render import render

Name = Literal["max", "avg", "adaptive"]


@dataclass(frozen=True, slots=True)
class Window:
    """The windows of a pooling, pairs (h, w); an adaptive pooling has its own."""

    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)
    dilation: Pair = (1, 1)
    count_pad: bool = False
    divisor: int = 0


ADAPTIVE = Window()

LOCAL = 64
"""Work-items per group: every device has as many."""
LARGE = 256
"""Work-items per group of a GPU that is full."""
MOST_SUMS = 16
"""So many items a work-item can gather for in registers."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Everything that decides the kernel; `planes` is the product of the leading dimensions."""

    kind: Name
    backward: bool
    device: int
    dtype: torch.dtype
    planes: int
    height: int
    width: int
    out_h: int
    out_w: int
    window: Window


def max_pool2d_out(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
    *,
    out: Tensor,
    indices: Tensor,
) -> tuple[Tensor, Tensor]:
    """Write the maxima of x [..., h, w] to `out` and where in the plane they lay to `indices`."""
    window = _window(kernel_size, stride, padding, dilation)
    shape = _pooled(x, window, ceil_mode)
    sized(out, shape, x.dtype)
    sized(indices, shape, torch.int64)
    _run("max", x, (indices, out), window)
    return out, indices


def max_pool2d_backward_out(
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
    *,
    grad_input: Tensor,
) -> Tensor:
    """Write the gradient of x [..., h, w] to `grad_input`."""
    del x, ceil_mode
    window = _window(kernel_size, stride, padding, dilation)
    _run_backward("max", (grad, indices), grad_input, window)
    return grad_input


def avg_pool2d_out(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor,
) -> Tensor:
    """Write the means of x [..., h, w] to `out`."""
    window = _window(kernel_size, stride, padding, (1,), count_include_pad, divisor_override or 0)
    sized(out, _pooled(x, window, ceil_mode), x.dtype)
    _run("avg", x, (out,), window)
    return out


def avg_pool2d_backward_out(
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    *,
    grad_input: Tensor,
) -> Tensor:
    """Write the gradient of x [..., h, w] to `grad_input`."""
    del x, ceil_mode
    window = _window(kernel_size, stride, padding, (1,), count_include_pad, divisor_override or 0)
    _run_backward("avg", (grad,), grad_input, window)
    return grad_input


def adaptive_avg_pool2d(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Return the means of x [..., h, w] over out_h x out_w windows that tile it."""
    out = x.new_empty((*x.shape[:-2], *output_size))
    _run("adaptive", x, (out,), ADAPTIVE)
    return out


def adaptive_avg_pool2d_out(x: Tensor, output_size: Sequence[int], *, out: Tensor) -> Tensor:
    """Write what `adaptive_avg_pool2d` returns to `out`."""
    out.resize_((*x.shape[:-2], *output_size))
    _run("adaptive", x, (out,), ADAPTIVE)
    return out


def adaptive_avg_pool2d_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of x [..., h, w]."""
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    _run_backward("adaptive", (grad,), grad_x, ADAPTIVE)
    return grad_x


def _window(
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
    count_pad: bool = False,
    divisor: int = 0,
) -> Window:
    """Return the window of torch's arguments; without a stride it is the kernel's size."""
    return Window(
        pair(kernel), pair(stride or kernel), pair(pad), pair(dilation), count_pad, divisor
    )


def _pooled(x: Tensor, window: Window, ceil_mode: bool) -> tuple[int, ...]:
    """Return the shape of x [..., h, w] pooled."""
    check_planes(x, 2)
    steps = zip(
        x.shape[-2:], window.kernel, window.stride, window.pad, window.dilation, strict=True
    )
    return (*x.shape[:-2], *(pooled(n, Regular(k, s, p, d), ceil_mode) for n, k, s, p, d in steps))


def _run(kind: Name, x: Tensor, outputs: Sequence[Tensor], window: Window) -> None:
    """Write the pooled x to `outputs`: for a maximum (indices, y), else (y,)."""
    y = outputs[-1]
    if y.numel() == 0:
        return
    _call(_kind(kind, False, x, y, window), (x,), outputs)


def _run_backward(kind: Name, inputs: Sequence[Tensor], grad_x: Tensor, window: Window) -> None:
    """Write the gradient to `grad_x`; `inputs` are (grad, indices) for a maximum, else (grad,)."""
    if grad_x.numel() == 0 or inputs[0].numel() == 0:
        grad_x.zero_()
        return
    _call(_kind(kind, True, grad_x, inputs[0], window), inputs, (grad_x,))


def _call(kind: Kind, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Launch on dense tensors, and copy to the outputs that are not."""
    given = [tensor.contiguous() for tensor in inputs]
    dense = [out if out.is_contiguous() else out.new_empty(out.shape) for out in outputs]
    addresses = [tensor.data_ptr() for tensor in (*given, *dense)]
    _prepared(kind, are_aligned(addresses))(*addresses)
    for out, result in zip(outputs, dense, strict=True):
        if out is not result:
            out.copy_(result)


def _kind(kind: Name, backward: bool, x: Tensor, y: Tensor, window: Window) -> Kind:
    *planes, height, width = x.shape
    out_h, out_w = y.shape[-2:]
    return Kind(
        kind, backward, x.get_device(), x.dtype, prod(planes), height, width, out_h, out_w, window
    )


@lru_cache(maxsize=4096)
def _prepared(kind: Kind, aligned: bool) -> Launch:
    """Return the launch for tensors that begin where any access of a GPU may, or for others."""
    return _backward(kind, aligned) if kind.backward else _forward(kind, aligned)


def _forward(kind: Kind, aligned: bool) -> Launch:
    limits = devices()[kind.device].limits
    w = kind.window
    sides = zip(
        (kind.height, kind.width), (kind.out_h, kind.out_w), w.kernel, w.stride, w.pad, w.dilation,
        strict=True,
    )  # fmt: skip
    whole = all(p == 0 and (out - 1) * s + (k - 1) * d < n for n, out, k, s, p, d in sides)
    outputs = kind.planes * kind.out_h * kind.out_w
    if limits.kind == "cpu":
        source = _rendered("pool", kind, whole=whole, flat=0, abreast=0)
        return _launch(kind, source, (kind.out_w, kind.out_h, kind.planes), None)
    abreast = _abreast(kind) if whole and aligned else 0
    source = _rendered("pool", kind, whole=whole, flat=outputs, abreast=abreast)
    items = outputs // max(abreast, 1)
    local = _local(items, limits)
    return _launch(kind, source, (round_up(items, local),), (local,))


def _abreast(kind: Kind) -> int:
    """Return how many neighbouring windows a vector of a row holds, all of it; 0 if none does."""
    dtype, width = dtype_of(kind.dtype), kind.window.kernel[1]
    tiles = kind.kind != "adaptive" and width == kind.window.stride[1] and dtype.value == "float"
    if not tiles or kind.window.dilation[1] != 1 or width not in (2, 4):
        return 0
    abreast = ACCESS_ITEMS // width
    return abreast if kind.width % ACCESS_ITEMS == 0 and kind.out_w % abreast == 0 else 0


def _local(items: int, limits: Limits) -> int:
    """Return the work-items of a GPU's group: many where a device is full, which starts fewer."""
    fills = items >= WORK_ITEMS_PER_UNIT * limits.compute_units
    return min(LARGE, limits.max_work_group) if fills else LOCAL


def _backward(kind: Kind, aligned: bool) -> Launch:
    dtype = dtype_of(kind.dtype)
    # sums in narrow storage would round at every step
    exact = dtype.storage == dtype.value
    limits = devices()[kind.device].limits
    cpu = limits.kind == "cpu"
    scatters = kind.kind == "max" and exact and cpu
    abreast = _abreast(kind) if aligned and not cpu and _covers(kind) else 0
    stride, pad = kind.window.stride, kind.window.pad
    block = stride if kind.kind == "max" and prod(stride) <= MOST_SUMS else (1, 1)
    if abreast:
        block = (stride[0], ACCESS_ITEMS)
    sides = zip((kind.height, kind.width), pad, block, strict=True)
    blocks = prod(ceil_div(size + p % b, b) for size, p, b in sides)
    items = kind.planes * (1 if scatters else blocks)
    source = _rendered(
        "pool_backward", kind, scatters=scatters, block=block, items=items, abreast=abreast
    )
    local = 1 if scatters else LOCAL if cpu else _local(items, limits)
    return _launch(kind, source, (round_up(items, local),), (local,))


def _covers(kind: Kind) -> bool:
    """Whether the windows of a maximum are tiles that cover their plane."""
    w = kind.window
    sizes = (kind.out_h * w.stride[0], kind.out_w * w.stride[1])
    return (
        kind.kind == "max" and w.kernel == w.stride and w.pad == (0, 0) and w.dilation == (1, 1)
        and sizes == (kind.height, kind.width)
    )  # fmt: skip


def _rendered(template: str, kind: Kind, **more: object) -> str:
    return render(
        template, package="ocl_backend", kind=kind.kind, dtype=dtype_of(kind.dtype),
        height=kind.height, width=kind.width, out_h=kind.out_h, out_w=kind.out_w,
        **asdict(kind.window), **more,
    )  # fmt: skip


def _launch(
    kind: Kind, source: str, global_size: tuple[int, ...], local_size: tuple[int, ...] | None
) -> Launch:
    image, indices = Pointer(dtype_of(kind.dtype).item_bytes), Pointer(torch.int64.itemsize)
    arguments: list[Argument] = [image, indices, image] if kind.kind == "max" else [image, image]
    name = f"pool_{kind.kind}{'_backward' if kind.backward else ''}"
    return prepare(kind.device, source, name, global_size, arguments, local_size)


OPERATORS: dict[str, Callable[..., Any]] = {
    "max_pool2d_with_indices.out": max_pool2d_out,
    "max_pool2d_with_indices_backward.grad_input": max_pool2d_backward_out,
    "avg_pool2d.out": avg_pool2d_out,
    "avg_pool2d_backward.grad_input": avg_pool2d_backward_out,
    "_adaptive_avg_pool2d": adaptive_avg_pool2d,
    "_adaptive_avg_pool2d_backward": adaptive_avg_pool2d_backward,
    "adaptive_avg_pool2d.out": adaptive_avg_pool2d_out,
}
"""Implementations by aten name."""
