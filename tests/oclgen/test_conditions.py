"""Where clocks, heat, power and load are read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oclgen.limits import DeviceInfo
from oclgen.measuring import conditions as module
from oclgen.measuring.conditions import FILES, conditions

ALL = tuple(FILES)
AMDGPU = {
    "gpu_busy_percent": "37",
    "mem_busy_percent": "12",
    "hwmon/hwmon4/freq1_input": "2100000000",
    "hwmon/hwmon4/temp1_input": "61500",
    "hwmon/hwmon4/power1_average": "183000000",
}
I915 = {"drm/card0/gt_cur_freq_mhz": "1450"}
PLACE = "0000:c3:00.0"
KHR = SimpleNamespace(
    pci_bus_info_khr=SimpleNamespace(pci_domain=0, pci_bus=0xC3, pci_device=0, pci_function=0)
)
AMD = SimpleNamespace(
    topology_amd=SimpleNamespace(pcie=SimpleNamespace(bus=-61, device=0, function=0))
)


def gpu(vendor: str = "Advanced Micro Devices, Inc.") -> DeviceInfo:
    return DeviceInfo("a GPU", vendor, "gpu", "gpu", "a runtime", "", "1", 64)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "SYSTEM", tmp_path)
    return tmp_path / "bus/pci/devices" / PLACE


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")


@pytest.mark.parametrize("handle", [KHR, AMD])
def test_a_gpu_of_amd_is_read_from_its_drivers_files(system: Path, handle: Any) -> None:
    lay(system, AMDGPU)
    assert conditions(gpu(), handle) == {"mhz": 2100.0, "celsius": 61.5}
    found = conditions(gpu(), handle, ALL)
    assert found == {
        "mhz": 2100.0,
        "celsius": 61.5,
        "watts": 183.0,
        "busy_percent": 37.0,
        "memory_busy_percent": 12.0,
    }


def test_a_gpu_tells_what_its_driver_has(system: Path) -> None:
    lay(system, I915)
    assert conditions(gpu("Intel(R) Corporation"), KHR, ALL) == {"mhz": 1450.0}
    lay(system, {"gpu_busy_percent": "not a number"})
    assert conditions(gpu(), KHR, ("busy_percent",)) == {}


def test_without_a_place_on_the_bus_nothing_is_told(system: Path) -> None:
    lay(system, AMDGPU)
    assert conditions(gpu(), SimpleNamespace(), ALL) == {}


class Nvml:
    """What a part of a GPU tells: all but its load."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = 0

    def nvmlDeviceGetHandleByPciBusId(self, place: bytes) -> str:  # noqa: N802
        assert place == b"00000000:c3:00.0"
        return "a device"

    def nvmlDeviceGetClockInfo(self, device: str, kind: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetTemperature(self, device: str, kind: int) -> int:  # noqa: N802
        return 44

    def nvmlDeviceGetPowerUsage(self, device: str) -> int:  # noqa: N802
        return 331_500

    def nvmlDeviceGetUtilizationRates(self, device: str) -> Any:  # noqa: N802
        raise self.NVMLError


def test_nvml_is_asked_one_figure_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = SimpleNamespace(pci_domain_id_nv=0, pci_bus_id_nv=0xC3, pci_slot_id_nv=0)
    monkeypatch.setattr(module, "_nvml", Nvml)
    found = conditions(gpu("NVIDIA Corporation"), handle, ALL)
    assert found == {"mhz": 1980.0, "celsius": 44.0, "watts": 331.5}
    monkeypatch.setattr(module, "_nvml", lambda: None)
    assert conditions(gpu("NVIDIA Corporation"), handle, ALL) == {}
