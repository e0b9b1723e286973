"""Memory formats: results take channels_last from their operands, as torch's convention has it.

Most kernels read and write contiguous tensors, and a copy rearranges them. A convolution that
reads channels_last in place says so in its problem's layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from ocl_backend.kernels.dimensions import contiguous_strides

Result = TypeVar("Result", Tensor, Tensor | None)

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def laid_out_like(result: Result, *models: Tensor) -> Result:
    """Return `result`, in channels_last if one of `models` is and is not contiguous as well."""
    if result is None or not in_pixels(*models):
        return result
    wanted = FORMATS.get(result.dim())
    return result if wanted is None else result.contiguous(memory_format=wanted)


def in_pixels(*models: Tensor) -> bool:
    """Say whether one of `models` is in channels_last and is not contiguous as well."""
    for model in models:  # noqa: SIM110  (a generator costs more than its one item)
        if not model.is_contiguous() and _is_last(model):
            return True
    return False


def arranged(x: Tensor, pixels: bool) -> Tensor:
    """Return a tensor in channels_last or contiguous, itself if it lies so."""
    if not pixels:
        return x.contiguous()
    return x.contiguous(memory_format=FORMATS[x.dim()])


def like_image(shape: Sequence[int], x: Tensor, rank: int) -> Tensor:
    """Return memory for an image that lies as x does, channels last or contiguous.

    Args:
        shape: [batch?, channels, *sizes].
        x: another image of its dtype.
        rank: dimensions after the channels.
    """
    last = rank > 1 and x.dim() == rank + 2 and in_pixels(x)
    form = FORMATS[x.dim()] if last else torch.contiguous_format
    return torch.empty(tuple(shape), dtype=x.dtype, device=x.device, memory_format=form)


def dense(parameter: Tensor | None) -> Tensor | None:
    """Return a parameter whose items lie one behind the other, itself if they do, or None."""
    return None if parameter is None else parameter.contiguous()


@lru_cache(maxsize=4096)
def image_strides(shape: torch.Size, pixels: bool) -> tuple[int, ...]:
    """Return the strides of a new image of that shape, in channels_last or contiguous."""
    if not pixels:
        return contiguous_strides(shape)
    batch, channels, height, width = shape
    image, row, pixel, channel = contiguous_strides((batch, height, width, channels))
    return image, channel, row, pixel


def _is_last(model: Tensor) -> bool:
    wanted = FORMATS.get(model.dim())
    return wanted is not None and model.is_contiguous(memory_format=wanted)


def as_rows(x: Tensor, axis: int) -> Tensor:
    """Return x with its items along `axis` as dense rows, [rows, size]."""
    return x.movedim(axis, -1).reshape(-1, x.shape[axis]).contiguous()


def from_rows(rows: Tensor, like: Tensor, axis: int) -> Tensor:
    """Return dense rows as a tensor shaped as `like` but along `axis`.

    Args:
        rows: [rows, size] of a tensor that `as_rows` made rows of.
        like: has that tensor's other sizes.
        axis: along which the rows' items lie.
    """
    moved = like.movedim(axis, -1)
    return rows.view(*moved.shape[:-1], rows.shape[1]).movedim(-1, axis).contiguous()
