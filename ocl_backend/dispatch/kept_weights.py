"""Keeps what convolutions make of weights alone, between calls that need no gradient.

Filter transforms, packing and folded normalisations are the same as long as the weights are. What
depends on weights alone stands in the plan; this module decides only when it may be used again.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ocl_backend.dispatch.prepared_plan import PreparedPlan
from ocl_backend.dispatch.settings import KEEP_WEIGHTS

Result = TypeVar("Result")


class Weights(NamedTuple):
    """Tensors of which something is made, the first by which it is kept, and their state."""

    owner: Tensor
    state: tuple[object, ...]
    """Version and address of each, and what else counts."""

    def joined(self, other: Weights, *more: object) -> Weights:
        """Return these and others, and `more` that the result depends on, kept by this owner."""
        return Weights(self.owner, (*self.state, *other.state, *more))


class _Made(NamedTuple):
    """A result, and the state of the weights that it was made of."""

    state: tuple[object, ...]
    result: Any


_kept: MutableMapping[Tensor, WeakKeyDictionary[object, _Made]] = WeakTensorKeyDictionary()
KEEP_WEIGHTS.when_set(lambda _: _kept.clear())


def weights_of(*tensors: Tensor | None) -> Weights | None:
    """Return the state of `tensors` at this moment, or None if nothing may be kept of them."""
    if not KEEP_WEIGHTS.value or torch.is_grad_enabled():
        return None
    given = [tensor for tensor in tensors if tensor is not None]
    if any(tensor.is_inference() for tensor in given):
        return None
    return Weights(given[0], tuple((tensor._version, tensor.data_ptr()) for tensor in given))


def made_once(weights: Weights | None, maker: object, make: Callable[[], Result]) -> Result:
    """Return what was made of weights; make it anew where they changed.

    Args:
        weights: None: nothing is kept.
        maker: what uses the result, such as a prepared plan; it is kept as long as both live.
        make: called without arguments.
    """
    if weights is None:
        return make()
    by_maker = _kept.get(weights.owner)
    if by_maker is None:
        by_maker = _kept[weights.owner] = WeakKeyDictionary()
    made = by_maker.get(maker)
    if made is None or made.state != weights.state:
        made = by_maker[maker] = _Made(weights.state, make())
    result: Result = made.result
    return result


def run(launch: PreparedPlan, weights: Weights, *pointers: int) -> None:
    """Enqueue `launch`, with what was kept of `weights` if that still holds.

    Raises:
        LaunchError, torch.OutOfMemoryError: as `PreparedPlan`.
    """
    made = made_once(weights, launch, lambda: launch.make_of_weights(*pointers))
    launch.run_rest(made, *pointers)
