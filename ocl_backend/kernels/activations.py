"""Activations, and the masks of their gradients, as text inside of other kernels.

The rows are those of `oclgen.activations`, so that a fused kernel computes the same as two kernels.
`T` in the texts is the type of the arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oclgen.activations import ACTIVATIONS
from oclgen.problem import Activation

OPERATORS: dict[str, Activation] = {
    row.forward.name: name for name, row in ACTIVATIONS.items() if row.forward.name
}
"""Activations by their aten operators; hardtanh is relu6 with its numbers alone."""

MASKS: dict[str, Activation] = {
    row.backward.name: name for name, row in ACTIVATIONS.items() if row.backward and row.masks
}
"""Activations by aten operators that pass a gradient or not, as the activation's result says."""

NUMBERS: dict[str, tuple[int, ...]] = {
    operator.name: tuple(operator.numbers.values())
    for row in ACTIVATIONS.values()
    for operator in (row.forward, row.backward)
    if operator
}
"""Further arguments that make an aten operator the activation, or its gradient."""


def activated(name: Activation, variable: str) -> str:
    """Return act(variable), in terms of `T`."""
    return ACTIVATIONS[name].forward.text({"self": variable})


def masked(name: Activation, grad: str, result: str) -> str:
    """Return variable `grad` where the activation's `result` let it through, 0 elsewhere.

    Args:
        name: an activation that has a gradient by its result.
        grad: variable of the gradient.
        result: variable of the activation's result.
    """
    backward = ACTIVATIONS[name].backward
    assert backward is not None
    return backward.text({"grad_output": grad, "self": result})


def activate(name: Activation, x: Tensor) -> Tensor:
    """Return act(x) by torch's operator."""
    if name == "none":
        return x
    operator = ACTIVATIONS[name].forward.name
    result: Tensor = getattr(torch.ops.aten, operator)(x, *NUMBERS[operator])
    return result
