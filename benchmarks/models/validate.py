"""Checks whole networks on the device `ocl` against the CPU: results, gradients, times, fallbacks.

    python -m benchmarks validate --all
    python -m benchmarks validate --only resnet18,gpt2 --device ocl:1 --size 96

Errors are relative. That of the output is against the CPU, relative to the largest value; that of
all gradients is against float64, relative to their norm, with the CPU's own beside it. Inputs of a
ReLU that are zero within rounding, and batch normalisations over eight values, make errors large in
every fp32 implementation. So a network is wrong if, for three seeds, an error is above `OUTPUT` or
`GRADIENTS` and above ten times the CPU's own distance from float64. The command exits with 1 then.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

import ocl_backend  # noqa: F401 (registers the device, lets torchvision be imported)
from benchmarks.models import sequence, vision
from benchmarks.models.case import Case, without_chance

CASES = {case.name: case for case in (*vision.CASES, *sequence.CASES)}
OUTPUT, GRADIENTS, OWN_ERRORS, SEEDS = 1e-4, 1e-3, 10, 3
REPEATS = 2
OCL = torch.get_device_module("ocl")


@dataclass
class Side:
    """What one device made of a network: results on the CPU, milliseconds, the best of repeats."""

    output: Tensor
    gradient: Tensor
    forward_ms: float = field(default=float("inf"))
    backward_ms: float = field(default=float("inf"))


def main(names: Sequence[str], device: torch.device, size: int) -> list[str]:
    """Check networks of `CASES`, print a line each and return the names of those that are wrong.

    Args:
        names: of `CASES`.
        device: what is checked.
        size: height and width of images, where a network takes any.
    """
    print(f"{OCL.get_device_name(device)}, torch {torch.__version__}, {size} x {size}; "
          f"ms of {device} / cpu; gradients' errors against float64")  # fmt: skip
    print(f"{'network':20}{'output':>9}{'gradients':>11}{'(cpu)':>9}{'forward':>16}{'backward':>18}"
          "   fallbacks, notes")  # fmt: skip
    failed = [name for name in names if not check(CASES[name], device, size)]
    print(f"{len(names) - len(failed)} of {len(names)} agree"
          + (f"; wrong: {', '.join(failed)}" if failed else ""))  # fmt: skip
    return failed


def check(case: Case, device: torch.device, size: int) -> bool:
    """Run a network on both sides, print its line and say whether it is right.

    Args:
        case: the network, its inputs and its own check.
        device: what is checked.
        size: height and width of images; the case's smallest if that is more.
    """
    torch.manual_seed(0)
    size = max(size, case.smallest)
    network = without_chance(case.build(size)).train()
    twin = deepcopy(network).to(device)
    OCL.reset_fallbacks()
    right = False
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        inputs = case.inputs(size)
        ours, theirs = run(case, twin, inputs), run(case, network, inputs)
        judge = deepcopy(network).double()
        truth = run(case, judge, tuple(x.double() if x.is_floating_point() else x for x in inputs))
        error = largest(ours.output, theirs.output)
        off, own = (distance(side.gradient, truth.gradient) for side in (ours, theirs))
        rounding = largest(theirs.output, truth.output)
        right = error <= max(OUTPUT, OWN_ERRORS * rounding)
        right = right and off <= max(GRADIENTS, OWN_ERRORS * own)
        if right:
            break
    time(case, twin, inputs, ours)
    time(case, network, inputs, theirs)
    right, note = further(case, network, twin, device, right)
    fallbacks = OCL.fallbacks()
    print(f"{case.name:20}{error:9.1e}{off:11.1e}{own:9.1e}"
          f"{ours.forward_ms:8.1f}/{theirs.forward_ms:7.1f}"
          f"{ours.backward_ms:10.1f}/{theirs.backward_ms:7.1f}   {fallbacks or 0}"
          f"{', ' if note else ''}{note}{'' if right else '  WRONG'}", flush=True)  # fmt: skip
    return right


def further(
    case: Case, network: nn.Module, twin: nn.Module, device: torch.device, right: bool
) -> tuple[bool, str]:
    """Return whether all is right after the network's own check, and what that says.

    Args:
        case: with or without a check of its own.
        network: on the CPU.
        twin: the same on `device`.
        device: what is checked.
        right: whether all was right before.
    """
    if case.agrees is None:
        return right, ""
    try:
        return right, case.agrees(network, twin, device)
    except AssertionError as error:
        return False, str(error)


def run(case: Case, network: nn.Module, inputs: tuple[Any, ...]) -> Side:
    """Return the outputs, and the gradients of their sum under random weights.

    Args:
        case: says how its network is called.
        network: anywhere; its gradients are written.
        inputs: on the CPU.

    Returns:
        On the CPU.
    """
    home = next(network.parameters()).device
    network.zero_grad()
    output = case.run(network, *(x.to(home) for x in inputs))
    torch.manual_seed(7)
    weights = torch.randn(output.shape, dtype=torch.float32) / output.numel()
    (output * weights.to(output.dtype).to(home)).sum().backward()  # type: ignore[no-untyped-call]
    grads = [p.grad.cpu().flatten() for p in network.parameters() if p.grad is not None]
    return Side(output.detach().cpu(), torch.cat(grads))


def time(case: Case, network: nn.Module, inputs: tuple[Any, ...], side: Side) -> None:
    """Note the best times of a forward and of a backward pass, the device waited for.

    Args:
        case: says how its network is called.
        network: anywhere.
        inputs: on the CPU.
        side: written: milliseconds, the least of `REPEATS`.
    """
    home = next(network.parameters()).device
    given = tuple(x.to(home) for x in inputs)
    for _ in range(REPEATS):
        torch.accelerator.synchronize()
        start = perf_counter()
        total = case.run(network, *given).sum()
        torch.accelerator.synchronize()
        middle = perf_counter()
        total.backward()  # type: ignore[no-untyped-call]
        torch.accelerator.synchronize()
        side.forward_ms = min(side.forward_ms, 1e3 * (middle - start))
        side.backward_ms = min(side.backward_ms, 1e3 * (perf_counter() - middle))


def largest(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference over the largest value of `theirs`."""
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30))


def distance(ours: Tensor, truth: Tensor) -> float:
    """Return the norm of the difference over the norm of `truth`."""
    return float((ours.double() - truth).norm() / truth.norm().clamp_min(1e-300))
