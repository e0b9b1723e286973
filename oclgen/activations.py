"""Activations: a row each, with everything that any user of an activation needs.

A row has OpenCL C, a float64 reference and torch's operators. It is read by the epilogues of the
families, the reference that verifies them, and torch's pointwise operators on `ocl` devices with
their fusion.

Texts are for scalars and vectors. They name the operand `self`, in gradients also `grad_output` or
`output`, as the operator's schema does. `T` is the type of the arithmetic, and floating literals
take its precision. Gradients may have statements before the last `;`, unless they are masks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Operator(NamedTuple):
    """An aten operator: `numbers` are its further arguments, in the schema's order.

    The general operator takes any numbers; with the given ones it is the activation. `exact` is
    the expression by OpenCL C's own functions, where the other one is a fit for fp32: it serves
    double precision, and texts that hold for vectors of fp32 without a `T`.
    `floats` says that integers become floats; without it the result has the operand's dtype.
    """

    name: str
    expression: str
    numbers: Mapping[str, int] = {}
    floats: bool = False
    exact: str = ""

    def text(self, names: Mapping[str, str], exact: bool = False) -> str:
        """Return the expression with its numbers written in, and `names` for some of its own.

        Args:
            names: texts by the operands' names.
            exact: by OpenCL C's own functions.
        """
        expression = self.exact if exact and self.exact else self.expression
        values = {**{name: f"(T)({value})" for name, value in self.numbers.items()}, **names}
        return re.sub(r"\b[a-z_]\w*\b", lambda word: values.get(word[0], word[0]), expression)


class Activation(NamedTuple):
    """An activation and its gradient, whose values numpy's `reference` gives in float64.

    `masks` says that the gradient is passed or zero, as the activation's result decides: such a
    gradient can be taken together with what computes or reads it.
    """

    forward: Operator
    reference: Callable[[Array], Array]
    backward: Operator | None = None
    masks: bool = False

    def fp32(self, variable: str) -> str:
        """Return the OpenCL C of act(variable), fp32 scalars or vectors."""
        text = self.forward.text({"self": f"({variable})"}, exact=True)
        text = re.sub(r"(?<![\w.])(\d+\.\d+)", r"\1f", text)
        text = re.sub(r"\(T\)\((\d+)\)", r"\1.0f", text).replace(f"(({variable}))", f"({variable})")
        is_closed = re.fullmatch(rf"\w*\({variable}\)", text)
        return text if is_closed else f"({text})"


_TAIL = (
    1.151106834, 0.459196955, 0.05251172184, -0.007044980768, 0.00007416772132, 0.0002471766202,
    -0.00006805246085, 0.000009714432963, -0.0000007608559258, 0.00000002579701430,
)  # fmt: skip
"""Q of 1 - erf(a / sqrt(2)) = 2^(-a Q(a)), the lowest power first, fitted to 6.3e-8 of the value
from 0 to 5; beyond, 2^(-a Q(a)) falls below 6e-7 and to zero."""


_ERF = "erf(self * 0.70710678118654752)"
_GELU = "0.5 * self * ((T)(1) + {erf})"
_GELU_BACKWARD = (
    "const T cdf = 0.5 * ((T)(1) + {erf});"
    " const T pdf = 0.39894228040143267794 * exp(-0.5 * self * self);"
    " grad_output * (cdf + self * pdf)"
)


def _fitted(text: str) -> str:
    """Return a text of gelu with erf in fp32: a processor's own takes twice as long."""
    *lower, q = (f"(T)({coefficient:.16f})" for coefficient in _TAIL)
    for coefficient in reversed(lower):
        q = f"fma({q}, fabs(self), {coefficient})"
    return text.format(erf=f"copysign((T)(1) - exp2(-fabs(self) * {q}), self)")


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


_BETWEEN_0_AND_6 = {"min_val": 0, "max_val": 6}

ACTIVATIONS: dict[str, Activation] = {
    "none": Activation(Operator("", "self"), np.asarray),
    # `self < 0 ?` keeps a NaN, as torch does; `fmax` would make it 0
    "relu": Activation(
        Operator("relu", "self < (T)(0) ? (T)(0) : self"),
        lambda x: np.maximum(x, 0),
        Operator(
            "threshold_backward", "self <= threshold ? (T)(0) : grad_output", {"threshold": 0}
        ),
        masks=True,
    ),
    "relu6": Activation(
        Operator(
            "hardtanh",
            "self < min_val ? min_val : self > max_val ? max_val : self",
            _BETWEEN_0_AND_6,
        ),
        lambda x: np.clip(x, 0, 6),
        Operator(
            "hardtanh_backward",
            "self <= min_val || self >= max_val ? (T)(0) : grad_output",
            _BETWEEN_0_AND_6,
        ),
        masks=True,
    ),
    "gelu": Activation(
        Operator("gelu", _fitted(_GELU), exact=_GELU.format(erf=_ERF)),
        _gelu,
        Operator("gelu_backward", _fitted(_GELU_BACKWARD), exact=_GELU_BACKWARD.format(erf=_ERF)),
    ),
    "silu": Activation(
        Operator("silu", "self / ((T)(1) + exp(-self))"),
        lambda x: np.asarray(x / (1 + np.exp(-x))),
        Operator(
            "silu_backward",
            "const T s = (T)(1) / ((T)(1) + exp(-self));"
            " grad_output * s * ((T)(1) + self * ((T)(1) - s))",
        ),
    ),
    "tanh": Activation(
        Operator("tanh", "tanh(self)", floats=True),
        np.tanh,
        Operator("tanh_backward", "grad_output * ((T)(1) - output * output)"),
    ),
    "sigmoid": Activation(
        Operator("sigmoid", "(T)(1) / ((T)(1) + exp(-self))", floats=True),
        lambda x: np.asarray(1 / (1 + np.exp(-x))),
        Operator("sigmoid_backward", "grad_output * output * ((T)(1) - output)"),
    ),
}
"""Activations by name; gelu is the exact one. Keys of problems and records hold the names."""
