"""Gradients of weights with long rows on processors, computed as forward convolutions.

A family of such gradients keeps a sum for every tap of a row in registers. Of a filter with more
taps the gradient is itself a convolution: batch and channels change places, the gradient of y is
the filter, and stride and dilation change places, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from ocl_backend.dispatch.arguments import Pair
from oclgen.families.conv.conv_register_weights_plan import MAX_KERNEL_W
from oclgen.opencl.device import devices

Forward = Callable[..., Tensor]
"""Has the arguments of `convolution`."""


def is_long(w: Tensor, groups: int) -> bool:
    """Say whether no family of a processor sums the gradient of such weights in registers.

    Args:
        w: [out_channels, channels / groups, kernel_h, kernel_w].
        groups: of the convolution; with a channel each, families of depthwise layers sum it.
    """
    has_family = w.shape[3] <= MAX_KERNEL_W or (groups > 1 and w.shape[1] == 1)
    return not has_family and devices()[w.get_device()].limits.kind == "cpu"


def weights_gradient(
    forward: Forward,
    x: Tensor,
    grad: Tensor,
    kernel_size: Sequence[int],
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    """Return the gradient of weights, [out_channels, channels / groups, *kernel_size].

    Args:
        forward: computes a convolution of two dimensions.
        x: [batch, channels, height, width].
        grad: gradient of y, [batch, out_channels, out_h, out_w].
        kernel_size: rows and columns of the filter.
        stride: pixels from one result to the next, (h, w).
        padding: pixels of zeros on each side.
        dilation: pixels from one tap to the next.
        groups: of channels.
    """
    batch, channels, *pixels = x.shape
    grouped = x.reshape(batch, groups, channels // groups, *pixels)
    images = grouped.permute(2, 1, 0, 3, 4).flatten(1, 2)
    taps = forward(
        images.contiguous(),
        grad.transpose(0, 1).contiguous(),
        None,
        dilation,
        padding,
        stride,
        False,
        (0, 0),
        groups,
    )
    # a stride may leave columns out, which more taps would meet
    rows, columns = kernel_size
    return taps[:, :, :rows, :columns].transpose(0, 1).contiguous()
