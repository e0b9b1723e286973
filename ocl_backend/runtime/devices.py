"""Which device is meant, which is current, and what it is: the first part of `torch.ocl`.

`memory` opens devices, `figures` reports their memory, `generators` keeps their random state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import accelerator

import ocl_autoload
from ocl_backend.dtypes import COPIED
from ocl_backend.runtime import memory
from oclgen.opencl.device import Device as OpenCLDevice

DeviceLike = torch.device | str | int | None


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What torch.cuda tells of a device, under its names; `opencl` has the rest.

    `total_memory` is in bytes, `multi_processor_count` the number of compute units.
    """

    name: str
    vendor: str
    total_memory: int
    multi_processor_count: int
    driver_version: str
    opencl: OpenCLDevice


def index_of(device: DeviceLike) -> int:
    """Return the index `device` means: an int, a torch.device, a string, or None for current.

    Raises:
        ValueError: it is a device of another type.
        RuntimeError: there is no such device.
    """
    if device is None:
        return current_device()
    if isinstance(device, int):
        index: int | None = device
    else:
        wanted = torch.device(device)
        if wanted.type != "ocl":
            raise ValueError(f"expected an ocl device, got {wanted}")
        index = wanted.index
    if index is None:
        return current_device()
    if not 0 <= index < device_count():
        raise RuntimeError(f"there is no device ocl:{index}; {device_count()} were found")
    return index


def is_available() -> bool:
    """Return whether there is an OpenCL device to run on."""
    ocl_autoload.tell_of_accelerate()  # Adam's step asks, also of models on the CPU
    return device_count() > 0


def device_count() -> int:
    """Return the number of OpenCL devices, GPUs first; their indices are global."""
    return len(memory.open_devices())


def current_device() -> int:
    """Return the index of the device new tensors on `"ocl"` go to in this thread."""
    return accelerator.current_device_index()


def set_device(device: DeviceLike) -> None:
    """Make `device` the current one in this thread."""
    accelerator.set_device_index(index_of(device))


class device:  # noqa: N801  (torch.cuda.device set the name)
    """Context manager that makes a device the current one; None and negative change nothing."""

    def __init__(self, device: DeviceLike) -> None:
        unchanged = device is None or (isinstance(device, int) and device < 0)
        self.index = None if unchanged else index_of(device)

    def __enter__(self) -> None:
        """Switch to the device and remember the one before."""
        self.before = current_device()
        if self.index is not None:
            set_device(self.index)

    def __exit__(self, *exception: object) -> None:
        """Switch back."""
        set_device(self.before)


class device_of(device):  # noqa: N801  (torch.cuda.device_of set the name)
    """Context manager that makes the device of a tensor the current one, if it is on ocl."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == "ocl" else None)


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return name, memory and processors of a device."""
    opened = memory.open_devices()[index_of(device)]
    return DeviceProperties(
        opened.name,
        opened.info.vendor,
        opened.limits.global_bytes,
        opened.limits.compute_units,
        opened.info.driver_version,
        opened,
    )


def get_device_name(device: DeviceLike = None) -> str:
    """Return the device's own name."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> dict[str, Any]:
    """Return a device's dtypes, the largest work-group, and its extensions.

    The dtypes are those of its tensors; of floats of 8 bits and wide unsigned integers, it copies
    and converts them alone.
    """
    limits = get_device_properties(device).opencl.limits
    known = {*COPIED, torch.complex32, torch.complex64, torch.complex128}
    if "cl_khr_fp64" not in limits.extensions:
        known -= {torch.float64, torch.complex128}
    return {
        "supported_dtypes": known,
        "max_work_group_size": limits.max_work_group,
        "extensions": sorted(limits.extensions),
    }


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes `torch.autocast("ocl")` may choose."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported() -> bool:
    """Return True: bfloat16 is stored as such and computed with in float32 on every device."""
    return True


def can_device_access_peer(device: DeviceLike, peer: DeviceLike) -> bool:
    """Return whether two devices are one: OpenCL devices do not share memory with another."""
    return index_of(device) == index_of(peer)
