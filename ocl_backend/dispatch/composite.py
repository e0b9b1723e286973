"""What kernels above autograd ask before they serve a call that torch composes of others."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

COMPOSED = torch._C.DispatchKey.CompositeImplicitAutograd
"""Whose kernel `_op_dk` calls: torch's own composition."""


def are_plain(tensors: Iterable[Tensor]) -> bool:
    """Say whether the tensors are of no other class, and not nested: all have sizes and memory."""
    return all(type(t) in (Tensor, Parameter) and not t.is_nested for t in tensors)


def is_transformed() -> bool:
    """Say whether functorch or forward gradients follow the call, which they know composed."""
    return bool(torch._C._functorch.peek_interpreter_stack()) or forward_ad._current_level >= 0
