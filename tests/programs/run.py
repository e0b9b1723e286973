"""Runs a program on a device, and compares what each call leaves with the CPU in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tests.programs.draw import WEIGHTS, Program, inputs, total

TOLERANCE = 2e-4
"""Of the largest value in the program; float32 on the CPU stays below a tenth of it."""
OWN_ERRORS = 20
"""A result may be that many times as far from float64 as the CPU's float32 is."""


class WrongError(AssertionError):
    """A call of a program left something else than it leaves on the CPU."""


def check(program: Program, seed: str, device: torch.device) -> int:
    """Run all calls of a program.

    Args:
        program: that was drawn.
        seed: of the values; each call has its own.
        device: to be compared with the CPU.

    Returns:
        How many calls the CPU made without an error; others are left out.

    Raises:
        WrongError: a value, a shape or an error differs.
    """
    done = 0
    with _deterministic(program.deterministic):
        for number, batch in enumerate(program.batches):
            own = f"{seed} call {number}"
            try:
                exact = call(program, own, batch, "cpu", wide=True)
                plain = call(program, own, batch, "cpu")
            except Exception:  # a line that fits the batch it was drawn at alone
                continue
            if not all(
                v.numel() and v.isfinite().all() for v in (*exact.values(), *plain.values())
            ):
                continue  # such as no rows of a small batch
            module: Any = torch.get_device_module(device)
            with module.fusion(program.fused[number]):
                ours = call(program, own, batch, device)
            _compare(ours, plain, exact, f"call {number} (batch {batch})")
            done += 1
    return done


def call(
    program: Program, seed: str, batch: int, device: Any, wide: bool = False
) -> dict[str, Tensor]:
    """Return what a call leaves, by name, and the gradients of what it began with."""
    names = inputs(seed, batch, device, program.channels_last, program.gradients, wide)
    leaves = {name: value for name, value in names.items() if isinstance(value, Tensor)}
    with torch.set_grad_enabled(program.gradients):
        for line in program.lines:
            exec(line, names)
        if program.gradients:
            total(names).backward()
    found = {
        name: value.detach()
        for name, value in names.items()
        if isinstance(value, Tensor) and name not in WEIGHTS
    }
    for name, leaf in leaves.items():
        if leaf.grad is not None:
            found[f"gradient of {name}"] = leaf.grad
    return found


def _compare(
    ours: dict[str, Tensor], plain: dict[str, Tensor], exact: dict[str, Tensor], where: str
) -> None:
    largest = max(1.0, *(float(value.abs().max()) for value in exact.values()))
    for name, truth in exact.items():
        mine = ours[name].cpu()
        if mine.shape != truth.shape:
            raise WrongError(f"{where}: {name} is {list(mine.shape)}, not {list(truth.shape)}")
        error, own = (float((value - truth).abs().max()) for value in (mine, plain[name]))
        if not error <= max(TOLERANCE * largest, OWN_ERRORS * own):
            raise WrongError(
                f"{where}: {name} is off by {error:.3g} where the CPU's float32 is by {own:.3g} "
                f"and values reach {largest:.3g}"
            )


@contextlib.contextmanager
def _deterministic(on: bool) -> Iterator[None]:
    torch.use_deterministic_algorithms(on, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
