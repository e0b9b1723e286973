"""Windows of slices of volumes as images, and their sums, by one launch of a GPU each.

`convolution_unfolded` says what they are for. A launch in place of padding, filling and copying
matters where the host takes longer to start them than the device to run them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import COPIED, dtype_of
from ocl_backend.kernels.memory_formats import arranged, image_strides
from ocl_backend.kernels.vectors import are_aligned
from ocl_backend.ops.tensor.copies import GROUP, WORDS
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen import render
from oclgen.opencl.device import devices
from oclgen.plan import round_up


class Windows(NamedTuple):
    """Windows along the depth: their number, and taps, stride, padding and dilation of each."""

    number: int
    taps: int
    stride: int
    padding: int
    dilation: int


def serves(x: Tensor) -> bool:
    """Say whether x is on a GPU: its copies follow the target's items."""
    return devices()[x.get_device()].limits.kind == "gpu"


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
    shape = torch.Size((len(x) * windows.number, x.shape[1] * windows.taps, *x.shape[3:]))
    found = x.new_empty_strided(shape, image_strides(shape, pixels))
    if found.numel():
        addresses = volume.data_ptr(), found.data_ptr()
        aligned = are_aligned(addresses)
        size = x.element_size()
        _copying(x.get_device(), _lying(x.shape, pixels), size, windows, aligned)(*addresses)
    return found


def sums(columns: Tensor, shape: Sequence[int], windows: Windows, pixels: bool) -> Tensor:
    """Return the volume whose items are the sums of what `images` made of each, in fp32.

    Args:
        columns: [batch * windows, channels * taps, height, width], as `images` returns them.
        shape: of the volume, [batch, channels, depth, height, width].
        windows: along the depth.
        pixels: as in `images`; the volume lies so, too.
    """
    lying = _lying(shape, pixels)
    read = arranged(columns, pixels)
    found = columns.new_empty(lying.sizes)
    call = _adding(columns.get_device(), lying, columns.dtype, windows)
    call(read.data_ptr(), found.data_ptr())
    return found.movedim(-1, 1) if pixels else found


class _Lying(NamedTuple):
    """A volume as it lies: channels are neighbours in `pixels`, else those of a plane are."""

    batch: int
    channels: int
    slices: int
    height: int
    width: int
    pixels: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its sizes, the slowest first."""
        plane = self.slices, self.height, self.width
        return (self.batch, *plane, self.channels) if self.pixels else self[:5]

    @property
    def inner(self) -> int:
        """Neighbours that one tap of a window has."""
        return self.channels if self.pixels else self.height * self.width

    @property
    def mid(self) -> int:
        """Such runs of a slice."""
        return self.height * self.width if self.pixels else self.channels


def _lying(shape: Sequence[int], pixels: bool) -> _Lying:
    batch, channels, slices, height, width = shape
    return _Lying(batch, channels, slices, height, width, pixels)


def _number(count: int) -> tuple[type[np.int64 | np.int32], str]:
    """Return the type of numbers whose indices are below `count`, and its name in kernels."""
    return (np.int64, "long") if count >= 2**31 else (np.int32, "int")


@lru_cache(maxsize=MOST_LAUNCHES)
def _copying(
    device: int, volume: _Lying, itemsize: int, windows: Windows, aligned: bool
) -> KernelLaunch:
    inner, mid, slices = volume.inner, volume.mid, volume.slices
    steps = (inner, mid * inner) if volume.pixels else (slices * inner, inner)
    size = next(w for w in WORDS if w == itemsize or (aligned and inner * itemsize % w == 0))
    items = size // itemsize
    words = volume.batch * windows.number * mid * windows.taps * inner // items
    kind, index = _number(max(words, prod(volume.sizes)))
    text = render.render(
        "slice_windows", package="ocl_backend", word=WORDS[size].storage, index=index
    )
    numbers = (
        words, inner // items, windows.taps, mid, windows.number, slices,
        *(step // items for step in (*steps, slices * mid * inner)),
        windows.stride, windows.padding, windows.dilation,
    )  # fmt: skip
    arguments: list[Argument] = [
        Pointer(size),
        Pointer(size),
        *(kind(number) for number in numbers),
    ]
    return _launch(device, text, "slice_windows", words, arguments)


@lru_cache(maxsize=MOST_LAUNCHES)
def _adding(device: int, volume: _Lying, dtype: torch.dtype, windows: Windows) -> KernelLaunch:
    items = prod(volume.sizes)
    kind, index = _number(items * windows.taps * windows.number)
    text = render.render(
        "slice_sums",
        package="ocl_backend",
        dtype=dtype_of(dtype, COPIED),
        index=index,
        pixels=volume.pixels,
        taps=windows.taps,
    )
    numbers = (
        items, volume.inner, volume.mid, volume.slices, windows.number,
        windows.stride, windows.padding, windows.dilation,
    )  # fmt: skip
    pointers = [Pointer(dtype.itemsize)] * 2
    arguments: list[Argument] = [*pointers, *(kind(number) for number in numbers)]
    return _launch(device, text, "slice_sums", items, arguments)


def _launch(
    device: int, text: str, kernel: str, items: int, arguments: Sequence[Argument]
) -> KernelLaunch:
    group = min(GROUP, devices()[device].limits.max_work_group)
    return prepare(device, text, kernel, (round_up(items, group),), arguments, (group,))
