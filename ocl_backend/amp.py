"""`torch.ocl.amp`, for programs that use `torch.cuda.amp`; new ones use `torch.amp`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler as AnyScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

custom_fwd = partial(torch.amp.custom_fwd, device_type="ocl")
custom_bwd = partial(torch.amp.custom_bwd, device_type="ocl")


class autocast(torch.amp.autocast):  # noqa: N801 (torch's name)
    """`torch.amp.autocast("ocl")`, a context and a decorator.

    Args:
        enabled: whether operators are cast.
        dtype: to what; None: the device's default for autocast.
        cache_enabled: whether cast weights are kept inside; None: as set.
    """

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool | None = None,
    ) -> None:
        super().__init__("ocl", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(AnyScaler):
    """`torch.amp.GradScaler("ocl")`; takes its other arguments."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__("ocl", *args, **options)
