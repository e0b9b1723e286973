"""Keeps parameters that modules share shared, when the modules move to a device and back.

Between its own devices, torch puts new memory under an old parameter. For a private device it makes
new parameters, one per place. Nothing else about moving is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from threading import local
from typing import Any

from torch import nn

Place = tuple[dict[str, nn.Parameter | None], str]
"""A module's parameters and the name of one."""

_moving = local()


def register() -> None:
    """Make `nn.Module._apply`, which every `to`, `half` and the like goes through, keep them."""
    move: Callable[..., Any] = nn.Module._apply

    @wraps(move)
    def apply(self: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> Any:
        if not recurse or getattr(_moving, "now", False):
            return move(self, fn, recurse)
        shared = _shared(self)
        _moving.now = True
        try:
            return move(self, fn, recurse)
        finally:
            _moving.now = False
            for (parameters, name), *others in shared:
                for those, other in others:
                    those[other] = parameters[name]

    nn.Module._apply = apply  # type: ignore[method-assign]


def _shared(module: nn.Module) -> list[list[Place]]:
    places: defaultdict[int, list[Place]] = defaultdict(list)
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                places[id(parameter)].append((part._parameters, name))
    return [found for found in places.values() if len(found) > 1]
