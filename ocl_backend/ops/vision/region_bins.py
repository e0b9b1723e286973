"""Whole items of regions, by bin: the largest, `roi_pool`, or their mean, `ps_roi_pool`.

Corners are rounded to items, and bins overlap where items do not divide. Fast R-CNN (Girshick 2015)
uses the first; R-FCN (Dai et al. 2016) uses the second, where each bin reads a channel of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, launch
from ocl_backend.kernels.places import Places
from ocl_backend.kernels.plane_sums import zeros_to_add_to
from ocl_backend.kernels.scatter import NARROW, adds_floats, atomic_update, write
from ocl_backend.kernels.vectors import in_type
from ocl_backend.ops.vision.regions import (
    ATOMIC,
    IMAGE,
    add_owned,
    channel_mapping,
    numbers,
    operands,
    owned_regions,
    pooled,
    region_parts,
    walked,
)

HELPERS = (
    faults.NOTE
    + IMAGE
    + """\
// the first item of a bin, and the one behind its last: of [0, size] in any case
long bin_edge(const T from, const T until, const T extra, const T bins, const T bin,
              const int ends, const long size)
{
    const T begin = round(from);
    const T step = fmax(round(until) - begin + extra, 1) / bins;
    const T edge = begin + (ends ? ceil((bin + 1) * step) : floor(bin * step));
    return (long)fmin(fmax(edge, 0), size);
}
"""
)

WALK = """\
const long image = image_of(LOAD_rois(rois_at), images, operator, faults_data);
const T left = LOAD_rois(rois_at + 1) * scale, top = LOAD_rois(rois_at + 2) * scale;
const T right = LOAD_rois(rois_at + 3) * scale, bottom = LOAD_rois(rois_at + 4) * scale;
const long x0 = bin_edge(left, right, EXTRA, bins_x, bin_x, 0, width - LEFT_OUT);
const long x1 = bin_edge(left, right, EXTRA, bins_x, bin_x, 1, width - LEFT_OUT);
const long y0 = bin_edge(top, bottom, EXTRA, bins_y, bin_y, 0, height - LEFT_OUT);
const long y1 = bin_edge(top, bottom, EXTRA, bins_y, bin_y, 1, height - LEFT_OUT);
const T count = max((x1 - x0) * (y1 - y0), 1L);
%s
for (long row = y0; row < y1; ++row) {
    for (long column = x0; column < x1; ++column) {
        const long at = row * x_step_y + column * x_step_x;
        %s
    }
}
"""

LARGEST = WALK % (
    "T y = x1 > x0 && y1 > y0 ? -INFINITY : 0;\nint place = -1;",
    """\
const T value = LOAD_x(x_at + image * x_step_n + at);
        if (value > y || place < 0) {
            y = value;
            place = (int)(row * width + column);
        }""",
)

MEAN = WALK % ("T y = 0;", "y += LOAD_x(x_at + image * x_step_n + at);") + "y /= count;\n"

MEAN_BACKWARD = WALK % ("", "PUT(at, y / count);")


@cache
def _kernel(
    dtype: torch.dtype, name: str, backward: bool = False, of_floats: bool = False
) -> Kernel:
    value = dtype_of(dtype).value
    wide = NARROW.get(dtype, dtype) if backward else dtype
    largest = name == "roi_pool"
    parameters = [*operands(dtype, wide), Operand("y", dtype, "input" if backward else "output")]
    if largest:
        parameters.append(Operand("place", torch.int32, "output", "int"))
    helpers = _helpers(value, largest)
    if backward:
        helpers += atomic_update(value, wide.itemsize, "add", of_floats) + ATOMIC
    body = in_type(LARGEST if largest else MEAN_BACKWARD if backward else MEAN, value)
    label = f"{name}_backward" if backward else name
    return Kernel(label, value, tuple(parameters), body, helpers, scalar_only=True, work=64)


def _helpers(value: str, largest: bool) -> str:
    # of a mean torchvision's definition leaves out the last row and column of the image
    edges = f"#define EXTRA {int(largest)}\n#define LEFT_OUT {int(not largest)}\n"
    return edges + in_type(HELPERS, value)


@cache
def _owned_kernel(dtype: torch.dtype) -> Kernel:
    helpers = _helpers(dtype_of(dtype).value, False)
    return owned_regions("ps_roi_pool_owned", dtype, dtype, (), MEAN_BACKWARD, helpers)


def roi_pool(x: Tensor, rois: Tensor, scale: float, tall: int, wide: int) -> tuple[Tensor, Tensor]:
    """Return the largest items of x [n, c, h, w] in bins of regions, [k, c, tall, wide].

    Regions are as for `roi_align`. Beside it the places of these items in their plane, int32; of
    empty bins, whose value is 0, -1.
    """
    y = pooled(x, rois, (tall, wide), False)
    place = torch.empty_like(y, dtype=torch.int32)
    if y.numel():
        given = [*numbers(x, rois, scale, (tall, wide)), y, place]
        launch(_kernel(x.dtype, "roi_pool"), y.shape, given, walked(x, (tall, wide), False))
        faults.check(x.get_device())
    return y, place


def roi_pool_backward(
    grad: Tensor, rois: Tensor, place: Tensor, scale: float, tall: int, wide: int, *size: int
) -> Tensor:
    """Return the gradient of roi_pool's x, of `size` n, c, h, w: sums at the places it gave."""
    height, width = size[2:]
    total = grad.new_zeros(size)
    image = rois[:, 0].long().view(-1, 1, 1, 1)

    def planes(target: Tensor) -> Places:
        return Places(
            tuple(place.shape),
            (0, target.stride(1), 0, 0),
            (image, place.clamp(min=0)),
            (len(total), height * width),
            (target.stride(0), 1),
            (0, 2),
            "roi",
        )

    if grad.numel():
        write(total, planes, torch.where(place < 0, 0, grad), "add")
    return total


def ps_roi_pool(
    x: Tensor, rois: Tensor, scale: float, tall: int, wide: int
) -> tuple[Tensor, Tensor]:
    """Return means of items in bins of regions, [k, c / bins, tall, wide], and their channels.

    Regions are as for `roi_align`; each bin has a channel of its own.
    """
    y = pooled(x, rois, (tall, wide), True)
    if y.numel():
        given = [*numbers(x, rois, scale, (tall, wide)), y]
        launch(_kernel(x.dtype, "ps_roi_pool"), y.shape, given, walked(x, (tall, wide), True))
        faults.check(x.get_device())
    return y, channel_mapping(y)


def ps_roi_pool_backward(
    grad: Tensor, rois: Tensor, mapping: Tensor, scale: float, tall: int, wide: int, *size: int
) -> Tensor:
    """Return the gradient of ps_roi_pool's x, of `size` n, c, h, w."""
    bins = (tall, wide)
    parts = region_parts(grad, bins, True)
    total = zeros_to_add_to("ps_roi_pool_backward_ocl", grad, size, parts)
    if grad.numel():
        given = numbers(total, rois, scale, bins)
        if parts:
            add_owned(_owned_kernel(grad.dtype), given, total, grad, True, parts)
        else:
            of_floats = adds_floats(grad.get_device())
            kernel = _kernel(grad.dtype, "ps_roi_pool", backward=True, of_floats=of_floats)
            launch(kernel, grad.shape, [*given, grad], walked(total, bins, True))
    return total.to(grad.dtype)


OPERATORS: dict[str, Callable[..., Any]] = {
    "roi_pool": roi_pool,
    "_roi_pool_backward": roi_pool_backward,
    "ps_roi_pool": ps_roi_pool,
    "_ps_roi_pool_backward": ps_roi_pool_backward,
}
"""Implementations by torchvision's name."""
