"""What a failed call is told as: the error that the CPU raises for the same call.

Kernels check what keeps them right, in few words; torch's own words are asked for here, once
something has failed. No call that succeeds comes through this module.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from oclgen.opencl.device import BuildError, LaunchError

OF_THE_DEVICE = (torch.OutOfMemoryError, torch.AcceleratorError, BuildError, LaunchError)
"""Errors of which the CPU knows nothing."""

MOST_ITEMS = 1 << 22
"""Larger calls are judged by their shapes alone, on torch's meta device."""


def as_the_cpu_tells(
    overload: Any, args: Sequence[Any], kwargs: dict[str, Any], error: Exception
) -> Exception:
    """Return what torch would raise for a call that raised `error`, or `error` itself.

    Tensors on several devices come first: whatever went wrong, that is why; but an index may lie on
    the CPU, and be wrong.

    Args:
        overload: the operator that was called.
        args: of the call, tensors on the device among them.
        kwargs: of the call.
        error: what the kernel raised.
    """
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    # a CPU tensor without dimensions passes for a number
    found = {tensor.device: None for tensor in tensors if tensor.dim() or not tensor.is_cpu}
    if len(found) > 1 and not isinstance(error, IndexError):
        first, second = list(found)[:2]
        return RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{first} and {second}! (when calling {overload.name()}) Move them with .to()."
        )
    if isinstance(error, OF_THE_DEVICE):
        return error
    place = "cpu" if sum(map(Tensor.numel, tensors)) <= MOST_ITEMS else "meta"
    theirs = _raised(overload, *tree_map(lambda leaf: _twin(leaf, place), (args, kwargs)))
    # an operator that torch has for devices of others alone says so on the CPU
    beside = isinstance(theirs, NotImplementedError) > isinstance(error, NotImplementedError)
    return error if theirs is None or beside else theirs


def _raised(overload: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Exception | None:
    """Return what a call raises, without a trace of it in warnings or random numbers."""
    with warnings.catch_warnings(), torch.random.fork_rng([]):
        warnings.simplefilter("ignore")
        try:
            overload(*args, **kwargs)
        except Exception as error:  # whatever the CPU raises is the answer
            return error
    return None


def _twin(leaf: Any, place: str) -> Any:
    """Return what stands for an argument on `place`: tensors keep all but their values.

    Reading those would wait for the device. Integers are 0, which is an index of most tensors.
    """
    if isinstance(leaf, torch.device):
        return torch.device(place)
    if isinstance(leaf, torch.Generator):
        return None
    if not isinstance(leaf, Tensor):
        return leaf
    if not leaf.numel():
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=place)
    reach = sum((size - 1) * step for size, step in zip(leaf.shape, leaf.stride(), strict=True))
    make = torch.ones if leaf.is_floating_point() else torch.zeros
    return make(reach + 1, dtype=leaf.dtype, device=place).as_strided(leaf.shape, leaf.stride())
