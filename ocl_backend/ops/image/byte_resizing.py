"""Resizing of bytes in whole numbers, as torch's CPU does it: each result is the same bit by bit.

Weights are rounded to 16 bits, with as many bits behind the point as the largest of a dimension
leaves. Columns are resized first, rounded to bytes, and then rows. Floats are `upsampling`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.ops.image.filters import Shape, near, scale_of, wide
from ocl_backend.runtime import capture
from ocl_backend.runtime.tables import as_table

MOST_BITS = 22
"""Behind the point of a weight; a sum of weighted bytes then fits an int."""

KERNEL = Kernel(
    "resize_bytes",
    "int",
    (
        Operand("image", torch.uint8, "address"),
        Operand("first", torch.int32),
        Operand("weights", torch.int32, "address"),
        Scalar("step", "long"),
        Scalar("taps", "int"),
        Scalar("bits", "int"),
        Operand("out", torch.uint8, "output"),
    ),
    """\
int total = 1 << (bits - 1);
for (int k = 0; k < taps; ++k)
    total += LOAD_weights(weights_at + k) * LOAD_image(image_at + (first + k) * step);
const int out = clamp(total >> bits, 0, 255);""",
    scalar_only=True,
)


class Line(NamedTuple):
    """How a dimension is resized: each output's first item, and its weights [out, taps]."""

    first: Tensor
    weights: Tensor
    bits: int


def resized(
    x: Tensor,
    sizes: Sequence[int],
    shape: Shape,
    align: bool,
    factors: Sequence[float | None],
    antialias: bool,
) -> Tensor:
    """Return an image of other sizes.

    Args:
        x: [batch, channels, h, w], uint8.
        sizes: of the result's rows and columns.
        shape: of the filter.
        align: the middles of the outermost items stay.
        factors: the scales that were asked for, by dimension.
        antialias: the filter is as wide as the step between items of the result.

    Raises:
        RuntimeError: x has other dimensions, or a size is 0.
    """
    if x.dim() != 4 or 0 in (*x.shape[1:], *sizes):
        raise RuntimeError(f"resizing of {[*x.shape]} to {[*sizes]}")
    given = [*factors, None, None][:2]
    result = x
    for axis in (3, 2):
        size, out, factor = x.shape[axis], sizes[axis - 2], given[axis - 2]
        if size != out:
            line = _line(shape, size, out, align, factor, antialias, x.device)
            result = _along(result, axis, line)
    wanted = suggest_memory_format(x)
    if result is x:
        return x.clone(memory_format=wanted)
    return result.contiguous(memory_format=wanted)


def _along(x: Tensor, axis: int, line: Line) -> Tensor:
    out = x.new_empty([len(line.first) if d == axis else n for d, n in enumerate(x.shape)])
    if not out.numel():
        return out
    taps, steps = line.weights.shape[1], x.stride()
    walked = {
        "image": tuple(0 if d == axis else step for d, step in enumerate(steps)),
        "first": tuple(int(d == axis) for d in range(4)),
        "weights": tuple(taps * (d == axis) for d in range(4)),
    }
    given = (x, line.first, line.weights, steps[axis], taps, line.bits, out)
    launch(KERNEL, tuple(out.shape), given, walked)
    return out


@lru_cache(maxsize=256)
@capture.aside()
def _line(
    shape: Shape, size: int, out: int, align: bool, factor: float | None, antialias: bool,
    device: torch.device,
) -> Line:  # fmt: skip
    scale = scale_of(size, out, align, factor)
    rows = [
        wide(shape, row, size, scale) if antialias else near(shape, row, size, scale, align)
        for row in range(out)
    ]
    most = max(max(weights) for _, weights in rows)
    taps = max(len(weights) for _, weights in rows)
    bits = next(
        (bits for bits in range(MOST_BITS) if int(0.5 + most * (2 << bits)) >= 1 << 15), MOST_BITS
    )
    first = [min(begin, size - taps) for begin, _ in rows]
    weights = torch.zeros((out, taps), dtype=torch.int32)
    for row, (begin, found) in enumerate(rows):
        for k, weight in enumerate(found, begin - first[row]):
            weights[row, k] = int(weight * (1 << bits) + (0.5 if weight >= 0 else -0.5))
    begins = torch.tensor(first, dtype=torch.int32)
    return Line(as_table(begins.to(device)), as_table(weights.to(device)), bits)
