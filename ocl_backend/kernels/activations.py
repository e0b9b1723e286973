"""Activations and their gradients' masks as they are written inside of other kernels.

The expressions are the pointwise table's, so that a fused kernel computes what two would; `T` in
them is the type computed with.
"""

from __future__ import annotations

import re

from ocl_backend.kernels.pointwise_table import POINTWISE
from oclgen.problem import Activation

RELU6 = {"min_val": "(T)(0)", "max_val": "(T)(6)"}

OPERATORS: dict[str, Activation] = {
    "relu": "relu",
    "hardtanh": "relu6",
    "silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "gelu": "gelu",
}
"""Rows of the table that are activations; hardtanh is relu6 between 0 and 6 alone."""

MASKS: dict[str, Activation] = {"threshold_backward": "relu", "hardtanh_backward": "relu6"}
"""Rows that pass a gradient where the activation's result is within; relu's threshold is 0."""


def _expression(row: str) -> str:
    text = POINTWISE[row].expression
    for name, value in {**RELU6, "threshold": "(T)(0)"}.items():
        text = re.sub(rf"\b{name}\b", value, text)
    return text


ACTIVATED = {name: _expression(row) for row, name in OPERATORS.items()} | {"none": "self"}
MASKED = {name: _expression(row) for row, name in MASKS.items()}


def activated(name: Activation, variable: str) -> str:
    """Return act(variable), in terms of `T`."""
    return re.sub(r"\bself\b", variable, ACTIVATED[name])


def masked(name: Activation, grad: str, result: str) -> str:
    """Return variable `grad` where the activation's `result` let it through, 0 elsewhere."""
    names = {"grad_output": grad, "self": result}
    return re.sub(r"\b(grad_output|self)\b", lambda found: names[found[0]], MASKED[name])
