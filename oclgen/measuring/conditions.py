"""Clocks and temperatures of a device, where it or its system tells; reading them costs little.

It judges nothing: they are noted beside a measurement, where they may explain an odd time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from oclgen.limits import DeviceInfo

SYSTEM = Path("/sys")
PROCESSORS = ("k10temp", "coretemp", "cpu_thermal", "zenpower")
"""Names under which Linux lists the temperature of processors."""


def conditions(info: DeviceInfo, handle: Any) -> dict[str, float]:
    """Return those of `mhz` and `celsius` that can be read of a device; handle: pyopencl's.

    Processors: Linux' cpufreq and hwmon, the mean clock and the highest temperature. NVIDIA: NVML
    through the package nvidia-ml-py, if it is installed.
    """
    if info.kind == "cpu":
        return _of_processor()
    return _of_nvidia(handle) if "NVIDIA" in info.vendor else {}


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
        return file.read_text().strip()
    return ""


def _numbers(files: Iterable[Path]) -> list[float]:
    return [float(text) for file in files if (text := _text(file)).lstrip("-").isdecimal()]


def _of_nvidia(handle: Any) -> dict[str, float]:
    place = (
        f"{handle.pci_domain_id_nv:08x}:{handle.pci_bus_id_nv:02x}:{handle.pci_slot_id_nv:02x}.0"
    )
    if (library := _nvml()) is None:
        return {}
    found = {}
    with suppress(library.NVMLError):
        device = library.nvmlDeviceGetHandleByPciBusId(place.encode())
        found["mhz"] = float(library.nvmlDeviceGetClockInfo(device, library.NVML_CLOCK_SM))
        kind = library.NVML_TEMPERATURE_GPU
        found["celsius"] = float(library.nvmlDeviceGetTemperature(device, kind))
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
