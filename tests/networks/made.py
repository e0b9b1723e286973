"""A network with what it is given: all that a library's module hands to the comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map


@dataclass(frozen=True)
class Made:
    """A network on the CPU in float32, and the arguments of a call; `call` says how if not so."""

    network: nn.Module
    given: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    call: Callable[..., Any] = lambda network, *given, **named: network(*given, **named)

    def outputs(self, network: nn.Module, device: Any, dtype: torch.dtype) -> Tensor:
        """Return all floating results of a call of `network`, a twin of this one, as one vector."""

        def move(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            return leaf.to(device, dtype if leaf.is_floating_point() else None)

        given, named = tree_map(move, (self.given, self.named))
        return torch.cat(floats(self.call(network, *given, **named)))


def floats(output: Any) -> list[Tensor]:
    """Return the floating tensors of a nested output, flat; caches and the like have none."""
    if isinstance(output, Tensor):
        real = torch.view_as_real(output) if output.is_complex() else output
        return [real.flatten()] if real.is_floating_point() else []
    if isinstance(output, Mapping):
        output = output.values()
    elif not isinstance(output, list | tuple):
        return []
    return [tensor for part in output for tensor in floats(part)]


def without_chance(network: nn.Module) -> nn.Module:
    """Set what is a chance of dropping to 0: random numbers differ by device."""
    for module in network.modules():
        for place in (module, getattr(module, "config", None)):
            for name, value in list(getattr(place, "__dict__", {}).items()):
                chance = name == "p" or "drop" in name
                if chance and isinstance(value, float) and not name.startswith("_"):
                    setattr(place, name, 0.0)
    return network
