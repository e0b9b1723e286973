"""Pointwise operators with two results: a number's fraction and exponent.

Those with one result are rows of `pointwise_table`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, launch


def frexp_out(x: Tensor, *, mantissa: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Write the fractions, of [0.5, 1), and the exponents (int32) of two that make x.

    Raises:
        RuntimeError: x is not floating, or an output has another dtype.
    """
    if not x.is_floating_point():
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    if mantissa.dtype is not x.dtype or exponent.dtype is not torch.int32:
        raise RuntimeError(
            f"torch.frexp() expects outputs of {x.dtype} and torch.int32, but got "
            f"{mantissa.dtype} and {exponent.dtype}"
        )
    value = dtype_of(x.dtype).value
    kernel = Kernel(
        "frexp_pair",
        value,
        (
            Operand("self", x.dtype),
            Operand("mantissa", x.dtype, "output", result="fraction"),
            Operand("exponent", torch.int32, "output", "int", "power"),
        ),
        "int power;\nconst T fraction = frexp(self, &power);",
        scalar_only=True,
    )
    launch(kernel, x.shape, (x, mantissa.resize_(x.shape), exponent.resize_(x.shape)))
    return mantissa, exponent


OPERATORS: dict[str, Callable[..., Any]] = {"frexp.Tensor_out": frexp_out}
"""Implementations by aten name."""
