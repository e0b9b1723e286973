"""Resizing by the items around each position, in one to three dimensions, and its gradients.

Nearest, linear and cubic. `upsampling` has what widens its filters, `byte_resizing` whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.kernels import axis_taps
from ocl_backend.kernels.axis_sums import Along, axis_sums
from ocl_backend.kernels.memory_formats import FORMATS, in_pixels
from ocl_backend.ops.image.filters import scale_of

REACHES = {"linear": 1, "bilinear": 1, "trilinear": 1, "bicubic": 2}
NEAREST = {"nearest": 0.0, "_nearest_exact": 0.5}


def nearest(x: Tensor, output_size: Sequence[int], *scales: float | None, shift: float) -> Tensor:
    """Return copies of x's [batch, channels, ...] items that lie nearest.

    Args:
        x: any dtype.
        output_size: a size for each dimension after channels.
        scales: that were asked for, where they were.
        shift: 0.5 to go by the items' middles, 0 by their begins.
    """
    _check(x.shape, output_size)
    return _resized(
        x, output_size, _nearest(x.shape, output_size, scales, shift, x.dtype is torch.float64)
    )


def nearest_backward(
    grad: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
    shift: float,
) -> Tensor:
    """Return the sums of the gradients of each item's copies."""
    _check(input_size, output_size)
    along = _nearest(input_size, output_size, scales, shift, False)
    return _resized(grad, input_size[2:], tuple(each.gradient() for each in along))


def interpolated(
    x: Tensor, output_size: Sequence[int], align: bool, *scales: float | None, reach: int
) -> Tensor:
    """Return x [batch, channels, ...] between its items.

    Args:
        x: floats.
        output_size: a size for each dimension after channels.
        align: the middles of the outermost items stay.
        scales: that were asked for, where they were.
        reach: items on either side that count: 1 linear, 2 cubic.
    """
    _check(x.shape, output_size)
    return _resized(x, output_size, _interpolated(x.shape, output_size, align, scales, reach))


def interpolated_backward(
    grad: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align: bool,
    *scales: float | None,
    reach: int,
) -> Tensor:
    """Return the gradient of x of `input_size`."""
    _check(input_size, output_size)
    along = _interpolated(input_size, output_size, align, scales, reach)
    return _resized(grad, input_size[2:], tuple(each.gradient() for each in along))


def _check(shape: Sequence[int], output_size: Sequence[int]) -> None:
    """Raise RuntimeError where x or the result have no items, or are of other dimensions."""
    if len(shape) != len(output_size) + 2 or 0 in (*shape[1:], *output_size):
        raise RuntimeError(f"resizing of {[*shape]} to {[*output_size]}")


def _each(
    shape: Sequence[int], output_size: Sequence[int], scales: Sequence[float | None]
) -> zip[tuple[int, int, float | None]]:
    given = [*scales, *[None] * len(output_size)][: len(output_size)]
    return zip(shape[2:], output_size, given, strict=True)


def _nearest(
    shape: Sequence[int],
    output_size: Sequence[int],
    scales: Sequence[float | None],
    shift: float,
    exact: bool,
) -> tuple[Along, ...]:
    """Return the taps of each dimension; the CPU computes `exact` places forward alone."""
    return tuple(
        Along(axis_taps.nearest, (size, out, scale, shift, exact))
        for size, out, scale in _each(shape, output_size, scales)
    )


def _interpolated(
    shape: Sequence[int],
    output_size: Sequence[int],
    align: bool,
    scales: Sequence[float | None],
    reach: int,
) -> tuple[Along, ...]:
    return tuple(
        Along(
            axis_taps.interpolated,
            (size, out, reach, scale_of(size, out, align, scale), align),
        )
        for size, out, scale in _each(shape, output_size, scales)
    )


def _resized(x: Tensor, sizes: Sequence[int], along: tuple[Along, ...]) -> Tensor:
    """Return x with other sizes, channels last where they were."""
    form = FORMATS[x.dim()] if in_pixels(x) else torch.contiguous_format
    y = torch.empty((*x.shape[:2], *sizes), dtype=x.dtype, device=x.device, memory_format=form)
    return axis_sums(x, along, y)


def operators() -> dict[str, Callable[..., Any]]:
    """Return the implementations by aten name."""
    pairs: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {}
    for name, shift in NEAREST.items():
        prefix = "_upsample_nearest_exact" if shift else f"upsample_{name}"
        for rank in (1, 2, 3):
            pairs[f"{prefix}{rank}d"] = (
                partial(nearest, shift=shift),
                partial(nearest_backward, shift=shift),
            )
    for name, rank in (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)):
        reach = REACHES[name]
        pairs[f"upsample_{name}{rank}d"] = (
            partial(interpolated, reach=reach),
            partial(interpolated_backward, reach=reach),
        )
    found: dict[str, Callable[..., Any]] = {}
    for name, (forward, backward) in pairs.items():
        found |= {name: forward, f"{name}.out": into(forward)}
        found |= {
            f"{name}_backward": backward,
            f"{name}_backward.grad_input": into(backward, "grad_input"),
        }
    return found
