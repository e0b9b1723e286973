"""Clock, heat, power and load of a device, where it tells, under torch.cuda's names."""

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


def utilization(device: DeviceLike = None) -> int:
    """Return the percentage of the last moments in which a kernel ran.

    Raises:
        NotImplementedError: the device does not tell.
    """
    return _told(device, "busy_percent")


def memory_usage(device: DeviceLike = None) -> int:
    """Return the percentage of the last moments in which the memory was read or written.

    Raises:
        NotImplementedError: the device does not tell.
    """
    return _told(device, "memory_busy_percent")


def power_draw(device: DeviceLike = None) -> int:
    """Return the present power in milliwatts, as torch.cuda does.

    Raises:
        NotImplementedError: the device does not tell.
    """
    return round(1e3 * _figure(device, "watts"))


def _told(device: DeviceLike, figure: str) -> int:
    return round(_figure(device, figure))


def _figure(device: DeviceLike, figure: str) -> float:
    opencl = get_device_properties(device).opencl
    found = conditions(opencl.info, opencl.handle, (figure,))
    if figure not in found:
        raise NotImplementedError(
            f"{get_device_name(device)} does not tell its {figure}; of NVIDIA's devices the "
            "package nvidia-ml-py does, which the extra `nvidia` brings"
        )
    return found[figure]
