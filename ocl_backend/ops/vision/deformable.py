"""Convolution whose taps are moved, pixel by pixel (Dai et al. 2017; with a mask, Zhu et al. 2018).

Sampled images become columns, and a product with the weights, which is `matmul`'s, does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.plane_sums import owned_kernel, owned_parts, zeros_to_add_to
from ocl_backend.kernels.scatter import NARROW, atomic_update
from ocl_backend.kernels.vectors import in_type
from oclgen.problem_parts import output_size

MOST_ITEMS = 1 << 26
"""Items of the columns that exist at a time; images beyond them have their turns."""

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
T along_y = 0, along_x = 0, along_mask = 0;
for (int k = 0; k < 4; ++k) {
    along_mask += shares[k] * weight_y[k] * weight_x[k];
    along_y += mask * (k / 2 ? shares[k] : -shares[k]) * weight_x[k];
    along_x += mask * (k % 2 ? shares[k] : -shares[k]) * weight_y[k];
}
"""
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
                ADD(at[k], source, mask * weight_y[k] * weight_x[k]);
            }
        }
    }
}
"""
)

OWNED_NUMBERS = (
    *("taps_y", "taps_x", "pixels_y", "pixels_x", "stride_y", "stride_x", "dilation_y"),
    *("dilation_x", "factors_step"),
)

NUMBERS = ("height", "width", "image_step_y", "image_step_x", "pad_y", "pad_x")


def _operands(dtype: torch.dtype) -> list[Operand | Scalar]:
    """Return what kernels take that walk samples and, in each, all channels."""
    return [
        Operand("image", dtype, "address"),
        *(Operand(name, dtype) for name in ("move_y", "move_x", "mask")),
        *(Operand(name, role="position") for name in ("row", "column")),
        *(Scalar(name, "long") for name in NUMBERS),
        Operand("columns", dtype, "address"),
        *(Scalar(name, "long") for name in ("image_step_c", "columns_step_c", "channels")),
    ]


@cache
def _kernel(dtype: torch.dtype) -> Kernel:
    value = dtype_of(dtype).value
    operands = tuple(_operands(dtype))
    body = in_type(COLUMNS, value)
    return Kernel("deform_columns", value, operands, body, scalar_only=True, work=256)


@cache
def _backward_kernel(dtype: torch.dtype, atomic: bool) -> Kernel:
    """Return the kernel of offsets' and masks' gradients, which adds images' if it is `atomic`."""
    value, helpers = dtype_of(dtype).value, ""
    parameters = _operands(dtype)
    if atomic:
        wide = NARROW.get(dtype, dtype)
        helpers = atomic_update(value, wide.itemsize, "add")
        parameters.append(Operand("total", wide, "address"))
    parameters += [Operand(f"along_{n}", dtype, "output") for n in ("y", "x", "mask")]
    body = in_type(BACKWARD.replace("UPDATE", UPDATE if atomic else ""), value)
    return Kernel(
        "deform_backward", value, tuple(parameters), body, helpers, scalar_only=True, work=256
    )


@cache
def _owned_kernel(dtype: torch.dtype) -> Kernel:
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("total", NARROW.get(dtype, dtype), "address"),
        *(Operand(name, dtype, "address") for name in ("moves", "factors", "grad")),
        *(Scalar(name, "long") for name in (*NUMBERS, *OWNED_NUMBERS)),
    )
    return owned_kernel("deform_owned", dtype_of(dtype).value, parameters, OWNED)


@dataclass(frozen=True, slots=True)
class DeformableArguments:
    """What is fixed of a convolution: pairs are along h and w."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    offset_groups: int

    def moves(self, offset: Tensor) -> tuple[Tensor, Tensor]:
        """Return how taps move along h and w, [n, offset groups, kh, kw, oh, ow] each."""
        n, _, oh, ow = offset.shape
        both = offset.reshape(n, self.offset_groups, *self.kernel, 2, oh, ow)
        return both[:, :, :, :, 0], both[:, :, :, :, 1]

    def factors(self, mask: Tensor, offset: Tensor, use_mask: bool) -> Tensor:
        """Return what each tap counts, shaped as a move; 1 without a mask."""
        n, _, oh, ow = offset.shape
        if not use_mask:
            return offset.new_ones(()).expand(n, self.offset_groups, *self.kernel, oh, ow)
        return mask.reshape(n, self.offset_groups, *self.kernel, oh, ow)

    def numbers(self, image: Tensor) -> list[int]:
        """Return what a launch is given of an image's plane and its padding."""
        return [*image.shape[2:], image.stride(2), image.stride(3), *self.padding]

    def walked(self, image: Tensor, offset: Tensor) -> dict[str, tuple[int, ...]]:
        """Return how operands move along [n, offset groups, kh, kw, oh, ow].

        Args:
            image: images.
            offset: how taps move.
        """
        c = image.shape[1]
        channels, taps_x = c // self.offset_groups, self.kernel[1]
        (stride_y, stride_x), (along_y, along_x) = self.stride, self.dilation
        row, tap = offset.shape[3], offset.shape[2:].numel()
        step = prod(self.kernel) * tap
        return {
            "image": (image.stride(0), channels * image.stride(1), 0, 0, 0, 0),
            "row": (0, 0, along_y, 0, stride_y, 0),
            "column": (0, 0, 0, along_x, 0, stride_x),
            "columns": (c * step, channels * step, taps_x * tap, tap, row, 1),
        }

    def columns(self, image: Tensor, offset: Tensor, factors: Tensor) -> Tensor:
        """Return sampled images, [n, groups, channels of a group * taps, pixels]."""
        (n, c), pixels = image.shape[:2], offset.shape[2:]
        channels, step = c // self.offset_groups, prod(self.kernel) * pixels.numel()
        columns = image.new_empty(n, self.groups, c // self.groups * prod(self.kernel),
                                  pixels.numel())  # fmt: skip
        if columns.numel():
            shape = (n, self.offset_groups, *self.kernel, *pixels)
            given: list[Tensor | float] = [image, *self.moves(offset), factors]
            given += [*self.numbers(image), columns, image.stride(1), step, channels]
            launch(_kernel(image.dtype), shape, given, self.walked(image, offset))
        return columns

    def scattered(
        self, grad: Tensor, image: Tensor, offset: Tensor, factors: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of image, offset and factors for those of the columns."""
        (n, c), pixels = image.shape[:2], offset.shape[2:]
        shape = (n, self.offset_groups, *self.kernel, *pixels)
        channels = c // self.offset_groups
        parts = owned_parts(image.get_device(), n * self.offset_groups, channels)
        total = zeros_to_add_to("deform_conv2d_backward_ocl", image, image.shape, parts)
        along = torch.empty_like(offset, memory_format=torch.contiguous_format)
        counts = image.new_empty(shape)
        if grad.numel():
            step = shape[2] * shape[3] * pixels.numel()
            walked = self.walked(image, offset)
            walked["total"] = walked["image"]
            given: list[Tensor | float] = [image, *self.moves(offset), factors]
            given += [*self.numbers(image), grad, image.stride(1), step, channels]
            given += [*([] if parts else [total]), *self.moves(along), counts]
            launch(_backward_kernel(image.dtype, not parts), shape, given, walked)
            if parts:
                self._add_owned(total, grad, offset.contiguous(), factors, parts)
        return total.to(image.dtype), along, counts

    def _add_owned(
        self, total: Tensor, grad: Tensor, offset: Tensor, factors: Tensor, parts: int
    ) -> None:
        """Add the gradient of images to `total` for that of columns; all tensors are dense.

        Factors may be one item, expanded.
        """
        n, c, groups = len(total), total.shape[1], self.offset_groups
        pixels = offset.shape[2:]
        channels, step = c // groups, prod(self.kernel) * pixels.numel()
        spread = any(factors.stride())
        if spread:
            factors = factors.contiguous()
        moved = int(spread) * step
        walked = {
            "part": (0, 0, 1),
            "total": (total.stride(0), channels * total.stride(1), 0),
            "moves": (2 * groups * step, 2 * step, 0),
            "factors": (groups * moved, moved, 0),
            "grad": (c * step, channels * step, 0),
        }
        numbers = (*self.kernel, *pixels, *self.stride, *self.dilation, int(spread))
        owned = (-(-channels // parts), channels, total.stride(1), step)
        given = [total, offset, factors, grad, *self.numbers(total), *numbers, *owned]
        launch(_owned_kernel(grad.dtype), (n, groups, parts), given, walked)


def _weights(weight: Tensor, groups: int) -> Tensor:
    """Return weights [groups, out channels, channels * taps] of a group each."""
    return weight.reshape(groups, len(weight) // groups, -1)


def _geometry(weight: Tensor, numbers: tuple[int, ...]) -> DeformableArguments:
    sh, sw, ph, pw, dh, dw, groups, offset_groups = numbers
    kernel = (weight.shape[2], weight.shape[3])
    return DeformableArguments(kernel, (sh, sw), (ph, pw), (dh, dw), groups, offset_groups)


def check_offsets(
    x: Tensor, weight: Tensor, offset: Tensor, numbers: Sequence[int]
) -> DeformableArguments:
    """Return what is fixed of a convolution: `numbers` of `deform_conv2d` but the last.

    Raises:
        RuntimeError: sizes or channels of weights and offsets do not fit x.
    """
    geometry = _geometry(weight, tuple(numbers))
    sides = zip(x.shape[2:], *astuple(geometry)[:4], strict=True)
    sizes = [output_size(*side) for side in sides]
    if list(offset.shape[2:]) != sizes or len(offset) != len(x):
        raise RuntimeError(
            f"deform_conv2d has {len(x)} results of {sizes} pixels, its offsets are for "
            f"{len(offset)} of {list(offset.shape[2:])}"
        )
    taps = 2 * geometry.offset_groups * weight.shape[2] * weight.shape[3]
    if x.shape[1] != weight.shape[1] * geometry.groups or offset.shape[1] != taps:
        raise RuntimeError(
            f"deform_conv2d of {x.shape[1]} channels in {geometry.groups} groups takes weights of "
            f"{x.shape[1] // geometry.groups} channels and offsets of {taps} channels, not "
            f"{weight.shape[1]} and {offset.shape[1]}"
        )
    return geometry


def check_alike(x: Tensor, **others: Tensor) -> None:
    """Compare dtypes and devices with x's, since kernels read all of them as they read x.

    Raises:
        RuntimeError: one differs.
    """
    for name, one in others.items():
        if (one.dtype, one.device) != (x.dtype, x.device):
            raise RuntimeError(
                f"deform_conv2d of {x.dtype} on {x.device} has {name} of {one.dtype} on "
                f"{one.device}; convert it"
            )


def _turns(x: Tensor, offset: Tensor, weight: Tensor) -> int:
    """Return how many images have their columns in memory at a time."""
    each = x.shape[1] * weight[0, 0].numel() * offset.shape[2:].numel()
    return max(1, MOST_ITEMS // max(each, 1))


def _parts(many: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Return the tensors by parts of `many` along the first dimension."""
    return zip(*(torch.split(tensor, many) for tensor in tensors), strict=True)


def deform_conv2d(
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    *numbers: int,
) -> Tensor:
    """Return [n, out channels, oh, ow] of images x [n, c, h, w].

    Args:
        x: floats.
        weight: [out channels, c / groups, kh, kw].
        offset: [n, 2 * offset groups * taps, oh, ow]: how each tap moves along h and w.
        mask: [n, offset groups * taps, oh, ow]: what it counts.
        bias: [out channels].
        numbers: stride, padding and dilation along h and w, groups of channels and of offsets, and
            whether the mask counts.
    """
    *rest, use_mask = numbers
    geometry = check_offsets(x, weight, offset, rest)
    check_alike(x, weight=weight, offset=offset, mask=mask, bias=bias)
    factors, many = geometry.factors(mask, offset, bool(use_mask)), _turns(x, offset, weight)
    weights, parts = _weights(weight, geometry.groups), []
    for own, moved, counts in _parts(many, x, offset, factors):
        columns = geometry.columns(own, moved, counts)
        parts.append((weights @ columns).view(len(own), len(weight), *offset.shape[2:]))
    return torch.cat(parts) + bias.view(-1, 1, 1)


def deform_conv2d_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    *numbers: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight, offset, mask and bias; arguments as of `deform_conv2d`."""
    *rest, use_mask = numbers
    geometry = _geometry(weight, tuple(rest))
    check_alike(x, grad=grad, weight=weight, offset=offset, mask=mask)
    factors, many = geometry.factors(mask, offset, bool(use_mask)), _turns(x, offset, weight)
    weights, parts = _weights(weight, geometry.groups), []
    grad_weights = torch.zeros_like(weights)
    for given, own, moved, counts in _parts(many, grad, x.contiguous(), offset, factors):
        channels = len(weight) // geometry.groups
        rows = given.reshape(len(own), geometry.groups, channels, offset.shape[2:].numel())
        columns = geometry.columns(own, moved, counts)
        grad_weights += (rows @ columns.mT).sum(0)
        spread = (weights.mT @ rows).contiguous()
        parts.append(geometry.scattered(spread, own, moved, counts))
    grad_x, grad_offset, grad_factors = (torch.cat(part) for part in zip(*parts, strict=True))
    grad_mask = grad_factors.view(mask.shape) if use_mask else torch.zeros_like(mask)
    return grad_x, grad_weights.view(weight.shape), grad_offset, grad_mask, grad.sum((0, 2, 3))


OPERATORS: dict[str, Callable[..., Any]] = {
    "deform_conv2d": deform_conv2d,
    "_deform_conv2d_backward": deform_conv2d_backward,
}
"""Implementations by torchvision's name."""
