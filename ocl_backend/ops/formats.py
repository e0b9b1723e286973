"""Memory formats: results take channels_last from their operands, as torch's convention has it.

Kernels here read and write contiguous tensors; the rearranging is a copy.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result", Tensor, Tensor | None)

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def laid_out_like(result: Result, *models: Tensor) -> Result:
    """Return `result`, in channels_last if one of `models` is and is not contiguous as well."""
    if result is None or all(model.is_contiguous() for model in models):
        return result
    wanted = FORMATS.get(result.dim())
    if wanted is not None and any(_is(model, wanted) for model in models):
        return result.contiguous(memory_format=wanted)
    return result


def _is(model: Tensor, wanted: torch.memory_format) -> bool:
    same = FORMATS.get(model.dim()) is wanted and not model.is_contiguous()
    return same and model.is_contiguous(memory_format=wanted)
