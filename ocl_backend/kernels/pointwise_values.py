"""From the arguments of a pointwise operator to the pointers and numbers of its launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import FLOATS_16, encode, rounded
from ocl_backend.kernels.elementwise import Kernel
from ocl_backend.kernels.pointwise_table import ROUNDED


def values_of(
    row: str, bound: Mapping[str, Any], names: Sequence[str], kernel: Kernel, compute: torch.dtype
) -> Callable[[Sequence[Any]], list[Any]] | None:
    """Return what turns a call's arguments into its launch's values; None: they are those.

    Args:
        row: of the table of pointwise operators.
        bound: the arguments by name.
        names: of those that were given, in their order.
        kernel: what is launched.
        compute: the dtype that it computes with. For bools a number is true or not.
    """
    of_bools, rounds = compute is torch.bool, row in ROUNDED and compute in FLOATS_16
    types = {scalar.name: scalar.value for scalar in kernel.scalars}
    tensors = {operand.name for operand in kernel.operands}
    steps: list[tuple[int, Callable[[Any], Any]]] = []
    plain = "double" not in types.values() and not of_bools and not rounds
    for index, name in enumerate(names):
        value = bound[name]
        if name in tensors:
            steps.append((index, Tensor.data_ptr))
        elif name in types:
            take = _number(types[name], isinstance(value, Tensor), of_bools)
            steps.append((index, _rounding(compute, take) if rounds else take))
            plain &= type(value) is (float if types[name] == "float" else int)
        else:
            plain = False
    if plain:
        return None
    return lambda arguments: [take(arguments[index]) for index, take in steps]


def _number(value: str, boxed: bool, is_bool: bool) -> Callable[[Any], float]:
    """Return what makes a launch's value for a scalar of C type `value` from an argument."""
    unbox: Callable[[Any], float] = Tensor.item if boxed else lambda number: number
    if is_bool:
        return lambda number: int(bool(unbox(number)))
    return lambda number: encode(value, unbox(number))


def _rounding(dtype: torch.dtype, take: Callable[[Any], float]) -> Callable[[Any], float]:
    return lambda argument: rounded(dtype, take(argument))
