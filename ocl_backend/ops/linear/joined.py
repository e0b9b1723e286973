"""Packed weights that read the same row of x: a graph multiplies them in one launch.

A token's step has many short products, of which each costs a launch. `join` lays the weights of
several one behind the other. While a graph is captured, the first product computes the results of
all, and the others return their parts. Calls outside of captures stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import local
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from ocl_backend.runtime import capture

ATTRIBUTE = "_ocl_joined"
Product = Callable[[Tensor, Tensor, int], Tensor]
"""x [1, k], the weights, and how many rows they have, to x w^T."""


class Place(NamedTuple):
    """Where a parameter's rows lie among those that it was joined with.

    Attributes:
        whole: all rows; every parameter is a part of its memory.
        first: the first row.
    """

    whole: Tensor
    first: int


class _Last(NamedTuple):
    """The last joined product of a thread; x is held so that nothing else takes its memory."""

    whole: Tensor
    x: Tensor
    version: int
    out: Tensor


_thread = local()


def join(parameters: Sequence[Parameter]) -> None:
    """Let packed weights of one format and row length share memory, in their order.

    Args:
        parameters: uint8 [rows, bytes of a row], on one device.
    """
    whole = torch.cat([one.data for one in parameters])
    first = 0
    for one in parameters:
        one.data = whole[first : first + len(one)]
        setattr(one, ATTRIBUTE, Place(whole, first))
        first += len(one)


def part(x: Tensor, weight: Tensor, n: int, product: Product) -> Tensor | None:
    """Return x w^T as a part of the joined product, None where there is none.

    Args:
        x: [m, k].
        weight: the parameter.
        n: its rows.
        product: multiplies by all rows.
    """
    place: Place | None = getattr(weight, ATTRIBUTE, None)
    if place is None or len(x) != 1 or not capture.is_capturing():
        return None
    if torch.is_grad_enabled() or x.is_inference() or not _lies_at(weight, place):
        return None
    last: _Last | None = getattr(_thread, "last", None)
    if last is None or not _is_same(last, place, x):
        out = product(x, place.whole, len(place.whole))
        last = _thread.last = _Last(place.whole, x, x._version, out)
    if place.first + n == len(place.whole):
        _thread.last = None  # the last part: a graph's memory is free again
    return last.out[:, place.first : place.first + n]


def _lies_at(weight: Tensor, place: Place) -> bool:
    """Whether the parameter's memory is still that which it was joined in."""
    begin: int = place.whole.data_ptr() + place.first * place.whole.stride(0)
    return weight.data_ptr() == begin and weight.shape[1:] == place.whole.shape[1:]


def _is_same(last: _Last, place: Place, x: Any) -> bool:
    """Whether the last product was of these weights, and of x as it is now."""
    return (
        last.whole is place.whole
        and last.x.data_ptr() == x.data_ptr()
        and (last.x.shape, last.x.dtype, last.version) == (x.shape, x.dtype, x._version)
    )
