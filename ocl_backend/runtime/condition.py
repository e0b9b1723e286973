"""Clock and temperature of a device, where it tells, under torch.cuda's names."""

from __future__ import annotations

from ocl_backend.runtime.devices import DeviceLike, get_device_name, get_device_properties
from oclgen.measuring.conditions import conditions


def temperature(device: DeviceLike = None) -> int:
    """Return degrees Celsius; a processor's hottest sensor.

    Raises:
        NotImplementedError: the device does not tell.
    """
    return _told(device, "celsius")


def clock_rate(device: DeviceLike = None) -> int:
    """Return the present clock in MHz; of a processor the mean of its cores.

    Raises:
        NotImplementedError: the device does not tell.
    """
    return _told(device, "mhz")


def _told(device: DeviceLike, figure: str) -> int:
    opencl = get_device_properties(device).opencl
    found = conditions(opencl.info, opencl.handle)
    if figure not in found:
        raise NotImplementedError(
            f"{get_device_name(device)} does not tell its {figure}; of NVIDIA's devices the "
            "package nvidia-ml-py does, which the extra `nvidia` brings"
        )
    return round(found[figure])
