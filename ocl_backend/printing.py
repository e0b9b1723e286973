"""Lets torch print float tensors of devices that have no fp64.

To choose its format, torch converts the numbers to doubles on their device, except on three devices
that it knows to have no doubles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor, _tensor_str

from oclgen.opencl.device import devices

FP64 = "cl_khr_fp64"


def register() -> None:
    """Let the numbers of such a device stay floats while torch prints them."""
    widen: Callable[[Tensor], Tensor] = _tensor_str.tensor_totype

    @wraps(widen)
    def tensor_totype(t: Tensor) -> Tensor:
        if t.device.type == "ocl" and FP64 not in devices()[t.get_device()].limits.extensions:
            return t.to(torch.float32)
        return widen(t)

    _tensor_str.tensor_totype = tensor_totype
