"""Pooling by tables of windows: all kinds in three dimensions, adaptive and fractional maxima.

A table says where each window along a dimension begins and ends; one kernel takes maxima, one takes
means, whatever made the windows. The usual 2-d kinds, which are hot, are in `pooling`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.windows import (
    Adaptive,
    Kind,
    Regular,
    Tables,
    check_planes,
    pooled,
    sized,
    tables,
    transposed,
)
from ocl_backend.ops.linear.matmul import resized

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
)

MEAN = "T sum = 0;\n" + LOOPS % "sum += value;" + "const T mean = sum / count;\n"

BOUNDS = tuple(f"{end}_{dim}" for dim in "dhw" for end in ("first", "last"))
NUMBERS = ("plane_items", "row_items", "dilation_d", "dilation_h", "dilation_w")


@cache
def _kernel(dtype: torch.dtype, maximum: bool) -> Kernel:
    more = [] if maximum else [Operand("count")]
    where = [Operand("indices", torch.int64, "output", "long", "where")] if maximum else []
    return Kernel(
        "pool_maximum" if maximum else "pool_mean",
        dtype_of(dtype).value,
        (
            Operand("x", dtype, "address"),
            *(Operand(name, torch.int64, "input", "long") for name in BOUNDS),
            *more,
            *(Scalar(name, "long") for name in NUMBERS),
            Operand("out", dtype, "output", "", "best" if maximum else "mean"),
            *where,
        ),
        MAXIMUM if maximum else MEAN,
        scalar_only=True,
        work=8,
    )


def _numbers(x: Tensor, kinds: Sequence[Kind]) -> list[int]:
    height, width = x.shape[-2:]
    return [height * width, width, *(kind.dilation for kind in kinds)]


def _maxima(x: Tensor, bounds: Tables, kinds: Sequence[Kind], out: Tensor, indices: Tensor) -> None:
    """Write the maxima of x [planes, d, h, w] to `out`, and where in the plane they are."""
    given: list[Tensor | float] = [x, *bounds, *_numbers(x, kinds), out, indices]
    launch(_kernel(x.dtype, True), out.shape, given, {"x": (x.stride(0), 0, 0, 0)})


def _means(x: Tensor, bounds: Tables, count: Tensor, kinds: Sequence[Kind], out: Tensor) -> None:
    """Write the windows' sums over `count` to `out`, of x [planes, d, h, w]."""
    given: list[Tensor | float] = [x, *bounds, count, *_numbers(x, kinds), out]
    launch(_kernel(x.dtype, False), out.shape, given, {"x": (x.stride(0), 0, 0, 0)})


def _volume(x: Tensor, rank: int) -> Tensor:
    """Return x [..., d, h, w], or [..., h, w] where `rank` is 2, as dense [planes, d, h, w]."""
    sizes = x.shape[-rank:]
    return x.contiguous().view(prod(x.shape[:-rank]), *(1,) * (3 - rank), *sizes)


def _padded(kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    return (*(Adaptive(),) * (3 - len(kinds)), *kinds)


def _largest(x: Tensor, kinds: Sequence[Kind], out: Tensor, indices: Tensor) -> None:
    """Write the maxima of x's windows, one kind per dimension, and where they lay."""
    source, rank, kinds = _volume(x, len(kinds)), len(kinds), _padded(kinds)
    values, where = _volume(out, rank), _volume(indices, rank)
    bounds = tables(x.device, kinds, tuple(source.shape[1:]), tuple(values.shape[1:]))[:6]
    _maxima(source, bounds, kinds, values, where)
    _written(out, values)
    _written(indices, where)


def _average(x: Tensor, kinds: Sequence[Kind], out: Tensor, divisor: int | None = None) -> None:
    """Write the means of x's windows, or their sums over `divisor`."""
    source, kinds = _volume(x, len(kinds)), _padded(kinds)
    means = _volume(out, 3)
    *bounds, count = tables(x.device, kinds, tuple(source.shape[1:]), tuple(means.shape[1:]))
    if divisor:
        count = torch.tensor(divisor, device=x.device)
    _means(source, tuple(bounds), count, kinds, means)
    _written(out, means)


def _average_backward(
    grad: Tensor, kinds: Sequence[Kind], grad_x: Tensor, divisor: int | None = None
) -> None:
    """Write the gradient of x: each item's windows' gradients over what their means divide by."""
    given, kinds, target = _volume(grad, 3), _padded(kinds), _volume(grad_x, 3)
    sizes = tuple(target.shape[1:]), tuple(given.shape[1:])
    count = divisor or tables(grad.device, kinds, *sizes)[6]
    *bounds, one = transposed(grad.device, kinds, *sizes)
    _means(given / count, tuple(bounds), one, (Adaptive(),) * 3, target)
    _written(grad_x, target)


def _written(out: Tensor, dense: Tensor) -> None:
    """Copy to an output that was not dense."""
    if dense.data_ptr() != out.data_ptr():
        out.copy_(dense.view(out.shape))


def _scattered(grad: Tensor, indices: Tensor, rank: int, grad_x: Tensor) -> Tensor:
    """Write the gradient of maxima: each goes to the item it came from."""
    grad_x.zero_()
    flat = _volume(grad_x, rank).flatten(1)
    flat.scatter_add_(1, _volume(indices, rank).flatten(1), _volume(grad, rank).flatten(1))
    _written(grad_x, flat)
    return grad_x


def _regular(*parameters: Sequence[int], count_pad: bool = False) -> tuple[Regular, ...]:
    """Return the windows of torch's kernel, stride (none: the kernel), padding, dilation."""
    kernel, stride, padding, dilation = parameters
    spread = [tuple(p) * 3 if len(p) == 1 else p for p in (kernel, stride or kernel, padding)]
    steps = tuple(dilation) * 3 if len(dilation) == 1 else dilation
    dims = zip(*spread, steps, strict=True)
    return tuple(Regular(k, s, p, d, count_pad) for k, s, p, d in dims)


def _pooled(x: Tensor, kinds: Sequence[Regular], ceil_mode: bool) -> tuple[int, ...]:
    """Return the shape of x [..., d, h, w] pooled."""
    check_planes(x, 3)
    dims = zip(x.shape[-3:], kinds, strict=True)
    return (*x.shape[:-3], *(pooled(size, kind, ceil_mode) for size, kind in dims))


def max_pool3d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the maxima of x [..., d, h, w] and where in the volume they lay."""
    kinds = _regular(kernel_size, stride, padding, dilation)
    out = x.new_empty(_pooled(x, kinds, ceil_mode))
    indices = torch.empty_like(out, dtype=torch.int64)
    _largest(x, kinds, out, indices)
    return out, indices


def max_pool3d_backward(
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Return the gradient of x [..., d, h, w]."""
    return _scattered(grad, indices, 3, torch.empty_like(x))


def avg_pool3d_out(
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
    """Write the means of x [..., d, h, w] to `out`."""
    kinds = _regular(kernel_size, stride, padding, (1,), count_pad=count_include_pad)
    sized(out, _pooled(x, kinds, ceil_mode), x.dtype)
    _average(x, kinds, out, divisor_override)
    return out


def avg_pool3d_backward_out(
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
    """Write the gradient of x [..., d, h, w] to `grad_input`."""
    kinds = _regular(kernel_size, stride, padding, (1,), count_pad=count_include_pad)
    resized(grad_input, x.shape)
    _average_backward(grad, kinds, grad_input, divisor_override)
    return grad_input


def adaptive_avg_pool3d(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Return the means of x [..., d, h, w] over windows that tile it."""
    out = x.new_empty((*x.shape[:-3], *output_size))
    _average(x, (Adaptive(),) * 3, out)
    return out


def adaptive_avg_pool3d_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of x [..., d, h, w]."""
    grad_x = torch.empty_like(x)
    _average_backward(grad, (Adaptive(),) * 3, grad_x)
    return grad_x


def adaptive_max_pool_out(
    x: Tensor, output_size: Sequence[int], *, out: Tensor, indices: Tensor
) -> tuple[Tensor, Tensor]:
    """Write the maxima of x's last dimensions over windows that tile them, and where they lay."""
    shape = (*x.shape[: -len(output_size)], *output_size)
    _largest(
        x, (Adaptive(),) * len(output_size), sized(out, shape, x.dtype), resized(indices, shape)
    )
    return out, indices


def _adaptive_max_backward(rank: int) -> Callable[..., Tensor]:
    return lambda grad, x, indices, *, grad_input: _scattered(
        grad, indices, rank, resized(grad_input, x.shape)
    )


def fractional_max_pool_out(
    x: Tensor,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: Tensor,
    *,
    output: Tensor,
    indices: Tensor,
) -> tuple[Tensor, Tensor]:
    """Write maxima over windows at pseudo-random places (Graham, arXiv:1412.6071).

    `random_samples` [batch, channels, dims] shift each plane's windows; of two dimensions the
    first is the width's, of three the depth's.
    """
    rank = len(output_size)
    for written in (output, indices):
        resized(written, (*x.shape[:-rank], *output_size))
    source, values, where = (_volume(t, rank) for t in (x, output, indices))
    samples = random_samples.reshape(-1, rank)
    if rank == 2:
        samples = samples.flip(1)
    bounds = list(tables(x.device, (Adaptive(),) * 3, (1, 1, 1), (1, 1, 1))[: 2 * (3 - rank)])
    for dim, (kernel, out) in enumerate(zip(kernel_size, output_size, strict=True)):
        first = _fractional(samples[:, dim], x.shape[dim - rank], out, kernel)
        shape = [-1, *(out if d == dim + 3 - rank else 1 for d in range(3))]
        bounds += [first.view(shape), first.view(shape) + kernel]
    _maxima(source, tuple(bounds), (Adaptive(),) * 3, values, where)
    _written(output, values)
    _written(indices, where)
    return output, indices


def _fractional(samples: Tensor, size: int, out: int, kernel: int) -> Tensor:
    """Return where the windows of every plane begin, [planes, out]."""
    alpha = (size - kernel) / (out - 1) if out > 1 else 0.0
    steps = torch.arange(out, device=samples.device, dtype=samples.dtype)
    shifts = samples.unsqueeze(1)
    first = ((steps + shifts) * alpha).long() - (shifts * alpha).long()
    first[:, -1] = size - kernel
    return first


def _fractional_backward(rank: int) -> Callable[..., Tensor]:
    def backward(grad: Tensor, x: Tensor, *sizes_and_indices: Any, **out: Tensor) -> Tensor:
        target = resized(out["grad_input"], x.shape) if out else torch.empty_like(x)
        return _scattered(grad, sizes_and_indices[-1], rank, target)

    return backward


OPERATORS: dict[str, Callable[..., Any]] = {
    "max_pool3d_with_indices": max_pool3d,
    "max_pool3d_with_indices.out": into(max_pool3d, "out", "indices"),
    "max_pool3d_with_indices_backward": max_pool3d_backward,
    "max_pool3d_with_indices_backward.grad_input": into(max_pool3d_backward, "grad_input"),
    "avg_pool3d.out": avg_pool3d_out,
    "avg_pool3d_backward.grad_input": avg_pool3d_backward_out,
    "_adaptive_avg_pool3d": adaptive_avg_pool3d,
    "_adaptive_avg_pool3d_backward": adaptive_avg_pool3d_backward,
    "adaptive_avg_pool3d.out": into(adaptive_avg_pool3d),
    "adaptive_avg_pool3d_backward.grad_input": into(adaptive_avg_pool3d_backward, "grad_input"),
    "adaptive_max_pool2d.out": adaptive_max_pool_out,
    "adaptive_max_pool3d.out": adaptive_max_pool_out,
    "adaptive_max_pool2d_backward.grad_input": _adaptive_max_backward(2),
    "adaptive_max_pool3d_backward.grad_input": _adaptive_max_backward(3),
    "fractional_max_pool2d.output": fractional_max_pool_out,
    "fractional_max_pool3d.output": fractional_max_pool_out,
    "fractional_max_pool2d_backward.grad_input": _fractional_backward(2),
    "fractional_max_pool3d_backward": _fractional_backward(3),
    "fractional_max_pool3d_backward.grad_input": _fractional_backward(3),
}
"""Implementations by aten name."""
