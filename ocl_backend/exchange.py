"""DLPack: lets `torch.from_dlpack` and other libraries ask a tensor of the device where it lies.

torch exports tensors of private devices as `kDLExtDev`, and takes such memory for its own private
device. But `Tensor.__dlpack_device__` looks for the name that the device had before it was renamed.
Other libraries refuse `kDLExtDev`, or ask for a copy on the CPU (`numpy.from_dlpack(tensor,
device="cpu")`). `kDLOpenCL` hands over a `cl_mem`, which no context but the device's own can use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary
from torch.utils.dlpack import DLDeviceType


def register() -> None:
    """Replace the two methods of DLPack's protocol; tensors of other devices keep torch's."""
    kind: Any = torch.Tensor
    kind.__dlpack_device__ = _telling(kind.__dlpack_device__)
    kind.__dlpack__ = _refusing(kind.__dlpack__)


def _telling(ask: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(ask)
    def told(self: torch.Tensor) -> Any:
        if self.device.type != "ocl":
            return ask(self)
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
        return DLDeviceType.kDLExtDev, self.get_device()

    return told


def _refusing(export: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(export)
    def exported(self: torch.Tensor, **options: Any) -> Any:
        wanted = options.get("dl_device")
        if wanted is not None and wanted[0] == DLDeviceType.kDLOpenCL:
            raise BufferError(
                f"memory of {self.device} cannot be exported as kDLOpenCL: another library's "
                "OpenCL context cannot use it; ask for a copy with dl_device=(1, 0), the CPU"
            )
        return export(self, **options)

    return exported
