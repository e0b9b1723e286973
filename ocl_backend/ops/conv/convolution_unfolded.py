"""Convolutions that the tuned families lack: three dimensions, float64 and integers.

Spatial dimensions are unfolded into channels, until a tuned convolution of two dimensions or a
product of matrices is left. `convolution` calls the families directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import torch
from torch import Tensor
from torch.nn.functional import pad

from ocl_backend.dispatch.arguments import spread
from ocl_backend.dtypes import STORAGE
from ocl_backend.kernels.memory_formats import arranged, image_strides, in_pixels
from ocl_backend.ops.conv import slice_windows
from ocl_backend.ops.tensor.copies import mirrored_copy
from oclgen.problem import output_size

Sizes = tuple[int, ...]

MANY_RESULTS = 2
"""Channels of y for each of x from which windows of y's gradient are larger than sums of x's."""


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A convolution that is not transposed, by its input's and weights' shapes.

    Its first `count` spatial dimensions are unfolded: [batch, channels, *sizes] becomes
    [batch * windows, channels * taps, *the other sizes]. In `pixels` images are in channels_last,
    and taps come before channels, which are neighbours and are copied as such.
    """

    x: Sizes
    w: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int
    count: int
    pixels: bool = False

    @property
    def spans(self) -> Sizes:
        """Items from a window's first to after its last, per dimension."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.w[2:], self.dilation, strict=True))

    @property
    def out(self) -> Sizes:
        """Sizes of the result's spatial dimensions."""
        steps = self.stride, self.padding, self.dilation
        return tuple(map(output_size, self.x[2:], self.w[2:], *steps))

    @property
    def margins(self) -> list[int]:
        """The padding of the unfolded dimensions, as torch.nn.functional.pad takes it."""
        rest = [0, 0] * (len(self.out) - self.count)
        return rest + [p for p in reversed(self.padding[: self.count]) for _ in range(2)]

    @property
    def is_flat(self) -> bool:
        """Whether windows are rows of one frame: frames one below the other are then one image."""
        sizes = self.w[2:4], self.stride[:2], self.padding[:2]
        return self.count == 1 and sizes == ((1, 1), (1, 1), (0, 0))

    @property
    def mirror(self) -> Unfolded | None:
        """Unfolds y's gradient: a convolution of the result, without sums, is x's gradient.

        It meets the taps from the last to the first. None where a stride leaves taps out.
        """
        if any(step > 1 for step in self.stride[: self.count]):
            return None
        places = zip(self.spans[: self.count], self.padding, strict=False)
        margins = (span - 1 - padding for span, padding in places)
        padding = (*margins, *self.padding[self.count :])
        return replace(self, x=(self.x[0], self.w[0], *self.out), padding=padding)

    def unfold(self, x: Tensor) -> Tensor:
        """Return x with the windows in the batch and their taps in the channels."""
        sizes = x.shape[2 + self.count :]
        if self._is_of_slices(x):
            return slice_windows.images(x, self._of_slices, self.pixels)
        if self.pixels:
            # batch, windows, other sizes, channels, taps
            view = self._windows(pad(x.movedim(1, -1).contiguous(), [0, 0, *self.margins]), 1)
            view = view.movedim(x.dim() - 1, -1)
            return view.reshape(self._batch, *sizes, -1).movedim(-1, 1)
        # batch, channels, windows, other sizes, taps
        view = self._windows(pad(x, self.margins), 2)
        windows, taps = range(2, 2 + self.count), range(x.dim(), x.dim() + self.count)
        rest = range(2 + self.count, x.dim())
        view = view.permute(0, *windows, 1, *taps, *rest)
        return view.reshape(self._batch, -1, *sizes)

    def _is_of_slices(self, images: Tensor) -> bool:
        """Say whether slices of volumes are unfolded, by kernels of their own."""
        return self.count == 1 and len(self.x) == 5 and slice_windows.serves(images)

    @property
    def _of_slices(self) -> slice_windows.Windows:
        """The windows of slices."""
        steps = self.stride[0], self.padding[0], self.dilation[0]
        return slice_windows.Windows(self.out[0], self.w[2], *steps)

    def _windows(self, view: Tensor, first: int) -> Tensor:
        """Return a view of the windows of dimensions from `first` on, taps after all."""
        for dim in range(self.count):
            view = view.unfold(first + dim, self.spans[dim], self.stride[dim])
            view = view[..., :: self.dilation[dim]]
        return view

    def fold(self, columns: Tensor) -> Tensor:
        """Return what `unfold` spread out, added up: [batch, channels, *sizes]."""
        if self._is_of_slices(columns):
            return slice_windows.sums(columns, self.x, self._of_slices, self.pixels)
        taps = self.w[2 : 2 + self.count]
        order = (*taps, self.x[1]) if self.pixels else (self.x[1], *taps)
        view = columns.view(self.x[0], *self.out[: self.count], *order, *columns.shape[2:])
        if self.pixels:
            view = view.movedim(1 + 2 * self.count, 1 + self.count)
        grown = list(self.x)
        for dim in range(self.count):
            grown[2 + dim] += 2 * self.padding[dim]
        total = arranged(columns.new_zeros(grown), self.pixels)
        first_tap = 2 + self.count
        for tap in product(*map(range, taps)):
            part = view
            for index in reversed(range(self.count)):
                part = part.select(first_tap + index, tap[index])
            self._target(total, tap).add_(part.movedim(1 + self.count, 1))
        return pad(total, [-margin for margin in self.margins])

    def _target(self, total: Tensor, tap: Sequence[int]) -> Tensor:
        """Return the items of the padded sum that tap number `tap` of every window falls on."""
        for dim, position in enumerate(tap):
            first = position * self.dilation[dim]
            last = first + (self.out[dim] - 1) * self.stride[dim]
            total = total.narrow(2 + dim, first, last - first + 1)
            every = slice(None, None, self.stride[dim])
            total = total[(slice(None),) * (2 + dim) + (every,)]
        return total

    def windows_first(self, y: Tensor) -> Tensor:
        """Return y [batch, channels, *out] as the inner operation has it."""
        moved = (arranged(y, True) if self.pixels else y).movedim(1, 1 + self.count)
        return moved.reshape(self._batch, y.shape[1], *y.shape[2 + self.count :])

    def channels_first(self, y: Tensor, like: Tensor) -> Tensor:
        """Return the inner operation's y as [batch, channels, *out], in the format of `like`."""
        apart = y.view(self.x[0], *self.out[: self.count], *y.shape[1:])
        return arranged(apart.movedim(1 + self.count, 1), in_pixels(like))

    @property
    def _batch(self) -> int:
        return self.x[0] * prod(self.out[: self.count])


def describe(
    x: Sizes,
    w: Sizes,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    dtype: torch.dtype,
    pixels: bool,
) -> Unfolded:
    """Return how to convolve x [batch, channels, *sizes] with w; a single number serves all sizes.

    Tuned convolutions take over where two dimensions of a dtype they know are left, else products.
    With `pixels` images of one group are unfolded in channels_last.
    """
    rank = len(x) - 2
    strides, pads, steps = (spread(values, rank) for values in (stride, padding, dilation))
    count = rank - 2 if dtype in STORAGE else rank
    in_last = pixels and groups == 1 and rank == 3 and dtype in STORAGE
    return Unfolded(tuple(x), tuple(w), strides, pads, steps, groups, count, in_last)


def transposed_shape(
    x: Sizes,
    w: Sizes,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Sizes:
    """Return the shape of x's transposed convolution with w [channels, out / groups, *kernel]."""
    rank = len(x) - 2
    steps = (spread(values, rank) for values in (stride, padding, dilation, output_padding))
    sizes = zip(x[2:], w[2:], *steps, strict=True)
    grown = ((n - 1) * s - 2 * p + d * (k - 1) + o + 1 for n, k, s, p, d, o in sizes)
    return (x[0], w[1] * groups, *grown)


def check_gradient(
    grad: Sizes,
    x: Sizes,
    w: Sizes,
    steps: tuple[Sequence[int], Sequence[int], Sequence[int]],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> None:
    """Raise RuntimeError unless `grad` has the shape of x's result, which kernels rely on.

    `steps`: stride, padding, dilation.
    """
    if transposed:
        shape = transposed_shape(x, w, *steps, output_padding, groups)
    else:
        spreads = (spread(values, len(x) - 2) for values in steps)
        shape = (x[0], w[0], *map(output_size, x[2:], w[2:], *spreads))
    if grad != shape:
        raise RuntimeError(
            f"a convolution's gradient must have its result's shape, {[*shape]}, not {[*grad]}: "
            "give the gradient of this input's result"
        )


def longer(
    x: Tensor, stride: Sequence[int], output_padding: Sequence[int]
) -> tuple[Tensor, list[int]]:
    """Return x with zeros after it in place of output padding of a stride and more, and the rest.

    A transposed convolution is the gradient of one whose last window begins within a stride of
    the end; zeros are spread out to nothing.
    """
    steps, more = (spread(values, x.dim() - 2) for values in (stride, output_padding))
    whole = [o // s for o, s in zip(more, steps, strict=True)]
    margins = [side for count in reversed(whole) for side in (0, count)]
    return pad(x, margins), [o % s for o, s in zip(more, steps, strict=True)]


def forward(plan: Unfolded, x: Tensor, w: Tensor) -> Tensor:
    """Return the convolution of x with w, [batch, out_channels, *out]."""
    if plan.is_flat:
        frames, kernel = x.flatten(2, 3), w.flatten(2, 3)
        y: Tensor = torch.ops.aten.convolution_overrideable(
            frames, kernel, None, *_rest(plan), False, [0, 0], plan.groups
        )
        return y.view(*y.shape[:2], *x.shape[2:4], y.shape[-1])
    columns, weights = plan.unfold(x), weights_of(plan, w)
    if not plan.out[plan.count :]:
        rows = _grouped(plan, columns).transpose(0, 1)
        y = torch.bmm(rows, weights.transpose(1, 2)).transpose(0, 1)
        return plan.channels_first(y.flatten(1), x)
    y = torch.ops.aten.convolution_overrideable(
        columns, weights, None, *_rest(plan), False, [0, 0], plan.groups
    )
    return plan.channels_first(y, x)


def backward_data(plan: Unfolded, grad: Tensor, w: Tensor) -> Tensor:
    """Return the gradient of x [batch, channels, *sizes], or a transposed convolution of `grad`."""
    if 0 in plan.x:
        return grad.new_empty(plan.x)
    if plan.is_flat:
        frames, kernel = grad.flatten(2, 3), w.flatten(2, 3)
        shape = (plan.x[0], plan.x[1], frames.shape[2], plan.x[-1])
        wide = _backward(plan, frames, _like(frames, shape), kernel, (True, False, False))[0]
        return wide.view(plan.x)
    sizes = plan.x[2 + plan.count :]
    many_results = plan.w[0] >= MANY_RESULTS * plan.x[1]
    if sizes and not many_results and (mirrored := plan.mirror) is not None:
        columns = mirrored.unfold(grad)
        like = _like(columns, (len(columns), plan.x[1], *sizes))
        flipped = mirrored_weights(plan, w)
        wide = _backward(plan, columns, like, flipped, (True, False, False))[0]
        return mirrored.channels_first(wide, grad)
    grads, weights = plan.windows_first(grad), weights_of(plan, w)
    if not sizes:
        rows = _grouped(plan, grads).transpose(0, 1)
        columns = torch.bmm(rows, weights).transpose(0, 1)
        return plan.fold(columns.flatten(1))
    like = _like(grads, (len(grads), weights.shape[1] * plan.groups, *sizes))
    columns = _backward(plan, grads, like, weights, (True, False, False))[0]
    return arranged(plan.fold(columns), in_pixels(grad))


def backward_weights(plan: Unfolded, grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of the weights, [out_channels, channels / groups, *kernel_size]."""
    if plan.is_flat:
        like = x.new_empty((*plan.w[:2], 1, plan.w[-1]))
        frames = grad.flatten(2, 3), x.flatten(2, 3)
        return _backward(plan, *frames, like, (False, True, False))[1].view(plan.w)
    grads, columns = plan.windows_first(grad), plan.unfold(x)
    if not plan.out[plan.count :]:
        rows = _grouped(plan, grads).permute(1, 2, 0)
        terms = _grouped(plan, columns).transpose(0, 1)
        return torch.bmm(rows, terms).view(plan.w)
    taps = plan.w[2 : 2 + plan.count]
    like = grads.new_empty((plan.w[0], plan.w[1] * prod(taps), *plan.w[2 + plan.count :]))
    grad_w = _backward(plan, grads, columns, like, (False, True, False))[1]
    if not plan.pixels:
        return grad_w.view(plan.w)
    apart = grad_w.view(plan.w[0], *taps, plan.w[1], *plan.w[2 + plan.count :])
    return apart.movedim(1 + plan.count, 1).contiguous()


def _like(images: Tensor, shape: Sizes) -> Tensor:
    """Return images of a shape, whose items do not count, in the memory format of others."""
    return images.new_empty_strided(shape, image_strides(torch.Size(shape), in_pixels(images)))


def _grouped(plan: Unfolded, rows: Tensor) -> Tensor:
    """Return rows [batch, channels] as [batch, groups, channels / groups]."""
    return rows.view(len(rows), plan.groups, rows.shape[1] // plan.groups)


def weights_of(plan: Unfolded, w: Tensor) -> Tensor:
    """Return w with its first taps among the channels; for a product [groups, out, columns]."""
    if not plan.out[plan.count :]:
        return w.reshape(plan.groups, plan.w[0] // plan.groups, -1)
    lying = w.movedim(1, 1 + plan.count) if plan.pixels else w
    return lying.reshape(plan.w[0], -1, *plan.w[2 + plan.count :])


def mirrored_weights(plan: Unfolded, w: Tensor) -> Tensor:
    """Return w [channels of y * taps, channels of x, ...] for what `Unfolded.mirror` unfolds.

    Along one dimension taps are copied to where they are met, on processors one by one: to mirror
    all of w and then to exchange taps and channels would copy it twice.
    """
    taps, rest = plan.w[2 : 2 + plan.count], plan.w[2 + plan.count :]
    if plan.count > 1:
        dims = range(2, 2 + plan.count)
        order = (0, *dims, 1, *range(2 + plan.count, w.dim()))
        return w.flip([*dims]).permute(order).reshape(-1, plan.w[1], *rest)
    mirrored = _like(w, (plan.w[0] * taps[0], plan.w[1], *rest))
    apart, dim = ((taps[0], plan.w[0]), 0) if plan.pixels else ((plan.w[0], taps[0]), 1)
    view = mirrored.view(*apart, *mirrored.shape[1:])
    if w.dim() == 5 and slice_windows.serves(w):
        mirrored_copy(w.movedim(2, dim), view, dim)
        return mirrored
    for tap in range(taps[0]):
        view.select(dim, taps[0] - 1 - tap).copy_(w.select(2, tap))
    return mirrored


def _rest(plan: Unfolded) -> tuple[list[int], list[int], list[int]]:
    """Return stride, padding and dilation of the dimensions that are not unfolded."""
    stride, padding, dilation = (
        list(values[plan.count :]) for values in (plan.stride, plan.padding, plan.dilation)
    )
    return stride, padding, dilation


def _backward(
    plan: Unfolded, grad: Tensor, x: Tensor, w: Tensor, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the inner convolution; an x or w not needed gives its shape only."""
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward_overrideable(
        grad, x, w, *_rest(plan), False, [0, 0], plan.groups, wanted
    )
    return gradients
