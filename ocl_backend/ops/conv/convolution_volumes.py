"""Convolutions of three dimensions by families that read windows of volumes in place.

If no family of the device can, `convolution_unfolded` copies the windows. Results here have the
shape of the inner operation: [batch * windows, channels, height, width] in channels_last.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from ocl_backend.dispatch.tuned import TunedCall, remember, tuned_call
from ocl_backend.kernels.dimensions import contiguous_strides
from ocl_backend.kernels.memory_formats import image_strides
from ocl_backend.ops.conv.convolution_unfolded import Unfolded
from oclgen.families.parts.strided_weights import VOLUME_STRIDES
from oclgen.problem import ConvProblem, Direction, Volume
from tuned_db import NoVariantError

CHUNK_BYTES = 16
"""What GPUs copy at once: channels of a slice fill such chunks, with zeros if need be."""


def forward(plan: Unfolded, x: Tensor, w: Tensor, dtype: str) -> Tensor | None:
    """Return the convolution of x with w, [batch, out_channels, *out]; None: no family serves it.

    Args:
        plan: the convolution; images are to be unfolded in channels_last.
        x: [batch, channels, *sizes].
        w: [out_channels, channels, *kernel_size], of any strides.
        dtype: the problem's.
    """
    shape = (len(x) * plan.out[0], w.shape[0], *plan.out[1:])
    found = _filled(x, lambda more: _call("fwd", plan, w.shape[0], _windowed(plan, more), dtype, w))
    if found is None:
        return None
    (call, images), y = found, _image(x, shape)
    call(images.data_ptr(), w.data_ptr(), y.data_ptr())
    return plan.channels_first(y, x)


def backward_data(plan: Unfolded, grad: Tensor, w: Tensor, dtype: str) -> Tensor | None:
    """Return the gradient of x [batch, channels, *sizes]; None: no family serves it.

    Windows are those of `grad`, which meet the taps from the last to the first.

    Args:
        plan: the convolution that `grad` is the gradient of.
        grad: [batch, out_channels, *out].
        w: [out_channels, channels, *kernel_size], of any strides.
        dtype: the problem's.
    """
    mirror = plan.mirror
    if mirror is None or mirror.padding[0] < 0:
        return None
    volume = Volume(plan.out[0], plan.w[2], 1, mirror.padding[0], plan.dilation[0])

    def call_of(more: int) -> TunedCall | None:
        channels = volume.taps * (plan.w[0] + more)
        return _call("bwd_data", plan, channels, (volume, plan.x[1]), dtype, w)

    found = _filled(grad, call_of)
    if found is None:
        return None
    call, images = found
    x = _image(grad, (len(grad) * plan.x[2], *plan.x[1:2], *plan.x[3:]))
    last_taps = w[:, :, -1]
    call(x.data_ptr(), last_taps.data_ptr(), images.data_ptr())
    return mirror.channels_first(x, grad)


def backward_weights(
    plan: Unfolded, grad: Tensor, x: Tensor, dtype: str, pixels: bool
) -> Tensor | None:
    """Return the gradient of w, [out_channels, channels, *kernel_size]; None: no family serves it.

    Args:
        plan: the convolution.
        grad: [batch, out_channels, *out].
        x: [batch, channels, *sizes].
        dtype: the problem's.
        pixels: the gradient is to lie in channels_last, else contiguous.
    """
    grad_w = x.new_empty_strided(plan.w, _weights_strides(plan.w, pixels))
    found = _filled(
        x, lambda more: _call("bwd_weights", plan, plan.w[0], _windowed(plan, more), dtype, grad_w)
    )
    if found is None:
        return None
    (call, images), rows = found, plan.windows_first(grad)
    call(images.data_ptr(), grad_w.data_ptr(), rows.data_ptr())
    return grad_w


def _weights_strides(shape: tuple[int, ...], pixels: bool) -> tuple[int, ...]:
    """Return the strides of new weights of three dimensions."""
    if not pixels:
        return contiguous_strides(shape)
    out, deep, row, column, into = contiguous_strides((shape[0], *shape[2:], shape[1]))
    return out, into, deep, row, column


def _filled(
    images: Tensor, call_of: Callable[[int], TunedCall | None]
) -> tuple[TunedCall, Tensor] | None:
    """Return the call of a family that reads the images, and these in channels_last.

    Where none reads them as they are, their channels are filled up to whole chunks.

    Args:
        images: [batch, channels, *sizes].
        call_of: the call for images with a number of channels of zeros more; None: there is none.
    """
    missing = -images.shape[1] % (CHUNK_BYTES // images.element_size())
    for more in dict.fromkeys((0, missing)):
        if (call := call_of(more)) is not None:
            return call, _slices(images, more)
    return None


def _slices(images: Tensor, more: int) -> Tensor:
    """Return images in channels_last with `more` channels of zeros."""
    if not more:
        return images.contiguous(memory_format=torch.channels_last_3d)
    return pad(images.movedim(1, -1), [0, more]).contiguous().movedim(-1, 1)


def _windowed(plan: Unfolded, more: int) -> tuple[Volume, int]:
    """Return the windows of x and their channels."""
    steps = plan.stride[0], plan.padding[0], plan.dilation[0]
    volume = Volume(plan.x[2], plan.w[2], *steps)
    return volume, volume.taps * (plan.x[1] + more)


def _image(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return like.new_empty_strided(shape, image_strides(torch.Size(shape), True))


def _call(
    direction: Direction,
    plan: Unfolded,
    out_channels: int,
    windows: tuple[Volume, int],
    dtype: str,
    w: Tensor,
) -> TunedCall | None:
    call: TunedCall | None = _prepared(
        direction, plan, out_channels, *windows, dtype, w.stride(), w.get_device()
    )
    return call


@remember()
def _prepared(
    direction: Direction,
    plan: Unfolded,
    out_channels: int,
    volume: Volume,
    in_channels: int,
    dtype: str,
    w_strides: tuple[int, ...],
    device: int,
) -> TunedCall | None:
    """Return the call for windows of a volume, None if no family of the device reads them."""
    (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), (kernel_h, kernel_w) = (
        values[-2:] for values in (plan.stride, plan.padding, plan.dilation, plan.w)
    )
    height, width = plan.x[3:]
    problem = ConvProblem(
        plan.x[0] * volume.windows, in_channels, height, width, out_channels, kernel_h, kernel_w,
        stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
        dtype=dtype, direction=direction, layout="nhwc", volume=volume,
    )  # fmt: skip
    name = "convolution" if direction == "fwd" else "convolution_backward"
    out, into, deep, *rest = w_strides
    # the windows of y's gradient meet the taps along the depth from the last to the first
    mirrored = direction == "bwd_data"
    steps = (out, into, *rest, -deep if mirrored else deep, plan.w[0 if mirrored else 1])
    try:
        given = tuple(zip(VOLUME_STRIDES, steps, strict=True))
        return tuned_call(f"{name}_overrideable", device, problem, given)
    except NoVariantError:
        return None
