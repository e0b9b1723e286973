"""Pooling by tables that say where each window begins and ends: any windows, up to 3 dimensions.

Maxima of windows, their gradient, and means of integers. Maxima in two dimensions have kernels of
their own, in `pooling_2d`; means of floats are sums along axes, `axis_sums`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of, lowest
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.windows import Adaptive, Tables, Windows, tables

LOOPS = """\
for (long d = first_d; d < last_d; d += dilation_d) {
    for (long h = first_h; h < last_h; h += dilation_h) {
        for (long w = first_w; w < last_w; w += dilation_w) {
            const long at = d * plane_items + h * row_items + w;
            const T value = LOAD_x(x_at + at);
            %s
        }
    }
}
"""

MAXIMUM = (
    "T best = 0;\nlong where = -1;\n"
    + LOOPS
    % "if (where < 0 || value > best || value != value) {\n    best = value;\n    where = at;\n}"
    + "const T result = where < 0 ? (T)(%s) : best;\n"
)
"""A window of dilated items may have padding alone: it has the lowest number, which lay nowhere."""
MEAN = "T sum = 0;\n" + LOOPS % "sum += value;" + "const T result = sum / count;\n"

BOUNDS = tuple(f"{end}_{dim}" for dim in "dhw" for end in ("first", "last"))
NUMBERS = ("plane_items", "row_items", "dilation_d", "dilation_h", "dilation_w")


@cache
def _kernel(dtype: torch.dtype, name: str, body: str, *more: Operand) -> Kernel:
    """Return the kernel of x, the tables of windows and `more` operands."""
    bounds = (Operand(name, torch.int64, "input", "long") for name in BOUNDS)
    numbers = (Scalar(name, "long") for name in NUMBERS)
    return Kernel(
        f"pool_{name}",
        dtype_of(dtype).value,
        (Operand("x", dtype, "address"), *bounds, *numbers, *more),
        body,
        scalar_only=True,
        work=8,
    )


def _launch(kernel: Kernel, x: Tensor, bounds: Tables, windows: Windows, *more: Tensor) -> None:
    """Run a kernel over the shape of the last of `more`; x is [planes, d, h, w]."""
    height, width = x.shape[-2:]
    numbers = height * width, width, *(along.dilation for along in windows)
    strides = {"x": (x.stride(0), 0, 0, 0)}
    walked = {p.name: strides[p.name] for p in kernel.operands if p.role == "address"}
    launch(kernel, more[-1].shape, [x, *bounds, *numbers, *more], walked)


def maxima(x: Tensor, bounds: Tables, windows: Windows, out: Tensor, indices: Tensor) -> None:
    """Write the maxima of windows, and where in the plane they are.

    Args:
        x: floats [planes, d, h, w].
        bounds: where each window begins and ends, along each dimension.
        windows: along d, h and w.
        out: [planes, *windows]; written.
        indices: int64 of the same shape; written.
    """
    best = Operand("out", x.dtype, "output", "", "result")
    where = Operand("indices", torch.int64, "output", "long", "where")
    text = MAXIMUM % lowest(x.dtype)
    _launch(_kernel(x.dtype, "maximum", text, best, where), x, bounds, windows, out, indices)


def largest(x: Tensor, windows: Windows, out: Tensor, indices: Tensor) -> None:
    """Write the maxima of windows along a tensor's last dimensions, and where they are.

    Args:
        x: floats [..., *sizes], a size for each of `windows`.
        windows: one to three.
        out: [..., *windows]; written.
        indices: int64 of the same shape, places in a plane or volume; written.
    """
    rank, windows = len(windows), three(windows)
    source, values, where = (volume(tensor, rank) for tensor in (x, out, indices))
    bounds, _ = tables(x.device, windows, tuple(source.shape[1:]), tuple(values.shape[1:]))
    maxima(source, bounds, windows, values, where)
    written(out, values)
    written(indices, where)


def average_of_integers(x: Tensor, windows: Windows, out: Tensor, divisor: int = 0) -> None:
    """Write the means of windows along a tensor's last dimensions, towards zero.

    Args:
        x: integers [..., *sizes], a size for each of `windows`.
        windows: one to three.
        out: [..., *windows]; written.
        divisor: of the sums; 0: the window's items.
    """
    if not out.numel():
        return
    rank, windows = len(windows), three(windows)
    source, means = volume(x, rank), volume(out, rank)
    sizes = tuple(source.shape[1:]), tuple(means.shape[1:])
    bounds, count = tables(x.device, windows, *sizes, divisor)
    result = Operand("out", x.dtype, "output", "", "result")
    kernel = _kernel(x.dtype, "mean", MEAN, Operand("count"), result)
    _launch(kernel, source, bounds, windows, count, means)
    written(out, means)


def scattered(grad: Tensor, indices: Tensor, rank: int, grad_x: Tensor) -> Tensor:
    """Write the gradient of maxima: each goes to the item it came from.

    Args:
        grad: [..., *windows].
        indices: int64 of the same shape, places in a line, plane or volume.
        rank: dimensions of that.
        grad_x: [..., *sizes]; written.

    Returns:
        `grad_x`.
    """
    grad_x.zero_()
    flat = volume(grad_x, rank).flatten(1)
    flat.scatter_add_(1, volume(indices, rank).flatten(1), volume(grad, rank).flatten(1))
    written(grad_x, flat)
    return grad_x


def three(windows: Windows) -> Windows:
    """Return windows along depth, height and width; a dimension that lacks has one item."""
    return (*(Adaptive(),) * (3 - len(windows)), *windows)


def volume(x: Tensor, rank: int) -> Tensor:
    """Return x, whose last `rank` dimensions are pooled, as dense [planes, d, h, w]."""
    sizes: Sequence[int] = x.shape[-rank:]
    return x.contiguous().view(prod(x.shape[:-rank]), *(1,) * (3 - rank), *sizes)


def written(out: Tensor, dense: Tensor) -> None:
    """Copy to an output that was not dense."""
    if dense.data_ptr() != out.data_ptr():
        out.copy_(dense.view(out.shape))
