"""Convolutions on the tuned families: forward, both gradients, transposed; 1-d and 2-d.

Each of them is one `ConvProblem` in one of its three directions; a transposed convolution is the
gradient of another one (Dumoulin and Visin, arXiv:1603.07285). The families compute it. Three
dimensions are computed by `convolution_volumes` if a family reads them. All others are unfolded
first, by `convolution_unfolded`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import ge
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ocl_backend.dispatch import settings
from ocl_backend.dispatch.arguments import Pair, pair
from ocl_backend.dispatch.layouts import (
    better_known,
    is_for_matrix_units,
    is_for_tiles,
    suits_pixels,
)
from ocl_backend.dispatch.tuned import TunedCall, remember, tuned_call
from ocl_backend.dtypes import STORAGE
from ocl_backend.kernels.memory_formats import arranged, image_strides, in_pixels, laid_out_like
from ocl_backend.ops.conv import apart_taps, long_filters, one_pixel
from ocl_backend.ops.conv import convolution_unfolded as unfolded
from ocl_backend.ops.conv import convolution_volumes as volumes
from ocl_backend.ops.fused.fused_convolution import Convolving
from oclgen.families.parts.strided_weights import STRIDES
from oclgen.problem import ConvProblem, Direction, output_size

Strides = tuple[int, ...]
Steps = tuple[tuple[str, int], ...]
"""Strides of weights that are not contiguous, by the names of `STRIDES`."""


class ConvArguments(NamedTuple):
    """A convolution as torch describes it, without its tensors' sizes; pairs are (h, w)."""

    stride: Pair
    padding: Pair
    dilation: Pair
    output_padding: Pair
    groups: int
    transposed: bool


def output_shape(
    x: tuple[int, ...], w: tuple[int, ...], geometry: ConvArguments
) -> tuple[int, ...]:
    """Return [batch, channels, h, w] of the result for an input [batch, in_channels, h, w]."""
    steps = geometry.stride, geometry.padding, geometry.dilation
    if geometry.transposed:
        return unfolded.transposed_shape(x, w, *steps, geometry.output_padding, geometry.groups)
    return (x[0], w[0], *map(output_size, x[2:], w[2:], *steps))


def convolution(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Return the convolution of x [batch, in_channels, h, w]; bias is [out_channels].

    w is [out_channels, in_channels / groups, kernel_h, kernel_w], or, transposed,
    [in_channels, out_channels / groups, kernel_h, kernel_w].

    Other dimensions and dtypes are unfolded into these.

    Raises:
        ProblemError: the sizes contradict each other.
        RuntimeError: dtypes differ, or output padding reaches over both stride and dilation.
    """
    _check(x, w, bias)
    if transposed and any(map(ge, output_padding, map(max, stride, dilation))):
        raise RuntimeError(
            "output padding must be smaller than either stride or dilation, but got "
            f"output_padding: {[*output_padding]} stride: {[*stride]} dilation: {[*dilation]}"
        )
    if transposed and any(o >= s for o, s in zip(output_padding, stride, strict=False)):
        x, output_padding = unfolded.longer(x, stride, output_padding)
    if not _served(x):
        y = _unfolded_forward(x, w, stride, padding, dilation, transposed, output_padding, groups)
        return y if bias is None else y.add_(bias.view(-1, *[1] * (x.dim() - 2)))
    geometry = _geometry(stride, padding, dilation, transposed, output_padding, groups)
    shape = torch.Size(output_shape(x.shape, w.shape, geometry))
    if shape.numel() == 0 or x.numel() == 0:
        y = x.new_zeros(shape)
        return y if bias is None else y.add_(bias.view(-1, 1, 1))
    if not transposed and one_pixel.is_product(x, w, padding, groups):
        return one_pixel.forward(x, w, bias)
    given, pixels = (x, w), in_pixels(x, w)
    if transposed:
        y = _backward_data(x, w, shape, geometry, pixels)
        return laid_out_like(y if bias is None else y.add_(bias.view(-1, 1, 1)), *given)
    call = _forward(x, w, geometry, pixels, bias is not None)
    rule = _rule(call.run, call.steps)
    read = arranged(x, call.pixels)
    y = _run_forward(rule, shape, image_strides(shape, call.pixels), read, w, bias)
    return laid_out_like(y, *given)


def _backward_data(
    grad: Tensor, w: Tensor, shape: torch.Size, geometry: ConvArguments, pixels: bool
) -> Tensor:
    """Return the gradient of an image of `shape`, or the transposed convolution of `grad`."""
    if apart_taps.are_sparse(w, shape, *geometry[:3], pixels):
        dense = geometry._replace(stride=(1, 1), dilation=(1, 1), output_padding=(0, 0))
        met = _backward_data(grad, *apart_taps.as_one_tap(w, shape, grad.shape), dense, pixels)
        return apart_taps.spread(met, shape, w.shape[2:], geometry.stride, geometry.dilation)
    call = _call("bwd_data", shape, w, grad, geometry, pixels)
    # named, so that the call's workspaces get other memory
    read, filters = arranged(grad, call.pixels), call.readable(w)
    result = _empty(grad, shape, call.pixels)
    call.run(result.data_ptr(), filters.data_ptr(), read.data_ptr())
    return result


class _Call(NamedTuple):
    """A tuned call: images lie in channels_last (`pixels`) or contiguous, weights as they were
    shown (`strided`) or contiguous, their gradient else as images do. `steps` are strides by name.
    """  # noqa: D205

    run: TunedCall
    pixels: bool
    strided: bool
    steps: Steps

    def readable(self, w: Tensor) -> Tensor:
        """Return w as the call reads or writes it."""
        return w if self.strided else w.contiguous()


@remember()
def _rule(call: TunedCall, steps: Steps) -> Convolving:
    return Convolving(call, steps)


def _run_forward(
    rule: Convolving, shape: torch.Size, strides: Strides, x: Tensor, w: Tensor, bias: Tensor | None
) -> Tensor:
    """Return the forward convolution of an image that lies as the rule's call wants it.

    The launch is held back for what may follow.
    """
    y, lying = x.new_empty_strided(shape, strides), w if rule.steps else w.contiguous()
    bias = bias if bias is None else bias.contiguous()
    shift = () if bias is None else (bias.data_ptr(),)
    rule.offer((x.data_ptr(), lying.data_ptr(), y.data_ptr(), *shift))
    return y


def _empty(like: Tensor, shape: torch.Size, pixels: bool) -> Tensor:
    return like.new_empty_strided(shape, image_strides(shape, pixels))


def convolution_backward(
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of x, w and bias that `output_mask` asks for, None for the others."""
    steps = stride, padding, dilation
    unfolded.check_gradient(grad.shape, x.shape, w.shape, steps, transposed, output_padding, groups)
    if transposed and any(o >= s for o, s in zip(output_padding, stride, strict=False)):
        longer, rest = unfolded.longer(x, stride, output_padding)
        grad_longer, *others = convolution_backward(
            grad, longer, w, *steps, transposed, rest, groups, output_mask
        )
        if grad_longer is not None:
            grad_longer = grad_longer[tuple(map(slice, x.shape))].contiguous()
        return grad_longer, others[0], others[1]
    grad_bias = grad.sum((0, *range(2, x.dim()))) if output_mask[2] else None
    if grad.numel() == 0 or x.numel() == 0:
        grad_x = torch.zeros_like(x) if output_mask[0] else None
        return grad_x, torch.zeros_like(w) if output_mask[1] else None, grad_bias
    if not _served(x):
        gradients = _unfolded_backward(grad, x, w, *steps, transposed, groups, output_mask)
        return *gradients, grad_bias
    geometry = _geometry(stride, padding, dilation, transposed, output_padding, groups)
    given_x, pixels = x, in_pixels(x, w)
    if not transposed and one_pixel.is_product(x, w, padding, groups):
        return *one_pixel.backward(grad, x, w, output_mask), grad_bias
    # transposed: the convolution it is the gradient of has grad as its input and x as its output
    wide, narrow = (grad, x) if transposed else (x, grad)
    grad_x = grad_w = None
    if output_mask[0] and not transposed:
        grad_x = _backward_data(grad, w, x.shape, geometry, pixels)
    elif output_mask[0]:
        call = _call("fwd", wide.shape, w, x, geometry, pixels)
        source, grad_x = arranged(grad, call.pixels), _empty(x, x.shape, call.pixels)
        read = call.readable(w)  # named, so that the call's workspaces get other memory
        call.run(source.data_ptr(), read.data_ptr(), grad_x.data_ptr())
    if output_mask[1] and long_filters.is_long(w, groups):
        steps = geometry.stride, geometry.padding, geometry.dilation
        grad_w = long_filters.weights_gradient(
            convolution, wide, narrow, w.shape[2:], *steps, groups
        )
    elif output_mask[1]:
        grad_w = torch.empty_like(w)
        call = _call("bwd_weights", wide.shape, grad_w, x, geometry, pixels)
        if not call.strided:
            grad_w = _empty(w, w.shape, call.pixels)
        wide, narrow = arranged(wide, call.pixels), arranged(narrow, call.pixels)
        call.run(wide.data_ptr(), grad_w.data_ptr(), narrow.data_ptr())
    return laid_out_like(grad_x, given_x), laid_out_like(grad_w, w), grad_bias


def _check(x: Tensor, w: Tensor, bias: Tensor | None) -> None:
    """Raise RuntimeError, with torch's text, where dtypes differ."""
    for factor, name in ((w, "weight"), (bias, "bias")):
        if factor is not None and factor.dtype is not x.dtype:
            raise RuntimeError(
                f"Input type ({x.type()}) and {name} type ({factor.type()}) should be the same"
            )


def _geometry(
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> ConvArguments:
    return ConvArguments(
        pair(stride), pair(padding), pair(dilation), pair(output_padding), groups, transposed
    )


def _served(x: Tensor) -> bool:
    """Whether the families know these dimensions and this dtype."""
    return x.dim() == 4 and x.dtype in STORAGE


def _unfolds_pixels(x: Tensor) -> bool:
    """Whether x is in channels_last, or for units whose families read volumes in no other order."""
    device, dtype = x.get_device(), _storage(x)
    return in_pixels(x) or is_for_matrix_units(device, dtype) or is_for_tiles(device, dtype)


def _unfolded_forward(
    x: Tensor,
    w: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    steps, rest = (stride, padding, dilation), (groups, x.dtype, _unfolds_pixels(x))
    shape: tuple[int, ...] = x.shape
    if transposed:
        shape = unfolded.transposed_shape(x.shape, w.shape, *steps, output_padding, groups)
    plan = unfolded.describe(shape, w.shape, *steps, *rest)
    return _run(unfolded.backward_data if transposed else unfolded.forward, plan, x, w)


def _unfolded_backward(
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    wide, narrow = (grad, x) if transposed else (x, grad)
    rest = groups, x.dtype, _unfolds_pixels(x)
    plan = unfolded.describe(wide.shape, w.shape, stride, padding, dilation, *rest)
    grad_x = grad_w = None
    if output_mask[0]:
        by = unfolded.forward if transposed else unfolded.backward_data
        grad_x = _run(by, plan, grad, w)
    if output_mask[1]:
        grad_w = _run(unfolded.backward_weights, plan, narrow, wide, in_pixels(w))
    return grad_x, grad_w


Unfolding = Callable[[unfolded.Unfolded, Tensor, Tensor], Tensor]
_IN_PLACE: dict[Unfolding, Callable[..., Tensor | None]] = {
    unfolded.forward: volumes.forward,
    unfolded.backward_data: volumes.backward_data,
    unfolded.backward_weights: volumes.backward_weights,
}
"""The function that computes the same if a family reads windows of volumes."""


def _run(by: Unfolding, plan: unfolded.Unfolded, a: Tensor, b: Tensor, *pixels: bool) -> Tensor:
    """Return a convolution of images, without copies of their windows if that is possible.

    A kernel of depth 1 has none. `pixels`: a gradient of weights is to lie in channels_last.
    """
    found = None
    if plan.pixels and not plan.is_flat and a.numel() and b.numel():
        found = _IN_PLACE[by](plan, a, b, _storage(a), *pixels)
    return by(plan, a, b) if found is None else found


def _forward(x: Tensor, w: Tensor, geometry: ConvArguments, pixels: bool, bias: bool) -> _Call:
    """Return the forward call, which may read weights in channels_last as they lie.

    Only one that reads images so: what it may become one with then does, too.
    """
    last = not w.is_contiguous() and w.is_contiguous(memory_format=torch.channels_last)
    call = _call("fwd", x.shape, w, x, geometry, pixels, bias) if last and pixels else None
    if call is not None and call.pixels and call.strided:
        return call
    return _call("fwd", x.shape, w, x, geometry, pixels, bias, dense=True)


def _call(
    direction: Direction,
    x: tuple[int, ...],
    w: Tensor,
    like: Tensor,
    geometry: ConvArguments,
    pixels: bool,
    bias: bool = False,
    dense: bool = False,
) -> _Call:
    """Return the call for an input of this shape and weights, as the problem names them.

    Only with `pixels` it may want images in channels_last; with `dense` it wants w contiguous. How
    a gradient of weights lies by itself depends on the layout: its strides are always said.
    """
    storage = _storage(like)
    usual = dense or (w.is_contiguous() and direction != "bwd_weights")
    strides = () if usual else w.stride()
    call: _Call = _prepared(
        direction, x, w.shape, strides, like.get_device(), storage, geometry, pixels, bias
    )
    return call


def _storage(x: Tensor) -> str:
    """Return the dtype of problems with such a tensor, "" if they know none."""
    storage = STORAGE.get(x.dtype, "")
    return "tf32" if storage == "fp32" and settings.conv.allow_tf32 else storage


@remember()
def _prepared(
    direction: Direction,
    x: tuple[int, ...],
    w: tuple[int, ...],
    w_strides: tuple[int, ...],
    device: int,
    dtype: str,
    geometry: ConvArguments,
    pixels: bool,
    bias: bool,
) -> _Call:
    batch, in_channels, height, width = x
    out_channels, _, kernel_h, kernel_w = w
    # a single tap has no distance to others: 1x1 layers are the same at any dilation
    apart_h, apart_w = (n if k > 1 else 1 for k, n in zip(w[2:], geometry.dilation, strict=True))
    problem = ConvProblem(
        batch, in_channels, height, width, out_channels, kernel_h, kernel_w,
        *geometry.stride, *geometry.padding, apart_h, apart_w, geometry.groups,
        dtype=dtype, direction=direction, bias=bias,
    )  # fmt: skip
    name = "convolution" if direction == "fwd" else "convolution_backward"
    in_last = replace(problem, layout="nhwc")
    if pixels:
        problem = better_known(device, in_last, problem)
    elif suits_pixels(device, problem):
        problem = better_known(device, problem, in_last)
    steps = tuple(zip(STRIDES, w_strides, strict=True)) if w_strides else ()
    call = tuned_call(f"{name}_overrideable", device, problem, steps)
    strided = not steps or call.replaceable >= {*STRIDES}
    return _Call(call, problem.layout == "nhwc", strided, steps if strided else ())


OPERATORS: dict[str, Callable[..., Any]] = {
    "convolution_overrideable": convolution,
    "convolution_backward_overrideable": convolution_backward,
}
"""Implementations by aten name."""
