"""Windows of images as columns, and columns added up to images: `unfold` and `fold`, a launch each.

Torch's own composition makes indices of both dimensions and gathers by them; here a kernel computes
where an item comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.gathered_rows import BITS
from ocl_backend.kernels.owners import are_possible
from ocl_backend.ops.image.unfolded_rows import as_work, folded_rows, unfolded_planes
from oclgen.opencl.device import devices
from oclgen.problem import output_size

Pair = Sequence[int]
LABELS = ("pad", "size")


class Windows(NamedTuple):
    """Windows of an image: sizes of the image, of a window, their steps, and how many there are."""

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Windows along each dimension."""
        rest = self.kernel, self.stride, self.padding, self.dilation
        return tuple(map(output_size, self.image, *rest))

    @property
    def are_valid(self) -> bool:
        """Whether all numbers are pairs in range, and there are windows."""
        if any(len(pair) != 2 for pair in self):
            return False
        positive = min(*self.kernel, *self.dilation, *self.stride, *self.image) > 0
        return positive and min(self.padding) >= 0 and min(self.counts) > 0


def im2col(
    x: Tensor, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> Tensor:  # fmt: skip
    """Return the windows of images as columns: [batch, channels * taps, windows].

    Args:
        x: [batch, channels, height, width], or without a batch.
        kernel_size: of a window, in items of x; the others as of a convolution.
        dilation: between a window's items.
        padding: with zeros, at each end.
        stride: between windows.
    """
    given = tuple(map(tuple, (kernel_size, dilation, padding, stride)))
    windows = Windows(tuple(x.shape[-2:]), *given)
    if x.dim() not in (3, 4) or not windows.are_valid or x.itemsize not in BITS or not x.numel():
        return _composed("im2col", x, kernel_size, dilation, padding, stride)
    images = x if x.dim() == 4 else x.unsqueeze(0)
    (height, width), (below, across) = windows.counts, windows.kernel
    shape = (*images.shape[:2], below, across, height, width)
    out = torch.empty(shape, dtype=x.dtype, device=x.device)
    batch, channel, *steps = images.stride()
    moved = [step * d for step, d in zip(steps, windows.dilation, strict=True)]
    moved += [step * s for step, s in zip(steps, windows.stride, strict=True)]
    (dil_y, dil_x), (step_y, step_x) = windows.dilation, windows.stride
    walked = {
        "y": (0, 0, dil_y, 0, step_y, 0),
        "x": (0, 0, 0, dil_x, 0, step_x),
        "self": (batch, channel, *moved),
    }
    numbers = [*windows.padding, *windows.image, *steps]
    if are_possible(devices()[x.get_device()].limits):
        planes = {label: along[:4] for label, along in walked.items()}
        planes |= {"self": (batch, channel, 0, 0), "out": out.stride()[:4]}
        kernel = unfolded_planes(BITS[x.itemsize], as_work(height * width))
        more = [*windows.counts, *windows.stride]
        launch(kernel, shape[:4], (images, out, *numbers, *more), planes)
    else:
        launch(_unfolding(BITS[x.itemsize]), shape, (images, out, *numbers), walked)
    columns = out.view(len(images), -1, height * width)
    return columns if x.dim() == 4 else columns[0]


@cache
def _unfolding(dtype: torch.dtype) -> Kernel:
    return Kernel(
        "unfold_images",
        dtype_of(dtype).value,
        (
            Operand("y", role="position"),
            Operand("x", role="position"),
            Operand("self", dtype, "address"),
            Operand("out", dtype, "output"),
            *(Scalar(f"{label}_{d}", "long") for label in (*LABELS, "step") for d in "yx"),
        ),
        """\
const int row = (int)y - (int)pad_y, column = (int)x - (int)pad_x;
const bool is_inside = row >= 0 && row < (int)size_y && column >= 0 && column < (int)size_x;
const T out = is_inside ? LOAD_self(self_at - pad_y * step_y - pad_x * step_x) : (T)0;
""",
        scalar_only=True,
    )


def col2im(
    columns: Tensor, output_size: Pair, kernel_size: Pair, dilation: Pair, padding: Pair,
    stride: Pair,
) -> Tensor:  # fmt: skip
    """Return columns added up where windows overlap: [batch, channels, height, width].

    Args:
        columns: [batch, channels * taps, windows], or without a batch.
        output_size: of the images.
        kernel_size: of a window, as `im2col` takes it; the others, too.
        dilation: between a window's items.
        padding: that is left out.
        stride: between windows.
    """
    windows = Windows(*map(tuple, (output_size, kernel_size, dilation, padding, stride)))
    if not _fits(columns, windows):
        return _composed("col2im", columns, output_size, kernel_size, dilation, padding, stride)
    given = columns if columns.dim() == 3 else columns.unsqueeze(0)
    below, across = windows.kernel
    batch, tap, window = given.stride()
    shape = (len(given), given.shape[1] // (below * across), *windows.image)
    out = torch.empty(shape, dtype=columns.dtype, device=columns.device)
    walked = {
        "y": (0, 0, 1, 0), "x": (0, 0, 0, 1), "columns": (batch, below * across * tap, 0, 0),
    }  # fmt: skip
    pairs = windows.padding, windows.counts, windows.kernel, windows.dilation, windows.stride
    numbers = [number for pair in pairs for number in pair]
    if are_possible(devices()[given.get_device()].limits):
        rows = {label: steps[:3] for label, steps in walked.items() if label != "x"}
        kernel = folded_rows(columns.dtype, as_work(windows.image[1] * below))
        launch(
            kernel,
            shape[:3],
            (given, out, *numbers, tap, window, windows.image[1]),
            rows | {"out": out.stride()[:3]},
        )
    else:
        launch(_folding(columns.dtype), shape, (given, out, *numbers, tap, window), walked)
    return out if columns.dim() == 3 else out[0]


def _fits(columns: Tensor, windows: Windows) -> bool:
    """Say whether columns are those of the windows, of a dtype that has a kernel."""
    simple = not columns.is_complex() and columns.dtype is not torch.bool and columns.numel() > 0
    if not simple or columns.dim() not in (2, 3) or not windows.are_valid:
        return False
    (height, width), (below, across) = windows.counts, windows.kernel
    return columns.shape[-1] == height * width and columns.shape[-2] % (below * across) == 0


@cache
def _folding(dtype: torch.dtype) -> Kernel:
    labels = (*LABELS, "taps", "dilation", "stride")
    return Kernel(
        "fold_images",
        dtype_of(dtype).value,
        (
            Operand("y", role="position"),
            Operand("x", role="position"),
            Operand("columns", dtype, "address"),
            Operand("out", dtype, "output", result="total"),
            *(Scalar(f"{label}_{d}", "long") for label in labels for d in "yx"),
            Scalar("tap", "long"),
            Scalar("window", "long"),
        ),
        """\
T total = 0;
for (int i = 0; i < (int)taps_y; ++i) {
    const int above = (int)y + (int)pad_y - i * (int)dilation_y, row = above / (int)stride_y;
    if (above < 0 || row >= (int)size_y || row * (int)stride_y != above)
        continue;
    for (int j = 0; j < (int)taps_x; ++j) {
        const int left = (int)x + (int)pad_x - j * (int)dilation_x, column = left / (int)stride_x;
        if (left < 0 || column >= (int)size_x || column * (int)stride_x != left)
            continue;
        const long number = row * size_x + column;
        total += LOAD_columns(columns_at + (i * taps_x + j) * tap + number * window);
    }
}
""",
        scalar_only=True,
    )


def _composed(name: str, *given: Any) -> Tensor:
    """Call torch's own composition, which also says what is wrong with a call."""
    made: Tensor = decomposition_table[getattr(torch.ops.aten, name).default](*given)
    return made


OPERATORS: dict[str, Callable[..., Any]] = {
    "im2col": im2col,
    "im2col.out": into(im2col),
    "col2im": col2im,
    "col2im.out": into(col2im),
}
"""Implementations by aten name."""
