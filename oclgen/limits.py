"""What a device allows and who it is, as plain values read once by `oclgen.opencl.device`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KIB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a kernel may ask of a device; the defaults are the smallest device we serve.

    `local_bytes` is what a kernel can really have: drivers keep some of what they report (NVIDIA
    about 1 KiB), which `oclgen.opencl.device` has already taken off. `instructions` are those
    beyond OpenCL C that gave right results when asked (`oclgen.opencl.probe`).
    """

    kind: Literal["cpu", "gpu", "other"] = "other"
    local_bytes: int = 16 * KIB
    max_work_group: int = 64
    max_work_items: tuple[int, ...] = (64, 64, 64)
    max_alloc_bytes: int = 128 * 1024 * KIB
    global_bytes: int = 512 * 1024 * KIB
    compute_units: int = 1
    native_float_width: int = 1
    extensions: frozenset[str] = frozenset()
    instructions: frozenset[str] = frozenset()
    max_argument_bytes: int = KIB

    def why_no(self, instruction: str) -> str | None:
        """Say that the device did not show `instruction`, and what it showed; None if it did."""
        if instruction in self.instructions:
            return None
        known = ", ".join(sorted(self.instructions)) or "none"
        return f"{instruction} is no instruction of the device; it showed {known}"


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Who the device is: the provenance of a measurement.

    `architecture` is coarser than `name` ("nvidia sm_90", "cpu x86_64 avx512"): devices that
    share it are the next best source of records.
    """

    name: str
    vendor: str
    kind: Literal["cpu", "gpu", "other"]
    architecture: str
    runtime: str
    runtime_version: str
    driver_version: str
    compute_units: int
