"""Bilinear samples of regions of images, averaged by bin: `roi_align` and `ps_roi_align`.

Mask R-CNN (He et al. 2017) uses the first. R-FCN's position-sensitive channels (Dai et al. 2016)
lead to the second, where each bin reads a channel of its own. The two differ only in strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.plane_sums import owned_kernel, owned_parts, zeros_to_add_to
from ocl_backend.kernels.scatter import NARROW, adds_floats, atomic_update
from ocl_backend.kernels.vectors import in_type

IMAGE = """\
// the image that a region is of; the nearest one where there is none of that number
long image_of(const T number, const long images, const long operator,
              volatile __global long *faults)
{
    if (!(number >= 0 && number < images))
        note_fault(faults, operator, (long)number, images, 0);
    return clamp((long)number, 0L, images - 1);
}
"""

HELPERS = (
    faults.NOTE
    + IMAGE
    + """\
// finds the two items of a line around a position, and how much the second counts; 0 where a
// sample is outside of the image
int around(const T at, const long size, long *low, long *high, T *part)
{
    if (!(at >= -1 && at <= size))
        return 0;
    const T inside = fmin(fmax(at, 0), size - 1);
    *low = (long)inside;
    *high = min(*low + 1, size - 1);
    *part = inside - *low;
    return 1;
}

// how many samples a bin has along one side; more than 65536 items wide it leaves every image
long samples(const T step, const long ratio)
{
    return ratio > 0 ? ratio : (long)ceil(fmin(fmax(step, 0), 65536));
}
"""
)

WALK = """\
const long image = image_of(LOAD_rois(rois_at), images, operator, faults_data);
const T shift = aligned ? 0.5 : 0;
const T left = LOAD_rois(rois_at + 1) * scale - shift;
const T top = LOAD_rois(rois_at + 2) * scale - shift;
T wide = LOAD_rois(rois_at + 3) * scale - shift - left;
T tall = LOAD_rois(rois_at + 4) * scale - shift - top;
if (!aligned) {
    wide = fmax(wide, 1);
    tall = fmax(tall, 1);
}
const T step_x = wide / bins_x, step_y = tall / bins_y;
const long count_x = samples(step_x, ratio), count_y = samples(step_y, ratio);
const T count = max(count_x * count_y, 1L);
%s
for (long i = 0; i < count_y; ++i) {
    long y0, y1, x0, x1;
    T part_y, part_x;
    if (!around(top + step_y * (bin_y + (i + 0.5) / count_y), height, &y0, &y1, &part_y))
        continue;
    for (long j = 0; j < count_x; ++j) {
        if (!around(left + step_x * (bin_x + (j + 0.5) / count_x), width, &x0, &x1, &part_x))
            continue;
%s
    }
}
"""

FORWARD = (
    WALK
    % (
        "const long begin = x_at + image * x_step_n;\nT y = 0;",
        """\
        const T first = (1 - part_x) * LOAD_x(begin + y0 * x_step_y + x0 * x_step_x)
            + part_x * LOAD_x(begin + y0 * x_step_y + x1 * x_step_x);
        const T second = (1 - part_x) * LOAD_x(begin + y1 * x_step_y + x0 * x_step_x)
            + part_x * LOAD_x(begin + y1 * x_step_y + x1 * x_step_x);
        y += (1 - part_y) * first + part_y * second;""",
    )
    + "y /= count;\n"
)

BACKWARD = WALK % (
    "const T share_of_bin = y / count;",
    """\
        PUT(y0 * x_step_y + x0 * x_step_x, share_of_bin * (1 - part_y) * (1 - part_x));
        PUT(y0 * x_step_y + x1 * x_step_x, share_of_bin * (1 - part_y) * part_x);
        PUT(y1 * x_step_y + x0 * x_step_x, share_of_bin * part_y * (1 - part_x));
        PUT(y1 * x_step_y + x1 * x_step_x, share_of_bin * part_y * part_x);""",
)

ATOMIC = "#define PUT(item, value) update(x_data + x_at + image * x_step_n + (item), value)\n"

OWNED = """\
#define PUT(item, value) ADD(image * x_step_n + (item), source, value)
"""

OWNED_WALK = """\
const long first_region = rois_at, first_y = bin_y, first_x = bin_x;
const T y = 1;
for (long region = 0; region < regions; ++region) {
    for (long own_y = 0; own_y < own_bins_y; ++own_y) {
        for (long own_x = 0; own_x < own_bins_x; ++own_x) {
            const long rois_at = first_region + 5 * region;
            const long bin_y = first_y + own_y, bin_x = first_x + own_x;
            const long source = region * grad_step_n + own_y * bins_x + own_x;
%s
        }
    }
}
"""
"""An owner has all bins of its channels, or, of position-sensitive ones, the only bin."""

NUMBERS = ("operator", "images", "height", "width", "x_step_n", "x_step_y", "x_step_x")


RATIO = (Scalar("ratio", "long"), Scalar("aligned", "long"))


def operands(dtype: torch.dtype, x: torch.dtype) -> list[Operand | Scalar]:
    """Return what kernels of regions read: images of dtype `x` and regions of `dtype`."""
    return [
        Operand("x", x, "address"),
        Operand("rois", dtype, "address"),
        Operand("faults", torch.int64, "address", "long"),
        Operand("bin_y", role="position"),
        Operand("bin_x", role="position"),
        *(Scalar(name, "long") for name in NUMBERS),
        Scalar("scale", dtype_of(dtype).value),
        Scalar("bins_y", "long"),
        Scalar("bins_x", "long"),
    ]


@cache
def _kernel(
    dtype: torch.dtype, rois: torch.dtype, backward: bool, of_floats: bool = False
) -> Kernel:
    value = dtype_of(dtype).value
    wide = NARROW.get(dtype, dtype) if backward else dtype
    helpers = in_type(HELPERS, value)
    if backward:
        helpers += atomic_update(value, wide.itemsize, "add", of_floats) + ATOMIC
    parameters = (
        *operands(rois, wide),
        *RATIO,
        Operand("y", dtype, "input" if backward else "output"),
    )
    body = in_type(BACKWARD if backward else FORWARD, value)
    name = "roi_align_backward" if backward else "roi_align"
    return Kernel(name, value, parameters, body, helpers, scalar_only=True, work=64)


@cache
def _owned_kernel(dtype: torch.dtype, rois: torch.dtype) -> Kernel:
    helpers = in_type(HELPERS, dtype_of(dtype).value)
    return owned_regions("roi_align_owned", dtype, rois, RATIO, BACKWARD, helpers)


def owned_regions(
    name: str, dtype: torch.dtype, rois: torch.dtype, scalars: Sequence[Scalar], walk: str,
    helpers: str,
) -> Kernel:  # fmt: skip
    """Return the kernel of owners that `add_owned` launches.

    Args:
        name: of it.
        dtype: of the gradient.
        rois: of the regions.
        scalars: further numbers.
        walk: C of a bin that calls `PUT(item, value)` for what is added to an item of the image.
        helpers: functions that it calls.
    """
    parameters = (
        *operands(rois, NARROW.get(dtype, dtype)),
        *scalars,
        Operand("grad", dtype, "address"),
        *(Scalar(n, "long") for n in ("regions", "own_bins_y", "own_bins_x", "grad_step_n")),
    )
    value = dtype_of(dtype).value
    text = OWNED_WALK % walk
    return owned_kernel(name, value, parameters, text, helpers + OWNED, "x")


def numbers(x: Tensor, rois: Tensor, scale: float, bins: Sequence[int]) -> list[Tensor | float]:
    """Return what a launch of `operands` is given."""
    steps = (x.stride(0), x.stride(2), x.stride(3))
    sizes = (faults.NUMBERS["roi"], len(x), x.shape[2], x.shape[3])
    return [x, rois.contiguous(), faults.record(x.get_device()), *sizes, *steps, scale, *bins]


def walked(x: Tensor, bins: Sequence[int], sensitive: bool) -> dict[str, tuple[int, ...]]:
    """Return how operands move along [regions, channels, bins_y, bins_x].

    Args:
        x: images [n, c, h, w], of any strides.
        bins: along h and w.
        sensitive: whether each bin has a channel of its own.
    """
    step, (tall, wide) = x.stride(1), bins
    channel = (0, tall * wide * step, wide * step, step) if sensitive else (0, step, 0, 0)
    return {
        "x": channel,
        "rois": (5, 0, 0, 0),
        "faults": (0, 0, 0, 0),
        "bin_y": (0, 0, 1, 0),
        "bin_x": (0, 0, 0, 1),
    }


def pooled(x: Tensor, rois: Tensor, bins: Sequence[int], sensitive: bool) -> Tensor:
    """Return an empty result [regions, channels, *bins] for images x.

    Raises:
        RuntimeError: the regions are not [k, 5] of x's dtype, or channels do not divide by bins.
    """
    if x.dim() != 4 or rois.dim() != 2 or rois.shape[1] != 5:
        raise RuntimeError(
            "regions are taken of images [n, c, h, w] at rois [k, 5], not of "
            f"{list(x.shape)} at {list(rois.shape)}"
        )
    if len(rois) and not (len(x) and x.shape[2:].numel()):
        raise RuntimeError(f"{len(rois)} regions of images {list(x.shape)}, which have no items")
    if x.dtype != rois.dtype:
        raise RuntimeError(
            "Expected tensor for input to have the same type as tensor for rois; "
            f"but type {x.dtype} does not equal {rois.dtype}"
        )
    parts = bins[0] * bins[1] if sensitive else 1
    if x.shape[1] % parts:
        raise RuntimeError(
            "input channels must be a multiple of pooling height * pooling width; "
            f"{x.shape[1]} are none of {bins[0]} * {bins[1]}"
        )
    return x.new_empty(len(rois), x.shape[1] // parts, *bins)


def channel_mapping(y: Tensor) -> Tensor:
    """Return the channel that each item of a position-sensitive result y is read from, int32."""
    channel = torch.arange(y[0].numel() if len(y) else 0, dtype=torch.int32, device=y.device)
    return channel.view(y.shape[1:]).expand(y.shape).contiguous() if len(y) else y.int()


def _sampled(
    x: Tensor,
    rois: Tensor,
    scale: float,
    bins: tuple[int, int],
    ratio: int,
    aligned: bool,
    sensitive: bool,
) -> Tensor:
    y = pooled(x, rois, bins, sensitive)
    if y.numel():
        given = [*numbers(x, rois, scale, bins), ratio, int(aligned), y]
        kernel = _kernel(x.dtype, rois.dtype, False)
        launch(kernel, y.shape, given, walked(x, bins, sensitive))
        faults.check(x.get_device())
    return y


def _sampled_backward(
    grad: Tensor,
    rois: Tensor,
    scale: float,
    size: Sequence[int],
    ratio: int,
    aligned: bool,
    sensitive: bool,
) -> Tensor:
    bins = (grad.shape[2], grad.shape[3])
    parts = region_parts(grad, bins, sensitive)
    name = f"{'ps_' if sensitive else ''}roi_align_backward_ocl"
    total = zeros_to_add_to(name, grad, size, parts)
    if grad.numel():
        given = [*numbers(total, rois, scale, bins), ratio, int(aligned)]
        if parts:
            add_owned(_owned_kernel(grad.dtype, rois.dtype), given, total, grad, sensitive, parts)
        else:
            kernel = _kernel(grad.dtype, rois.dtype, True, adds_floats(grad.get_device()))
            launch(kernel, grad.shape, [*given, grad], walked(total, bins, sensitive))
    return total.to(grad.dtype)


def region_parts(grad: Tensor, bins: tuple[int, int], sensitive: bool) -> int:
    """Return into how many parts owners share the channels of `grad`, [k, c, *bins]; 0: none."""
    return owned_parts(grad.get_device(), prod(bins) if sensitive else 1, grad.shape[1])


def add_owned(
    kernel: Kernel, given: Sequence[Tensor | float], total: Tensor, grad: Tensor, sensitive: bool,
    parts: int,
) -> None:  # fmt: skip
    """Add the gradient of regions to images by a kernel of `owned_regions`.

    Args:
        kernel: which.
        given: `numbers` of `total`, and its further numbers.
        total: images [n, c, h, w], dense.
        grad: of the regions, [k, c, *bins].
        sensitive: whether each bin has a channel of its own.
        parts: of the channels, for owners.
    """
    regions, channels, tall, wide = grad.shape
    bins, own = (tall, wide), (1, 1) if sensitive else (tall, wide)
    shape = (parts, tall, wide) if sensitive else (parts, 1, 1)
    moves = {
        name: (0, *(steps[2:] if sensitive else (0, 0)))
        for name, steps in walked(total, bins, sensitive).items()
    }
    moves["rois"] = (0, 0, 0)
    moves["part"] = (1, 0, 0)
    moves["grad"] = (0, wide, 1) if sensitive else (0, 0, 0)
    step = total.stride(1) * (tall * wide if sensitive else 1)
    numbers = (regions, *own, grad[0].numel(), -(-channels // parts), channels, step, tall * wide)
    launch(kernel, shape, [*given, grad.contiguous(), *numbers], moves)


def roi_align(
    x: Tensor, rois: Tensor, scale: float, tall: int, wide: int, ratio: int, aligned: bool
) -> Tensor:
    """Return bilinear samples of x [n, c, h, w] in regions [k, 5], averaged: [k, c, tall, wide].

    A region is the number of an image and two corners, which `scale` turns into items of x. A bin
    has `ratio` samples along each side (0 or less: one per item); `aligned`: item 0 has its centre
    at 0.5; if not, regions are at least one item wide.
    """
    return _sampled(x, rois, scale, (tall, wide), ratio, aligned, False)


def ps_roi_align(
    x: Tensor, rois: Tensor, scale: float, tall: int, wide: int, ratio: int
) -> tuple[Tensor, Tensor]:
    """Return [k, c / bins, tall, wide] as `roi_align` does, each bin of a channel of its own.

    Beside it the channels that were read, int32.
    """
    y = _sampled(x, rois, scale, (tall, wide), ratio, True, True)
    return y, channel_mapping(y)


def roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    scale: float,
    tall: int,
    wide: int,
    *size_and_ratio: int,
) -> Tensor:
    """Return the gradient of roi_align's x; the last arguments are n, c, h, w, ratio, aligned."""
    *size, ratio, aligned = size_and_ratio
    return _sampled_backward(grad, rois, scale, size, ratio, bool(aligned), False)


def ps_roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    mapping: Tensor,
    scale: float,
    tall: int,
    wide: int,
    ratio: int,
    *size: int,
) -> Tensor:
    """Return the gradient of ps_roi_align's x, of `size` n, c, h, w."""
    return _sampled_backward(grad, rois, scale, size, ratio, True, True)


OPERATORS: dict[str, Callable[..., Any]] = {
    "roi_align": roi_align,
    "_roi_align_backward": roi_align_backward,
    "ps_roi_align": ps_roi_align,
    "_ps_roi_align_backward": ps_roi_align_backward,
}
"""Implementations by torchvision's name."""
