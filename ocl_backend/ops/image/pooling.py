"""Pooling, forward and backward: maximum, average, adaptive and fractional, in 2 and 3 dimensions.

torch turns 1-d pooling into these. How windows are walked is said in `pooling_2d` and
`pooling_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into, resized
from ocl_backend.kernels.axis_sums import Along, axis_sums
from ocl_backend.kernels.axis_taps import means
from ocl_backend.kernels.max_pool_rows import max_rows, max_rows_backward
from ocl_backend.kernels.memory_formats import in_pixels, like_image
from ocl_backend.kernels.pooling_2d import ADAPTIVE, pool, pool_backward
from ocl_backend.kernels.pooling_tables import (
    average_of_integers,
    largest,
    maxima,
    scattered,
    volume,
    written,
)
from ocl_backend.kernels.windows import Adaptive, Regular, anywhere, pooled, regular, tables
from oclgen.opencl.device import devices


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
    windows = regular(2, kernel_size, stride, padding, dilation)
    shape = _pooled(x, windows, ceil_mode)
    sized(out, shape, x.dtype)
    sized(indices, shape, torch.int64)
    if not max_rows(x, out, indices, windows):
        pool("max", x, (indices, out), windows)
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
    windows = regular(2, kernel_size, stride, padding, dilation)
    if not max_rows_backward(grad, indices, grad_input, windows):
        pool_backward("max", (grad, indices), grad_input, windows)
    return grad_input


def max_pool3d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the maxima of x [..., d, h, w] and where in the volume they lay."""
    windows = regular(3, kernel_size, stride, padding, dilation)
    shape, batched = _pooled(x, windows, ceil_mode), x.dim() == 5
    out = like_image(shape, x, 3) if batched else like_image((1, *shape), x[None], 3)[0]
    indices = torch.empty_like(out, dtype=torch.int64)
    if not max_rows(x, out, indices, windows):
        largest(x, windows, out, indices)
    return out, indices


def max_pool3d_backward(grad: Tensor, x: Tensor, *window_and_indices: Any) -> Tensor:
    """Return the gradient of x [..., d, h, w]; what lay nowhere has none."""
    *window, ceil_mode, indices = window_and_indices
    del ceil_mode
    grad_x = torch.empty_like(x)
    if len(window) == 4 and max_rows_backward(grad, indices, grad_x, regular(3, *window)):
        return grad_x
    if len(window) > 3 and max(window[3]) > 1:
        grad, indices = grad.masked_fill(indices < 0, 0), indices.clamp(min=0)
    return scattered(grad, indices, 3, grad_x)


def avg_pool_out(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor,
    rank: int,
) -> Tensor:
    """Write the means of x's last `rank` dimensions to `out`."""
    windows = regular(rank, kernel_size, stride, padding, count_pad=count_include_pad)
    sized(out, _pooled(x, windows, ceil_mode), x.dtype)
    if not x.is_floating_point():
        average_of_integers(x, windows, out, divisor_override or 0)
    elif rank == 2 and not _takes_axes(x, out):
        pool("avg", x, (out,), windows, divisor_override or 0)
    else:
        axis_sums(x, _means(windows, x.shape, out.shape, divisor_override), out)
    return out


def avg_pool_backward_out(
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
    rank: int,
) -> Tensor:
    """Write the gradient of x, whose last `rank` dimensions were pooled, to `grad_input`."""
    del ceil_mode
    windows = regular(rank, kernel_size, stride, padding, count_pad=count_include_pad)
    resized(grad_input, x.shape)
    if rank == 2 and not _takes_axes(grad, grad_input):
        pool_backward("avg", (grad,), grad_input, windows, divisor_override or 0)
    else:
        along = _means(windows, x.shape, grad.shape, divisor_override)
        axis_sums(grad, tuple(each.gradient() for each in along), grad_input)
    return grad_input


def adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Return the means of x's last dimensions over windows that tile them."""
    rank = len(output_size)
    _check_adaptive(x, rank)
    out = like_image((*x.shape[:-rank], *output_size), x, rank)
    if rank == 2 and not _takes_axes(x, out):
        pool("adaptive", x, (out,), ADAPTIVE)
    else:
        axis_sums(x, _means((Adaptive(),) * rank, x.shape, out.shape), out)
    return out


def adaptive_avg_pool_backward(grad: Tensor, x: Tensor, *, rank: int) -> Tensor:
    """Return the gradient of x, whose last `rank` dimensions were pooled."""
    _check_windows(grad)
    grad_x = like_image(x.shape, x, rank)
    if rank == 2 and not _takes_axes(grad, grad_x):
        pool_backward("adaptive", (grad,), grad_x, ADAPTIVE)
    else:
        along = _means((Adaptive(),) * rank, x.shape, grad.shape)
        axis_sums(grad, tuple(each.gradient() for each in along), grad_x)
    return grad_x


def _takes_axes(x: Tensor, y: Tensor) -> bool:
    """Say whether means and their gradients are sums along axes, rather than of windows.

    On GPUs windows are faster, but read and write planes alone.
    """
    return devices()[x.get_device()].limits.kind == "cpu" or in_pixels(y)


def _means(
    windows: Sequence[Regular | Adaptive],
    shape: Sequence[int],
    out: Sequence[int],
    divisor: int | None = None,
) -> tuple[Along, ...]:
    """Return the taps of means over the last dimensions; the first one's take the divisor."""
    rank = len(windows)
    divisors = [divisor or 0, *[1 if divisor else 0] * (rank - 1)]
    given = zip(windows, shape[-rank:], out[-rank:], divisors, strict=True)
    return tuple(Along(means, each) for each in given)


def adaptive_max_pool_out(
    x: Tensor, output_size: Sequence[int], *, out: Tensor, indices: Tensor
) -> tuple[Tensor, Tensor]:
    """Write the maxima of x's last dimensions over windows that tile them, and where they lay."""
    rank = len(output_size)
    _check_adaptive(x, rank)
    shape = (*x.shape[:-rank], *output_size)
    largest(x, (Adaptive(),) * rank, sized(out, shape, x.dtype), resized(indices, shape))
    return out, indices


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
    batch = x.shape[0] if x.dim() == rank + 2 else 1
    if random_samples.shape[0] < batch or random_samples.shape[1] != x.shape[-rank - 1]:
        raise RuntimeError(f"samples {[*random_samples.shape]} for an input {[*x.shape]}")
    for result in (output, indices):
        resized(result, (*x.shape[:-rank], *output_size))
    if not output.numel():
        return output, indices
    source, values, where = (volume(t, rank) for t in (x, output, indices))
    samples = random_samples[:batch].reshape(-1, rank)
    if rank == 2:
        samples = samples.flip(1)
    one = tables(x.device, (Adaptive(),) * 3, (1, 1, 1), (1, 1, 1))[0]
    bounds = [*one[: 2 * (3 - rank)]]
    for dim, (kernel, out) in enumerate(zip(kernel_size, output_size, strict=True)):
        first = _fractional(samples[:, dim], x.shape[dim - rank], out, kernel)
        shape = [-1, *(out if d == dim + 3 - rank else 1 for d in range(3))]
        bounds += [first.view(shape), first.view(shape) + kernel]
    maxima(source, tuple(bounds), (Adaptive(),) * 3, values, where)
    written(output, values)
    written(indices, where)
    return output, indices


def _fractional(samples: Tensor, size: int, out: int, kernel: int) -> Tensor:
    """Return where the windows of every plane begin, [planes, out]."""
    alpha = (size - kernel) / (out - 1) if out > 1 else 0.0
    steps = torch.arange(out, device=samples.device, dtype=samples.dtype)
    shifts = samples.unsqueeze(1)
    first = ((steps + shifts) * alpha).long() - (shifts * alpha).long()
    first[:, -1] = size - kernel
    return first


def adaptive_max_pool_backward_out(
    grad: Tensor, x: Tensor, indices: Tensor, *, grad_input: Tensor, rank: int
) -> Tensor:
    """Write the gradient of x, whose last `rank` dimensions were pooled, to `grad_input`."""
    _check_windows(grad)
    resized(grad_input, x.shape)
    windows = _even(x.shape[-rank:], grad.shape[-rank:])
    if windows and max_rows_backward(grad, indices, grad_input, windows):
        return grad_input
    is_cpu = devices()[x.get_device()].limits.kind == "cpu"
    if rank == 2 and (windows or is_cpu):
        sides = windows or tuple(map(anywhere, x.shape[-rank:], grad.shape[-rank:]))
        pool_backward("max", (grad, indices), grad_input, sides)
        return grad_input
    return scattered(grad, indices, rank, grad_input)


def _even(sizes: Sequence[int], out: Sequence[int]) -> tuple[Regular, ...]:
    """Return the windows that tile all sizes, () if windows of a dimension differ."""
    if any(size % parts for size, parts in zip(sizes, out, strict=True)):
        return ()
    steps = [size // parts for size, parts in zip(sizes, out, strict=True)]
    return tuple(Regular(step, step) for step in steps)


def scattered_out(
    grad: Tensor, x: Tensor, *sizes_and_indices: Any, grad_input: Tensor, rank: int
) -> Tensor:
    """Write the gradient of maxima of x's last `rank` dimensions to `grad_input`."""
    return scattered(grad, sizes_and_indices[-1], rank, resized(grad_input, x.shape))


def _check_adaptive(x: Tensor, rank: int) -> None:
    """Refuse what torch refuses: volumes may lack their first dimension, planes any but their own.

    Raises:
        NotImplementedError: x is of integers.
        RuntimeError: x has no items to pool, or other numbers of dimensions than rank + 1 and + 2.
    """
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f"adaptive pooling of {x.dtype}; give floats")
    filled = x.shape[1:] if rank == 3 else x.shape[-rank:]
    if 0 in filled or x.dim() not in (rank + 1, rank + 2):
        raise RuntimeError(f"adaptive pooling of {x.dtype} {[*x.shape]}")


def _check_windows(grad: Tensor) -> None:
    """Raise RuntimeError where x was pooled to nothing: no item has a gradient."""
    if 0 in grad.shape[1:]:
        raise RuntimeError(
            "Expected grad_output to have non-zero size for non-batch dimensions, but it has "
            f"{[*grad.shape]}"
        )


def _pooled(x: Tensor, windows: Sequence[Regular], ceil_mode: bool) -> tuple[int, ...]:
    """Return the shape of x [batch?, channels, ...] pooled.

    Raises:
        RuntimeError: x has no channel or no items, or its windows are none.
    """
    rank = len(windows)
    if x.dim() not in (rank + 1, rank + 2) or 0 in x.shape[-rank - 1 :]:
        raise RuntimeError(
            f"pooling of {[*x.shape]}: give {rank + 1} or {rank + 2} dimensions, of which the "
            "batch alone may be empty"
        )
    sides = zip(x.shape[-rank:], windows, strict=True)
    return (*x.shape[:-rank], *(pooled(size, along, ceil_mode) for size, along in sides))


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


OPERATORS: dict[str, Callable[..., Any]] = {
    "max_pool2d_with_indices.out": max_pool2d_out,
    "max_pool2d_with_indices_backward.grad_input": max_pool2d_backward_out,
    "max_pool3d_with_indices": max_pool3d,
    "max_pool3d_with_indices.out": into(max_pool3d, "out", "indices"),
    "max_pool3d_with_indices_backward": max_pool3d_backward,
    "max_pool3d_with_indices_backward.grad_input": into(max_pool3d_backward, "grad_input"),
    "avg_pool2d.out": partial(avg_pool_out, rank=2),
    "avg_pool2d_backward.grad_input": partial(avg_pool_backward_out, rank=2),
    "avg_pool3d.out": partial(avg_pool_out, rank=3),
    "avg_pool3d_backward.grad_input": partial(avg_pool_backward_out, rank=3),
    "_adaptive_avg_pool2d": adaptive_avg_pool,
    "_adaptive_avg_pool2d_backward": partial(adaptive_avg_pool_backward, rank=2),
    "adaptive_avg_pool2d.out": into(adaptive_avg_pool),
    "_adaptive_avg_pool3d": adaptive_avg_pool,
    "_adaptive_avg_pool3d_backward": partial(adaptive_avg_pool_backward, rank=3),
    "adaptive_avg_pool3d.out": into(adaptive_avg_pool),
    "adaptive_avg_pool3d_backward.grad_input": into(
        partial(adaptive_avg_pool_backward, rank=3), "grad_input"
    ),
    "adaptive_max_pool2d.out": adaptive_max_pool_out,
    "adaptive_max_pool2d_backward.grad_input": partial(adaptive_max_pool_backward_out, rank=2),
    "adaptive_max_pool3d.out": adaptive_max_pool_out,
    "adaptive_max_pool3d_backward.grad_input": partial(adaptive_max_pool_backward_out, rank=3),
    "fractional_max_pool2d.output": fractional_max_pool_out,
    "fractional_max_pool2d_backward.grad_input": partial(scattered_out, rank=2),
    "fractional_max_pool3d.output": fractional_max_pool_out,
    "fractional_max_pool3d_backward": max_pool3d_backward,
    "fractional_max_pool3d_backward.grad_input": partial(scattered_out, rank=3),
}
"""Implementations by aten name."""
