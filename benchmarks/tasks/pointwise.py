"""Operators that memory limits, on tensors of a chosen and of drawn sizes, through torch.

    python -m benchmarks pointwise --device 0

Bytes are those that must be moved at least: inputs read once, outputs written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.tasks.draw import Draw, distinct, log_uniform
from benchmarks.tasks.task import Task
from benchmarks.timing import Call
from oclgen.limits import Limits

if TYPE_CHECKING:
    from torch import Tensor

FLOATS = {"cpu": 2**24, "gpu": 2**27, "other": 2**24}
"""Elements of a tensor: well above the caches that such devices have."""
FLOAT = 4
CHANNELS, IMAGE, ROW, PARAMETERS = 64, 64, 1024, 8
DRAWN = 8
"""Operators and sizes that a seed draws."""


class Operator(NamedTuple):
    """Bytes moved per element, and a function that makes the call from a flat tensor."""

    bytes: float
    call: Callable[[Tensor], Call]


def _batch_norm(x: Tensor, training: bool) -> Call:
    from torch import nn

    norm = nn.BatchNorm2d(CHANNELS).to(x.device).train(training)
    images = x.view(-1, CHANNELS, IMAGE, IMAGE)
    return lambda: norm(images)


def _max_pool(x: Tensor) -> Call:
    from torch.nn.functional import max_pool2d

    images = x.view(-1, CHANNELS, IMAGE, IMAGE)
    return lambda: max_pool2d(images, 2)


def _adam(x: Tensor) -> Call:
    import torch

    parameters = [torch.nn.Parameter(part) for part in x.chunk(PARAMETERS)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    return torch.optim.Adam(parameters, lr=1e-4).step


OPERATORS: dict[str, Operator] = {
    "x + x": Operator(2 * FLOAT, lambda x: lambda: x + x),
    "relu": Operator(2 * FLOAT, lambda x: x.relu),
    "batch norm, eval": Operator(2 * FLOAT, lambda x: _batch_norm(x, False)),
    "batch norm, train": Operator(2 * FLOAT, lambda x: _batch_norm(x, True)),
    "max pool 2x2": Operator(1.25 * FLOAT, _max_pool),
    "softmax of rows": Operator(2 * FLOAT, lambda x: lambda: x.view(-1, ROW).softmax(1)),
    "sum": Operator(FLOAT, lambda x: x.sum),
    "Adam step": Operator(7 * FLOAT, _adam),  # reads x, gradient and moments, writes all but one
}


def drawn(seed: int, count: int, kind: str) -> list[tuple[str, int]]:
    """Return different (operator, elements); all operators take whole batches of images.

    Args:
        seed: equal seeds give equal calls.
        count: calls.
        kind: "cpu" or "gpu": how large they are.
    """
    return distinct("pointwise", seed, count, partial(_any_call, FLOATS[kind]))


def _any_call(most: int, random: Random) -> tuple[str, int]:
    batch = CHANNELS * IMAGE * IMAGE
    return random.choice(list(OPERATORS)), batch * log_uniform(random, 1, most // batch)


def tasks(limits: Limits, draw: Draw) -> Iterator[Task]:
    """Yield every operator on a large tensor, and some on tensors of drawn sizes."""
    for name in OPERATORS:
        yield _task(name, FLOATS[limits.kind], "pointwise")
    for name, floats in drawn(draw.seed, draw.of(DRAWN), limits.kind):
        yield _task(name, floats, "drawn operators", draw.seed)


def _task(name: str, floats: int, group: str, seed: int | None = None) -> Task:
    what = {"name": name, "floats": floats}
    key = f"{name}, {floats / 2**20:g} Mi floats"
    moved = OPERATORS[name].bytes * floats
    return Task("pointwise", key, (group,), 1, "fp32", 0.0, moved, what, seed)


def call(name: str, floats: int, device: str) -> Call:
    """Return the call of an operator on normally distributed numbers, without gradients.

    Args:
        name: of `OPERATORS`.
        floats: items of the input, fp32.
        device: torch's name of it.
    """
    import torch

    with torch.no_grad():
        made = OPERATORS[name].call(torch.randn(floats, device=device))
    return torch.no_grad()(made)
