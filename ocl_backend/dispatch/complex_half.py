"""Calls with complex numbers of two halves, which are made with complex64 and rounded once.

The CPU lacks most of its kernels for them, and rounds within others. CUDA computes in complex64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ocl_backend.dtypes import UnsupportedDtypeError

LACKING = "'ComplexHalf'", "tensors of type: Half"
"""Parts of the CPU's messages: of most operators, and of Fourier transforms."""


ROUNDED_ONCE = "aten::mul", "aten::mul_", "aten::addcmul", "aten::addcmul_"
"""Operators that the CPU has for complex32. It rounds the products of parts before their sum, which
may then have no right digit."""


class ComplexHalfError(UnsupportedDtypeError):
    """The CPU lacks a kernel for complex32, or rounds within it: the call is one for complex64."""


def is_lacking(tensors: Sequence[Tensor], error: Exception) -> bool:
    """Say whether the CPU raised `error` because it has no kernel for complex32.

    Args:
        tensors: of the call.
        error: what the CPU raised.
    """
    return has_halves(tensors) and any(part in str(error) for part in LACKING)


def has_halves(operands: Iterable[Any]) -> bool:
    """Say whether a tensor of complex32 is among operands."""
    return any(isinstance(x, Tensor) and x.dtype is torch.complex32 for x in operands)


def in_complex64(
    overload: Any, args: Sequence[Any], kwargs: dict[str, Any], written: Sequence[Tensor]
) -> Any:
    """Make a call with complex64 for complex32, and round what it returns or writes.

    Args:
        overload: the operator.
        args: of the call.
        kwargs: of the call; a dtype may be among them.
        written: the tensors that the call writes to.
    """
    leaves = tree_leaves((args, kwargs))
    halves = [x for x in leaves if isinstance(x, Tensor) and x.dtype is torch.complex32]
    twins = {id(half): half.to(torch.complex64) for half in halves}
    dtypes = [x.dtype if isinstance(x, Tensor) else x for x in leaves]
    rounds = {torch.complex64: torch.complex32, torch.float32: torch.float16}  # also of a modulus
    rounds = {wide: narrow for wide, narrow in rounds.items() if wide not in dtypes}

    def widened(leaf: Any) -> Any:
        if leaf is torch.complex32:
            return torch.complex64
        return twins.get(id(leaf), leaf) if isinstance(leaf, Tensor) else leaf

    result = overload(*tree_map(widened, args), **tree_map(widened, kwargs))
    rounded = {}
    for target in written:
        if (twin := twins.get(id(target))) is not None:
            rounded[id(twin)] = target.resize_(twin.shape).copy_(twin)

    def narrowed(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or id(leaf) in rounded:
            return rounded.get(id(leaf), leaf)
        return leaf.to(rounds.get(leaf.dtype, leaf.dtype))

    return tree_map(narrowed, result)
