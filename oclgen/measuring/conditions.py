"""Clocks, temperature, power and load of a device, if the device or its system reports them.

Reading takes little time. It judges nothing: conditions are noted beside a measurement, where they
may explain an odd time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from oclgen.limits import DeviceInfo

SYSTEM = Path("/sys")
PROCESSORS = ("k10temp", "coretemp", "cpu_thermal", "zenpower")
"""Names under which Linux lists the temperature of processors."""
NOTED = ("mhz", "celsius")
"""Figures that are noted beside a measurement."""
FILES: dict[str, tuple[tuple[str, float], ...]] = {
    "mhz": (("hwmon/hwmon*/freq1_input", 1e-6), ("drm/card*/gt_cur_freq_mhz", 1.0)),
    "celsius": (("hwmon/hwmon*/temp1_input", 1e-3),),
    "watts": (("hwmon/hwmon*/power1_average", 1e-6), ("hwmon/hwmon*/power1_input", 1e-6)),
    "busy_percent": (("gpu_busy_percent", 1.0),),
    "memory_busy_percent": (("mem_busy_percent", 1.0),),
}
"""Files of a GPU's folder in Linux, the first that is there, and what makes its number the figure:
amdgpu's (docs.kernel.org/gpu/amdgpu/thermal.html) and i915's (its sysfs ABI)."""


def conditions(info: DeviceInfo, handle: Any, figures: tuple[str, ...] = NOTED) -> dict[str, float]:
    """Return those of the figures that can be read of a device.

    Processors: Linux' cpufreq and hwmon, the mean clock and the highest temperature. NVIDIA: NVML
    through the package nvidia-ml-py, if it is installed. Other GPUs: files of their drivers in
    Linux, where OpenCL tells the place on the bus.

    Args:
        info: of the device.
        handle: pyopencl's.
        figures: keys of `FILES`.
    """
    if info.kind == "cpu":
        found = _of_processor()
        return {name: found[name] for name in figures if name in found}
    if (place := _place(handle)) is None:
        return {}
    return _of_nvidia(place, figures) if "NVIDIA" in info.vendor else _of_gpu(place, figures)


def before_and_after(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return both under names that tell them apart."""
    named = {f"{name}_before": value for name, value in before.items()}
    return named | {f"{name}_after": value for name, value in after.items()}


def _of_processor() -> dict[str, float]:
    clocks = _numbers(SYSTEM.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))
    sensors = [
        folder
        for folder in SYSTEM.glob("class/hwmon/hwmon*")
        if _text(folder / "name") in PROCESSORS
    ]
    heat = _numbers(file for folder in sensors for file in folder.glob("temp*_input"))
    found = {"mhz": fmean(clocks) / 1e3} if clocks else {}
    return found | ({"celsius": max(heat) / 1e3} if heat else {})


def _text(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8").strip()
    return ""


def _numbers(files: Iterable[Path]) -> list[float]:
    return [float(text) for file in files if (text := _text(file)).lstrip("-").isdecimal()]


def _place(handle: Any) -> str | None:
    """Return the device's place on the PCI bus as Linux writes it, None where it does not tell."""
    with suppress(Exception):  # without the extension pyopencl or the driver raises
        return (
            f"{handle.pci_domain_id_nv:04x}:{handle.pci_bus_id_nv:02x}"
            f":{handle.pci_slot_id_nv:02x}.0"
        )
    with suppress(Exception):
        place = handle.pci_bus_info_khr
        domain, bus = place.pci_domain, place.pci_bus
        return f"{domain:04x}:{bus:02x}:{place.pci_device:02x}.{place.pci_function:x}"
    with suppress(Exception):
        place = handle.topology_amd.pcie
        return f"0000:{place.bus & 0xFF:02x}:{place.device:02x}.{place.function:x}"
    return None


def _of_gpu(place: str, figures: tuple[str, ...]) -> dict[str, float]:
    folder = SYSTEM / "bus/pci/devices" / place
    found = {}
    for name in figures:
        for pattern, factor in FILES[name]:
            if numbers := _numbers(folder.glob(pattern)):
                found[name] = numbers[0] * factor
                break
    return found


def _of_nvidia(place: str, figures: tuple[str, ...]) -> dict[str, float]:
    if (library := _nvml()) is None:
        return {}
    read: dict[str, Callable[[Any], float]] = {
        "mhz": lambda device: library.nvmlDeviceGetClockInfo(device, library.NVML_CLOCK_SM),
        "celsius": lambda device: library.nvmlDeviceGetTemperature(
            device, library.NVML_TEMPERATURE_GPU
        ),
        "watts": lambda device: library.nvmlDeviceGetPowerUsage(device) / 1e3,
        "busy_percent": lambda device: library.nvmlDeviceGetUtilizationRates(device).gpu,
        "memory_busy_percent": lambda device: library.nvmlDeviceGetUtilizationRates(device).memory,
    }
    found = {}
    with suppress(library.NVMLError):
        # NVML writes the bus' domain with eight digits
        device = library.nvmlDeviceGetHandleByPciBusId(f"0000{place}".encode())
        for name in figures:
            with suppress(library.NVMLError):  # a part of a GPU (MIG) tells some
                found[name] = float(read[name](device))
    return found


@cache
def _nvml() -> Any:
    """Return NVML, started, or None where the package or the library is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # it raises its own kinds, and is worth no failure of a measurement
        return None
    return pynvml
