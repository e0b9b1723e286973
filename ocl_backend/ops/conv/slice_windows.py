"""Windows of slices of volumes as images, by one launch of a GPU.

`convolution_unfolded` says what they are for. A launch in place of padding, filling and copying
matters where the host takes longer to start them than the device to run them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.kernels.memory_formats import arranged, image_strides
from ocl_backend.kernels.vectors import are_aligned
from ocl_backend.ops.tensor.copies import GROUP, WORDS
from ocl_backend.runtime.launch import MOST_LAUNCHES, KernelLaunch, Pointer, prepare
from oclgen import render
from oclgen.opencl.device import devices
from oclgen.plan import round_up


class Windows(NamedTuple):
    """Windows along the depth: their number, and taps, stride, padding and dilation of each."""

    count: int
    taps: int
    stride: int
    padding: int
    dilation: int


def serves(x: Tensor) -> bool:
    """Say whether x is a volume on a device whose copies follow the target's items."""
    return x.dim() == 5 and devices()[x.get_device()].limits.kind == "gpu"


def images(x: Tensor, windows: Windows, pixels: bool) -> Tensor:
    """Return the windows of a volume as images, with their taps in the channels.

    Args:
        x: [batch, channels, depth, height, width].
        windows: along the depth.
        pixels: images are to lie in channels_last, and taps come before channels; else channels
            come before taps.

    Returns:
        [batch * windows, channels * taps, height, width].
    """
    volume = arranged(x, pixels)
    shape = torch.Size((len(x) * windows.count, x.shape[1] * windows.taps, *x.shape[3:]))
    found = x.new_empty_strided(shape, image_strides(shape, pixels))
    if found.numel():
        addresses = volume.data_ptr(), found.data_ptr()
        sizes, size = tuple(x.shape), x.element_size()
        _prepared(x.get_device(), sizes, size, windows, pixels, are_aligned(addresses))(*addresses)
    return found


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, shape: tuple[int, ...], itemsize: int, windows: Windows, pixels: bool, aligned: bool
) -> KernelLaunch:
    batch, channels, slices, height, width = shape
    plane = height * width
    inner, mid = (channels, plane) if pixels else (plane, channels)
    steps = (inner, mid * inner) if pixels else (slices * inner, inner)
    size = next(w for w in WORDS if w == itemsize or (aligned and inner * itemsize % w == 0))
    items = size // itemsize
    words = batch * windows.count * mid * windows.taps * inner // items
    kind = np.int64 if max(words, batch * channels * slices * plane) >= 2**31 else np.int32
    text = render.render(
        "slice_windows",
        package="ocl_backend",
        word=WORDS[size].storage,
        index="long" if kind is np.int64 else "int",
    )
    numbers = (
        words, inner // items, windows.taps, mid, windows.count, slices,
        *(step // items for step in (*steps, channels * slices * plane)),
        windows.stride, windows.padding, windows.dilation,
    )  # fmt: skip
    group = min(GROUP, devices()[device].limits.max_work_group)
    arguments = [Pointer(size), Pointer(size), *map(kind, numbers)]
    return prepare(device, text, "slice_windows", (round_up(words, group),), arguments, (group,))
