"""Keeps parameters the objects they are, when their modules move to a device and back.

Between its own devices, torch puts new memory under an old parameter. For a private device it makes
new parameters instead. Without this module an optimizer that was made before the move would go on
with the old ones, and modules that share a parameter would get one each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn


def register() -> None:
    """Make `nn.Module._apply`, which every `to`, `half` and the like goes through, keep them.

    It calls itself for the modules within a module.
    """
    move: Callable[..., Any] = nn.Module._apply

    @wraps(move)
    def apply(self: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> Any:
        before = dict(self._parameters)
        moved = move(self, fn, recurse)
        if not torch.__future__.get_overwrite_module_params_on_conversion():
            for name, old in before.items():
                new = self._parameters[name]
                if old is not None and new is not None and new is not old:
                    self._parameters[name] = _with_memory_of(old, new)
        return moved

    nn.Module._apply = apply  # type: ignore[method-assign]


def _with_memory_of(old: nn.Parameter, new: nn.Parameter) -> nn.Parameter:
    """Return `old`, to which the tensor of `new` and the hooks of its own belong from now on.

    Hooks on gradients belong to a tensor. Class and attributes belong to the Python object.
    """
    for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if given := getattr(old, hooks):
            setattr(new, hooks, given)
    torch._C._swap_tensor_impl(old, new)
    return old
