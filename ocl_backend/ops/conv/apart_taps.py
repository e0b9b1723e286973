"""Gradients of images by filters whose windows are apart: each pixel meets one tap at most.

The gradient is a product of all taps with each pixel of the result, [channels * taps, out_channels]
by [out_channels, pixels], which is that of a convolution of one tap. Its rows are put into their
places here; pixels that no tap meets are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from ocl_backend.kernels.memory_formats import image_strides, in_pixels
from oclgen.opencl.device import devices

SPARSE = 4
"""Pixels for each that a tap meets, up to which implicit products write the zeros, too. With a
stride of 3 they take 0.60 ms for a product of 2 GFLOP and 186 MB (H100, fp32)."""
LARGE = 2**22
"""Bytes of an image in planes from which on four pixels are enough. Of 40 drawn gradients on an
H200, such take 0.46 to 0.84 of the time; small ones 1.0 to 1.5, for they have three launches."""


def are_sparse(
    w: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    pixels: bool,
) -> bool:
    """Say whether windows on a GPU are apart, and meet so few pixels of an image.

    Args:
        w: [out_channels, channels / groups, kernel_h, kernel_w].
        shape: of the image, [batch, channels, height, width].
        stride: of rows and columns.
        padding: of rows and columns; with padding the first tap is not the first pixel's.
        dilation: of rows and columns.
        pixels: whether the image lies in channels_last.
    """
    taps = w.shape[2:]
    reaches = ((count - 1) * step + 1 for count, step in zip(taps, dilation, strict=True))
    are_apart = all(reach <= step for reach, step in zip(reaches, stride, strict=True))
    is_large = not pixels and prod(shape) * w.element_size() >= LARGE
    if not are_apart or any(padding) or prod(stride) < SPARSE * prod(taps) + (not is_large):
        return False
    return devices()[w.get_device()].limits.kind == "gpu"


def as_one_tap(
    w: Tensor, shape: Sequence[int], results: Sequence[int]
) -> tuple[Tensor, torch.Size]:
    """Return a filter of one tap that multiplies as w, and the shape of what its taps meet.

    Args:
        w: [out_channels, channels / groups, kernel_h, kernel_w].
        shape: of the image, [batch, channels, height, width].
        results: shape of the convolution's results, [batch, out_channels, h, w].

    Returns:
        [out_channels, channels / groups * taps, 1, 1], and [batch, channels * taps, h, w].
    """
    few = torch.Size((shape[0], shape[1] * prod(w.shape[2:]), *results[2:]))
    return w.reshape(len(w), -1, 1, 1), few


def spread(
    met: Tensor,
    shape: Sequence[int],
    taps: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """Return an image of zeros with the pixels that taps meet, which give its format.

    Args:
        met: [batch, channels * taps, h, w], the pixels that they meet.
        shape: of the image, [batch, channels, height, width].
        taps: of a filter, in rows and columns.
        stride: from one window to the next, of rows and columns.
        dilation: from one tap to the next, of rows and columns.
    """
    image = met.new_empty_strided(shape, image_strides(torch.Size(shape), in_pixels(met))).zero_()
    rows, columns = met.shape[2:]
    _, _, row, column = image.stride()
    places = image.as_strided(
        (*shape[:2], rows, taps[0], columns, taps[1]),
        (*image.stride()[:2], stride[0] * row, dilation[0] * row, stride[1] * column,
         dilation[1] * column),
    )  # fmt: skip
    places.copy_(met.view(*shape[:2], *taps, rows, columns).permute(0, 1, 4, 2, 5, 3))
    return image
