"""The torch call of a drawn operator, the same on either side."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.tasks.operators.case import Operator
from benchmarks.tasks.operators.tasks import KINDS
from benchmarks.timing import Call

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
GAP = 8
"""Items that rows of a wider tensor are longer by than what is cut out of it."""


def call(case: Operator, device: str) -> Call:
    """Return the call of a case on normally distributed numbers.

    A case of gradients calls the forward pass and the gradients of the first tensor and of
    parameters.

    Args:
        case: what is called.
        device: torch's name of it.
    """
    x = _tensor(case, device)
    if case.direction == "forward":
        with torch.no_grad():
            made = KINDS[case.kind].make(x, **dict(case.options))
        return torch.no_grad()(made.forward)
    made = KINDS[case.kind].make(x.requires_grad_(), **dict(case.options))
    grad = torch.randn_like(made.forward())
    inputs = (x, *made.parameters)
    return lambda: torch.autograd.grad(made.forward(), inputs, grad)


def _tensor(case: Operator, device: str) -> Tensor:
    """Return the first tensor as the case's layout says."""
    dtype, rank = TYPES[case.dtype], len(case.shape)
    if case.layout == "cut out":
        wide = (*case.shape[:-1], case.shape[-1] + GAP)
        return torch.randn(wide, device=device).to(dtype)[..., : case.shape[-1]]
    if case.layout == "turned" and rank > 3:
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        made = torch.randn(case.shape, device=device).to(dtype)
        return made.contiguous(memory_format=formats[rank])
    if case.layout == "turned":
        *outer, height, width = case.shape
        return torch.randn(*outer, width, height, device=device).to(dtype).mT
    return torch.randn(case.shape, device=device).to(dtype)
