"""From the arguments of a pointwise operator to the pointers and numbers of its launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ocl_backend.dtypes import encode
from ocl_backend.kernels.elementwise import Kernel


def values_of(
    bound: Mapping[str, Any], names: Sequence[str], kernel: Kernel, of_bools: bool = False
) -> Callable[[Sequence[Any]], list[Any]] | None:
    """Return what turns a call's arguments into its launch's values; None: they are those.

    Args:
        bound: the arguments by name.
        names: of those that were given, in their order.
        kernel: what is launched.
        of_bools: it computes with bools, for which a number is true or not.
    """
    types = {scalar.name: scalar.value for scalar in kernel.scalars}
    tensors = {operand.name for operand in kernel.operands}
    steps: list[tuple[int, Callable[[Any], Any]]] = []
    plain = "double" not in types.values() and not of_bools
    for index, name in enumerate(names):
        value = bound[name]
        if name in tensors:
            steps.append((index, Tensor.data_ptr))
        elif name in types:
            steps.append((index, _number(types[name], isinstance(value, Tensor), of_bools)))
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
