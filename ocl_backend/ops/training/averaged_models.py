"""Averages of models (`torch.optim.swa_utils`) with integers among their buffers.

torch averages the tensors of a model on the CPU one by one, on other devices as lists. For a list
of integers, such as counts of batches, it calls `_foreach_addcdiv_`, which refuses integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.optim import swa_utils

Update = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def replace() -> None:
    """Let torch's equal average of lists take the integers of ocl one by one, as of the CPU."""
    own: Callable[[], Update] = swa_utils.get_swa_multi_avg_fn
    single: Callable[[], Callable[..., Tensor]] = swa_utils.get_swa_avg_fn

    @wraps(own)
    def make() -> Update:
        of_lists, of_one = own(), single()

        @torch.no_grad()
        def update(averaged: Sequence[Tensor], current: Sequence[Tensor], count: Any) -> None:
            first = averaged[0]
            if first.device.type != "ocl" or first.is_floating_point() or first.is_complex():
                of_lists(averaged, current, count)
                return
            for mean, one in zip(averaged, current, strict=True):
                mean.copy_(of_one(mean, one, count))

        return update

    swa_utils.get_swa_multi_avg_fn = make
