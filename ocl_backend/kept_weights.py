"""Keeps what convolutions make of weights alone, between calls that need no gradient.

Filter transforms and packing are the same as long as the weights are. What depends on weights
alone stands in the plan; this module decides only when it may be used again.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ocl_backend.launch import PreparedPlan


class _Made(NamedTuple):
    """Workspaces, and the state of the weights they were made of."""

    version: int
    pointer: int
    spaces: dict[int, Tensor]


_on = False
_kept: MutableMapping[Tensor, WeakKeyDictionary[PreparedPlan, _Made]] = WeakTensorKeyDictionary()


def keep_weights(on: bool = True) -> None:
    """Keep filter transforms and packed weights of convolutions between calls, or let them go.

    They are made again when torch counts a change of the weights, and go when the weights do. A
    change through `weight.data` is not counted: turn this off and on after it. It applies where no
    gradient is recorded, and takes up to four times the memory of the weights. Off by default.
    """
    global _on
    _on = on
    _kept.clear()


def run(launch: PreparedPlan, w: Tensor, *pointers: int) -> None:
    """Enqueue `launch`, with what was kept of `w` if that still holds.

    Raises:
        LaunchError, torch.OutOfMemoryError: as `PreparedPlan`.
    """
    if not _on or torch.is_grad_enabled() or w.is_inference():
        launch(*pointers)
        return
    by_plan = _kept.get(w)
    if by_plan is None:
        by_plan = _kept[w] = WeakKeyDictionary()
    made = by_plan.get(launch)
    if made is None or (made.version, made.pointer) != (w._version, w.data_ptr()):
        made = _Made(w._version, w.data_ptr(), launch.make_of_weights(*pointers))
        by_plan[launch] = made
    launch.run_rest(made.spaces, *pointers)
