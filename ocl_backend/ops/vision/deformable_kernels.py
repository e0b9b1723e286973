"""OpenCL C of deformable convolutions: samples and their gradients, one work-item a sample.

Images lie plane by plane, or with channels last: then a sample reads rows of all channels by
vectors, which a processor's caches keep also where planes are a power of two apart.
"""

from __future__ import annotations

import re
from functools import cache

import torch

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar
from ocl_backend.kernels.plane_sums import owned_kernel
from ocl_backend.kernels.scatter import NARROW, atomic_update
from ocl_backend.kernels.vectors import in_type

LOCATE = """\
const T at_y = row - pad_y + move_y, at_x = column - pad_x + move_x;
const T low_y = floor(at_y), low_x = floor(at_x);
const T part_y = at_y - low_y, part_x = at_x - low_x;
"""

NEIGHBOURS = """\
long at[4];
bool inside[4];
T weight_y[4], weight_x[4];
for (int k = 0; k < 4; ++k) {
    const T y = low_y + k / 2, x = low_x + k % 2;
    inside[k] = y >= 0 && y < height && x >= 0 && x < width;
    at[k] = inside[k] ? (long)y * image_step_y + (long)x * image_step_x : 0;
    weight_y[k] = k / 2 ? part_y : 1 - part_y;
    weight_x[k] = k % 2 ? part_x : 1 - part_x;
}
"""
"""The items around a sample, which all channels share."""

COLUMNS = (
    LOCATE
    + NEIGHBOURS
    + """\
for (long c = 0; c < channels; ++c) {
    T sum = 0;
    for (int k = 0; k < 4; ++k)
        if (inside[k])
            sum += weight_y[k] * weight_x[k] * LOAD_image(image_at + c * image_step_c + at[k]);
    STORE_columns(columns_at + c * columns_step_c, sum * mask);
}
"""
)

COLUMNS_OF_ROWS = (
    LOCATE
    + NEIGHBOURS
    + """\
for (long c = 0; c < channels; c += WIDTH) {
    V sum = 0;
    for (int k = 0; k < 4; ++k)
        if (inside[k])
            sum += weight_y[k] * weight_x[k] * LOADS_image(image_at + c + at[k]);
    STORES_columns(columns_at + c, sum * mask);
}
"""
)

ALONG = """\
T along_y = 0, along_x = 0, along_mask = 0;
for (int k = 0; k < 4; ++k) {
    along_mask += shares[k] * weight_y[k] * weight_x[k];
    along_y += mask * (k / 2 ? shares[k] : -shares[k]) * weight_x[k];
    along_x += mask * (k % 2 ? shares[k] : -shares[k]) * weight_y[k];
}
"""

BACKWARD = (
    LOCATE
    + NEIGHBOURS
    + """\
T shares[4] = {0, 0, 0, 0};
for (long c = 0; c < channels; ++c) {
    const T grad = LOAD_columns(columns_at + c * columns_step_c);
    for (int k = 0; k < 4; ++k) {
        if (inside[k]) {
            const long item = c * image_step_c + at[k];
            shares[k] += grad * LOAD_image(image_at + item);
            UPDATE
        }
    }
}
"""
    + ALONG
)

BACKWARD_OF_ROWS = (
    LOCATE
    + NEIGHBOURS
    + """\
V lanes[4] = {0, 0, 0, 0};
for (long c = 0; c < channels; c += WIDTH) {
    const V grad = LOADS_columns(columns_at + c);
    for (int k = 0; k < 4; ++k)
        if (inside[k])
            lanes[k] += grad * LOADS_image(image_at + c + at[k]);
}
T shares[4];
for (int k = 0; k < 4; ++k)
    shares[k] = SUM;
"""
    + ALONG
)

UPDATE = "update(total_data + total_at + item, grad * mask * weight_y[k] * weight_x[k]);"

OWNED = (
    """\
const long pixels = pixels_y * pixels_x;
for (long tap = 0; tap < taps_y * taps_x; ++tap) {
    for (long pixel = 0; pixel < pixels; ++pixel) {
        const long source = tap * pixels + pixel;
        const long row = tap / taps_x * dilation_y + pixel / pixels_x * stride_y;
        const long column = tap % taps_x * dilation_x + pixel % pixels_x * stride_x;
        const T move_y = LOAD_moves(moves_at + 2 * tap * pixels + pixel);
        const T move_x = LOAD_moves(moves_at + (2 * tap + 1) * pixels + pixel);
        const T mask = LOAD_factors(factors_at + source * factors_step);
"""
    + LOCATE
    + NEIGHBOURS
    + """\
        for (int k = 0; k < 4; ++k) {
            if (inside[k]) {
                ADD(at[k], tap * step_tap + pixel * step_pixel, mask * weight_y[k] * weight_x[k]);
            }
        }
    }
}
"""
)

OWNED_NUMBERS = (
    *("taps_y", "taps_x", "pixels_y", "pixels_x", "stride_y", "stride_x", "dilation_y"),
    *("dilation_x", "factors_step", "step_tap", "step_pixel"),
)

NUMBERS = ("height", "width", "image_step_y", "image_step_x", "pad_y", "pad_x")


def _operands(dtype: torch.dtype, width: int = 1) -> list[Operand | Scalar]:
    """Return what kernels take that walk samples and, in each, all channels."""
    image, columns = (
        Operand(name, dtype, "address", items=width, anywhere=width > 1)
        for name in ("image", "columns")
    )
    return [
        image,
        *(Operand(name, dtype) for name in ("move_y", "move_x", "mask")),
        *(Operand(name, role="position") for name in ("row", "column")),
        *(Scalar(name, "long") for name in NUMBERS),
        columns,
        *(Scalar(name, "long") for name in ("image_step_c", "columns_step_c", "channels")),
    ]


@cache
def columns_kernel(dtype: torch.dtype, width: int) -> Kernel:
    """Return the kernel of sampled images.

    Args:
        dtype: of all tensors.
        width: channels that lie together and are read at once; it divides them. 0: planes.
    """
    value = dtype_of(dtype).value
    text = _of_rows(COLUMNS_OF_ROWS, value, width) if width else COLUMNS
    operands = tuple(_operands(dtype, width or 1))
    body = in_type(text, value)
    return Kernel("deform_columns", value, operands, body, scalar_only=True, work=256)


@cache
def backward_kernel(dtype: torch.dtype, atomic: bool, of_floats: bool, width: int) -> Kernel:
    """Return the kernel of offsets' and masks' gradients, which adds images' if it is `atomic`.

    Args:
        dtype: of all tensors.
        atomic: whether images' gradients are added; never those of rows.
        of_floats: what `adds_floats` says of the device.
        width: as of `columns_kernel`.
    """
    value, helpers = dtype_of(dtype).value, ""
    parameters = _operands(dtype, width or 1)
    if atomic:
        wide = NARROW.get(dtype, dtype)
        helpers = atomic_update(value, wide.itemsize, "add", of_floats)
        parameters.append(Operand("total", wide, "address"))
    parameters += [Operand(f"along_{n}", dtype, "output") for n in ("y", "x", "mask")]
    text = BACKWARD.replace("UPDATE", UPDATE if atomic else "")
    if width:
        text = _of_rows(BACKWARD_OF_ROWS, value, width)
    body = in_type(text, value)
    return Kernel(
        "deform_backward", value, tuple(parameters), body, helpers, scalar_only=True, work=256
    )


@cache
def adding_kernel(dtype: torch.dtype, width: int) -> Kernel:
    """Return the kernel whose owners add images' gradients.

    Args:
        dtype: of all tensors.
        width: as of `columns_kernel`.
    """
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("total", NARROW.get(dtype, dtype), "address", items=width or 1, anywhere=width > 1),
        *(Operand(name, dtype, "address") for name in ("moves", "factors")),
        Operand("grad", dtype, "address", items=width or 1, anywhere=width > 1),
        *(Scalar(name, "long") for name in (*NUMBERS, *OWNED_NUMBERS)),
    )
    return owned_kernel("deform_owned", dtype_of(dtype).value, parameters, OWNED, width=width)


def _of_rows(text: str, value: str, width: int) -> str:
    """Return a text of vectors; SUM is that of a vector's lanes."""
    lanes = " + ".join(f"lanes[k].s{lane:x}" for lane in range(width)) if width > 1 else "lanes[k]"
    text = text.replace("SUM", lanes)
    if width == 1:
        text = re.sub(r"\b(LOAD|STORE)S_", r"\1_", text)
    text = re.sub(r"\bWIDTH\b", str(width), text)
    return re.sub(r"\bV\b", vectors.vector(value, width), text)
