"""Packed weights that read the same row of x: a graph multiplies them in one launch.

A token's step has many short products, of which each costs a launch. `join` lays the weights of
several one behind the other. While a graph is captured, the first product computes the results of
all, and the others return their parts. Calls outside of captures stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import local
from typing import NamedTuple
from weakref import ref

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
        parameters: all of them.
    """

    whole: Tensor
    first: int
    parameters: tuple[ref[Parameter], ...]

    @property
    def versions(self) -> tuple[int | None, ...]:
        """How often each parameter was written to."""
        found = (one() for one in self.parameters)
        return tuple(None if one is None else one._version for one in found)


class _Last(NamedTuple):
    """The last joined product of a thread; x is held so that nothing else takes its memory."""

    capture: int
    place: Place
    x: Tensor
    versions: tuple[int | None, ...]
    """Of x and the parameters when it was captured."""
    out: Tensor


_thread = local()


def join(parameters: Sequence[Parameter]) -> None:
    """Let packed weights of one format and row length share memory, in their order.

    Those made in inference mode stay apart: nothing tells whether they were written to.

    Args:
        parameters: uint8 [rows, bytes of a row], on one device.
    """
    if any(one.is_inference() for one in parameters):
        return
    whole = torch.cat([one.data for one in parameters])
    all_of_them = tuple(map(ref, parameters))
    first = 0
    for one in parameters:
        one.data = whole[first : first + len(one)]
        setattr(one, ATTRIBUTE, Place(whole, first, all_of_them))
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
    versions = x._version, *place.versions
    if last is None or not _is_same(last, place, x, versions):
        out = product(x, place.whole, len(place.whole))
        last = _thread.last = _Last(capture.number(), place, x, versions, out)
    if place.first + n == len(place.whole):
        _thread.last = None  # the last part: a graph's memory is free again
    return last.out[:, place.first : place.first + n]


def _lies_at(weight: Tensor, place: Place) -> bool:
    """Whether the parameter's memory is still that which it was joined in."""
    begin: int = place.whole.data_ptr() + place.first * place.whole.stride(0)
    return weight.data_ptr() == begin and weight.shape[1:] == place.whole.shape[1:]


def _is_same(last: _Last, place: Place, x: Tensor, versions: tuple[int | None, ...]) -> bool:
    """Whether the last product is of this capture, of these weights and x as they are now."""
    return (
        last.capture == capture.number()
        and last.place.whole is place.whole
        and last.x.data_ptr() == x.data_ptr()
        and (last.x.shape, last.x.dtype, last.versions) == (x.shape, x.dtype, versions)
    )
