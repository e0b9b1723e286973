"""What a network must supply to be checked: how to build, feed and judge it; it runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """One network.

    `build(size)` makes it with random weights and `inputs(size)` what it is given, both on the CPU;
    `run(network, *inputs)` returns all that is compared as one flat tensor. `agrees(network, twin,
    device)` is a further check, of `twin` on the device against `network`; it returns what to say
    of it and raises AssertionError.
    """

    name: str
    build: Callable[[int], nn.Module]
    inputs: Callable[[int], tuple[Any, ...]]
    run: Callable[..., Tensor] = lambda network, *inputs: flat(network(*inputs))
    agrees: Callable[[nn.Module, nn.Module, torch.device], str] | None = None
    smallest: int = 0


def flat(output: Any) -> Tensor:
    """Return all floating tensors of nested outputs as one vector."""
    if isinstance(output, Tensor):
        return output.flatten()
    parts = output.values() if isinstance(output, dict) else output
    return torch.cat([flat(part) for part in parts if part is not None])


def without_chance(network: nn.Module) -> nn.Module:
    """Return the network with dropout and stochastic depth off: random numbers differ by device."""
    module: Any
    for module in network.modules():
        if isinstance(getattr(module, "p", None), float):
            module.p = 0.0
    return network
