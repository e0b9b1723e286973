"""Runs a network on the device and on the CPU: forward, backward, three steps of training.

Errors are norms of differences from float64 over norms, with the CPU's float32 beside. A network
is wrong if, for all seeds, one is above its bound and above ten times the CPU's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tests.networks.made import Made, without_chance

BOUNDS = {"output": 1e-4, "gradients": 1e-3, "steps": 1e-3}
OWN_ERRORS, SEEDS, STEPS = 10, 3, 3
CHANCE = 1e-2
"""The CPU's own error from which a comparison says nothing."""


class LeftOutError(Exception):
    """The CPU cannot run the network, or what it computes is no measure."""


class Passes(NamedTuple):
    """Results of a call, all gradients, and what training changed: vectors of float64."""

    output: Tensor
    gradients: Tensor
    steps: Tensor


class Verdict(NamedTuple):
    """Errors of the device by name, the CPU's own, and whether the first are small enough."""

    errors: dict[str, float]
    own: dict[str, float]
    right: bool


def compare(make: Callable[[], Made], device: torch.device, seed: int) -> Verdict:
    """Return how far the device is from float64 at the first seed at which it is right.

    Args:
        make: draws network and inputs anew from torch's seed.
        device: what is compared.
        seed: of the first draw.

    Raises:
        LeftOutError: the CPU fails, gives what is not finite, or is far from itself.
    """
    for own_seed in range(seed, seed + SEEDS):
        made, plain, exact = _on_the_cpu(make, own_seed)
        ours = passes(made, deepcopy(made.network).to(device), device, torch.float32)
        verdict = judge(ours, plain, exact)
        if verdict.right:
            break
    return verdict


def _on_the_cpu(make: Callable[[], Made], seed: int) -> tuple[Made, Passes, Passes]:
    """Return a network, what the CPU makes of it, and the exact passes or what stands for them."""
    torch.manual_seed(seed)
    try:
        with torch.no_grad():  # what a module keeps of a call could not be copied else
            made = make()
        without_chance(made.network).train()
        plain = passes(made, deepcopy(made.network), "cpu", torch.float32)
    except Exception as error:
        raise LeftOutError(f"{type(error).__name__}: {error}") from error
    try:
        exact = passes(made, deepcopy(made.network).double(), "cpu", torch.float64)
    except Exception:  # some networks have float32 in their text
        exact = passes(made, _rounded(made.network), "cpu", torch.float32)
    if not all(vector.isfinite().all() for vector in (*plain, *exact)):
        raise LeftOutError("results of the CPU are not finite")
    if (own := max(judge(plain, plain, exact).own.values())) > CHANCE:
        raise LeftOutError(f"the CPU's own error is {own:.1e}")
    return made, plain, exact


def _rounded(network: nn.Module) -> nn.Module:
    """Return a twin whose weights are moved by a rounding: it stands for float64."""
    twin = deepcopy(network)
    with torch.no_grad():
        for parameter in twin.parameters():
            if parameter.is_floating_point():
                parameter.mul_(1 + 2**-24 * torch.randn_like(parameter))
    return twin


def passes(made: Made, network: nn.Module, device: Any, dtype: torch.dtype) -> Passes:
    """Run a twin of `made.network` and return what it made, on the CPU.

    Args:
        made: how it is called.
        network: the twin, which is trained.
        device: where it lies.
        dtype: of its floating numbers.
    """
    draw = torch.Generator().manual_seed(7)
    learned = [p for p in network.parameters() if p.requires_grad]
    output = made.outputs(network, device, dtype)
    if not (learned and output.numel() and output.requires_grad):
        raise ValueError(f"{len(learned)} weights and {output.numel()} results to learn from")
    weights = torch.randn(output.shape, generator=draw) / output.numel()
    (output * weights.to(device, dtype)).sum().backward()
    gradients = [p.grad for p in learned if p.grad is not None]
    found = _vector([output]), _vector(gradients)
    target = torch.randn(output.shape, generator=draw).to(device, dtype)
    before = _state(network)
    optimizer = torch.optim.SGD(learned, 0.05, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (made.outputs(network, device, dtype) - target).square().mean().backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
    return Passes(*found, _state(network) - before)


def _vector(tensors: list[Tensor]) -> Tensor:
    dense = (x.to_dense() if x.is_sparse else x for x in tensors)
    return torch.cat([x.detach().cpu().double().flatten() for x in dense])


def _state(network: nn.Module) -> Tensor:
    return _vector([x for x in network.state_dict().values() if x.is_floating_point()])


def judge(ours: Passes, plain: Passes, exact: Passes) -> Verdict:
    """Return the verdict over the device's passes beside the CPU's and the exact ones."""
    errors, own = (
        {
            name: distance(vector, truth)
            for name, vector, truth in zip(Passes._fields, side, exact, strict=True)
        }
        for side in (ours, plain)
    )
    right = all(
        errors[name] <= max(bound, OWN_ERRORS * own[name]) for name, bound in BOUNDS.items()
    )
    return Verdict(errors, own, right)


def distance(ours: Tensor, truth: Tensor) -> float:
    """Return the norm of the difference over the norm of `truth`; infinite for other shapes."""
    if ours.shape != truth.shape:
        return float("inf")
    return float((ours - truth).norm() / truth.norm().clamp_min(1e-300))


def quietly(make: Callable[[], Any]) -> Any:
    """Return what `make` returns; warnings of libraries are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()
