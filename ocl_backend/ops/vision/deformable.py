"""Convolution whose taps are moved, pixel by pixel (Dai et al. 2017; with a mask, Zhu et al. 2018).

Sampled images become columns, and a product with the weights, which is `matmul`'s, does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.kernels.elementwise import launch
from ocl_backend.kernels.plane_sums import owned_parts, zeros_to_add_to
from ocl_backend.kernels.scatter import adds_floats
from ocl_backend.kernels.vectors import width_of_rows
from ocl_backend.ops.vision.deformable_kernels import (
    adding_kernel,
    backward_kernel,
    columns_kernel,
)
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.problem_parts import output_size

MOST_ITEMS = 1 << 26
"""Items of the columns that exist at a time; images beyond them have their turns."""


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

    def width(self, x: Tensor) -> int:
        """Return how many channels, which then lie last, are read at once; 0: planes are read."""
        limits = devices()[x.get_device()].limits
        if limits.kind != "cpu" or self.groups > 1:
            return 0
        return width_of_rows(max(x.shape[1] // self.offset_groups, 1), limits)

    def owners(self, x: Tensor, width: int) -> tuple[int, int]:
        """Return into how many parts owners of gradients share channels, and vectors' width.

        Args:
            x: images.
            width: that is wanted.
        """
        channels = x.shape[1] // self.offset_groups
        for narrower in (width, *((1,) if width > 1 else ())):
            many = channels // max(narrower, 1)
            if parts := owned_parts(x.get_device(), len(x) * self.offset_groups, many):
                return parts, narrower
        return 0, 0  # atomics, which read planes

    def walked(self, image: Tensor, offset: Tensor, width: int) -> dict[str, tuple[int, ...]]:
        """Return how operands move along [n, offset groups, kh, kw, oh, ow].

        Args:
            image: images.
            offset: how taps move.
            width: channels that are read at once, 0: planes.
        """
        c = image.shape[1]
        channels, taps_x = c // self.offset_groups, self.kernel[1]
        (stride_y, stride_x), (along_y, along_x) = self.stride, self.dilation
        row, tap = offset.shape[3], offset.shape[2:].numel()
        taps = prod(self.kernel)
        step = taps * tap
        planes = (channels * step, taps_x * tap, tap, row, 1)
        rows = (channels, taps_x * c, c, row * taps * c, taps * c)
        return {
            "image": (image.stride(0), channels * image.stride(1), 0, 0, 0, 0),
            "row": (0, 0, along_y, 0, stride_y, 0),
            "column": (0, 0, 0, along_x, 0, stride_x),
            "columns": (c * step, *(rows if width else planes)),
        }

    def weights(self, weight: Tensor, width: int) -> Tensor:
        """Return weights [groups, out channels of a group, channels and taps as columns lie]."""
        split = weight.reshape(self.groups, len(weight) // self.groups, weight.shape[1], -1)
        return (split.mT if width else split).flatten(2)

    def weights_back(self, grad: Tensor, weight: Tensor, width: int) -> Tensor:
        """Return what `weights` made of `weight`, here its gradient, in the shape of `weight`."""
        taps = prod(self.kernel)
        if width:
            grad = grad.view(*grad.shape[:2], taps, weight.shape[1]).mT
        return grad.reshape(weight.shape)

    def columns(self, image: Tensor, offset: Tensor, factors: Tensor, width: int) -> Tensor:
        """Return sampled images, [n, groups, channels of a group and taps, pixels].

        Rows of pixels lie together, or columns where `width` channels are read at once.
        """
        (n, c), pixels = image.shape[:2], offset.shape[2:]
        taps, many = prod(self.kernel), pixels.numel()
        channels, step = c // self.offset_groups, taps * many
        sizes = (many, c // self.groups * taps)
        columns = image.new_empty(n, self.groups, *(sizes if width else sizes[::-1]))
        if columns.numel():
            if width:
                image = image.contiguous(memory_format=torch.channels_last)
            shape = (n, self.offset_groups, *self.kernel, *pixels)
            given: list[Tensor | float] = [image, *self.moves(offset), factors]
            given += [*self.numbers(image), columns, image.stride(1), step, channels]
            kernel = columns_kernel(image.dtype, width)
            launch(kernel, shape, given, self.walked(image, offset, width))
        return columns.mT if width else columns

    def scattered(
        self, grad: Tensor, image: Tensor, offset: Tensor, factors: Tensor, parts: int, width: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of image, offset and factors for those of the columns.

        Args:
            grad: the gradients, dense as `columns` lets them lie.
            image: dense images.
            offset: how taps move.
            factors: what they count.
            parts: of owners.
            width: channels that are read at once.
        """
        (n, c), pixels = image.shape[:2], offset.shape[2:]
        shape = (n, self.offset_groups, *self.kernel, *pixels)
        channels = c // self.offset_groups
        size = (n, *image.shape[2:], c) if width else image.shape
        total = zeros_to_add_to("deform_conv2d_backward_ocl", image, size, parts)
        if width:
            total = total.permute(0, 3, 1, 2)
            image = image.contiguous(memory_format=torch.channels_last)
        along = torch.empty_like(offset, memory_format=torch.contiguous_format)
        counts = image.new_empty(shape)
        if grad.numel():
            step = shape[2] * shape[3] * pixels.numel()
            walked = self.walked(image, offset, width)
            walked["total"] = walked["image"]
            given: list[Tensor | float] = [image, *self.moves(offset), factors]
            given += [*self.numbers(image), grad, image.stride(1), step, channels]
            given += [*([] if parts else [total]), *self.moves(along), counts]
            of_floats = adds_floats(image.get_device())
            kernel = backward_kernel(image.dtype, not parts, of_floats, width)
            launch(kernel, shape, given, walked)
            if parts:
                self._add_owned(total, grad, offset.contiguous(), factors, parts, width)
        return total.to(image.dtype), along, counts

    def _add_owned(
        self, total: Tensor, grad: Tensor, offset: Tensor, factors: Tensor, parts: int, width: int
    ) -> None:
        """Add the gradient of images to `total` for that of columns; all tensors are dense.

        Factors may be one item, expanded.
        """
        n, c, groups = len(total), total.shape[1], self.offset_groups
        pixels = offset.shape[2:]
        taps, many = prod(self.kernel), pixels.numel()
        channels, step = c // groups, taps * many
        spread = any(factors.stride())
        if spread:
            factors = factors.contiguous()
        moved = int(spread) * step
        walked = {
            "part": (0, 0, 1),
            "total": (total.stride(0), channels * total.stride(1), 0),
            "moves": (2 * groups * step, 2 * step, 0),
            "factors": (groups * moved, moved, 0),
            "grad": (c * step, channels * (1 if width else step), 0),
        }
        numbers = (*self.kernel, *pixels, *self.stride, *self.dilation, int(spread))
        steps = (c, taps * c) if width else (many, 1)
        share = ceil_div(channels // max(width, 1), parts) * max(width, 1)
        owned = (share, channels, total.stride(1), step)
        given = [total, offset, factors, grad, *self.numbers(total), *numbers, *steps, *owned]
        launch(adding_kernel(grad.dtype, width), (n, groups, parts), given, walked)


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
    width, parts = geometry.width(x), []
    weights = geometry.weights(weight, width)
    for own, moved, counts in _parts(many, x, offset, factors):
        columns = geometry.columns(own, moved, counts, width)
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
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    owners, width = geometry.owners(x[:many], geometry.width(x))
    weights = geometry.weights(weight, width)
    grad_weights = torch.zeros_like(weights)
    for given, own, moved, counts in _parts(many, grad, x.contiguous(), offset, factors):
        channels = len(weight) // geometry.groups
        rows = given.reshape(len(own), geometry.groups, channels, offset.shape[2:].numel())
        columns = geometry.columns(own, moved, counts, width)
        grad_weights += (rows @ columns.mT).sum(0)
        spread = (rows.mT @ weights if width else weights.mT @ rows).contiguous()
        parts.append(geometry.scattered(spread, own, moved, counts, owners, width))
    grad_x, grad_offset, grad_factors = (torch.cat(part) for part in zip(*parts, strict=True))
    grad_mask = grad_factors.view(mask.shape) if use_mask else torch.zeros_like(mask)
    grad_weight = geometry.weights_back(grad_weights, weight, width)
    return grad_x, grad_weight, grad_offset, grad_mask, grad.sum((0, 2, 3))


OPERATORS: dict[str, Callable[..., Any]] = {
    "deform_conv2d": deform_conv2d,
    "_deform_conv2d_backward": deform_conv2d_backward,
}
"""Implementations by torchvision's name."""
