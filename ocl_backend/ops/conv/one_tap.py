"""Gradients of images by kernels of one tap and a stride: most pixels are zero.

The others are a product, which `convolution` computes; here they are put in their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from ocl_backend.kernels.memory_formats import image_strides, in_pixels
from oclgen.opencl.device import devices

SPARSE = 4
"""Pixels for each that the tap meets, up to which implicit products write the zeros, too. With a
stride of 3 they take 0.60 ms for a product of 2 GFLOP and 186 MB (H100, fp32)."""


def is_sparse(w: Tensor, stride: Sequence[int], padding: Sequence[int]) -> bool:
    """Say whether a tap meets so few pixels of an image on a GPU.

    Args:
        w: [out_channels, channels / groups, kernel_h, kernel_w].
        stride: of rows and columns.
        padding: of rows and columns; with padding the first tap is not the first pixel's.
    """
    is_one_tap = tuple(w.shape[2:]) == (1, 1) and not any(padding)
    is_far = prod(stride) > SPARSE
    return is_one_tap and is_far and devices()[w.get_device()].limits.kind == "gpu"


def spread(met: Tensor, shape: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Return an image of zeros with the pixels that a tap meets, which give its format.

    Args:
        met: [batch, channels, h, w], the pixels that it meets.
        shape: of the image, [batch, channels, height, width].
        stride: from one of them to the next, of rows and columns.
    """
    image = met.new_empty_strided(shape, image_strides(torch.Size(shape), in_pixels(met))).zero_()
    rows, columns = (
        slice(0, (count - 1) * step + 1, step)
        for count, step in zip(met.shape[2:], stride, strict=True)
    )
    image[:, :, rows, columns] = met
    return image
