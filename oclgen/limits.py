"""What a device allows, and its identity: plain values that `oclgen.opencl.device` reads once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

from oclgen.plan import Buffer, Launch, Needs, Offset, Plan

KIB = 1024
SCALAR_BYTES = {"int": 4, "long": 8, "float": 4}
PROFILED = "profile "
"""The beginning of an architecture's name that no real device has: `oclgen.profiles`."""
SHARE = 2
"""Workspaces take at most 1/SHARE of a device's memory; the rest is for data."""


@dataclass(frozen=True)
class Limits:
    """What a kernel may ask of a device; the defaults are the smallest device we serve.

    `local_bytes` is what a kernel can really have: drivers keep some of what they report (NVIDIA
    about 1 KiB), which `oclgen.opencl.device` has already taken off. `declared_local_bytes` is what
    a kernel may declare in its text where that is more (`oclgen.opencl.declared`), else 0.
    `instructions` are those beyond OpenCL C that gave right results when asked
    (`oclgen.opencl.probe`).
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
    address_bits: int = 64
    declared_local_bytes: int = 0

    @property
    def most_local_bytes(self) -> int:
        """Local memory of a work-group whose kernel declares it in its text: all of ours do."""
        return max(self.local_bytes, self.declared_local_bytes)

    @cached_property
    def has_few_registers(self) -> bool:
        """Whether a GPU's work-item keeps some 100 floats in registers, not 250: Intel's GPUs."""
        return self.kind == "gpu" and any(name.startswith("cl_intel_") for name in self.extensions)

    @property
    def has_32_vectors(self) -> bool:
        """Whether a processor's core has 32 vector registers, as AVX-512; AVX2 and SSE have 16."""
        return self.native_float_width >= 16

    @property
    def vector_sums(self) -> int:
        """Vectors of sums that a processor's core keeps in registers and has four for operands."""
        return (32 if self.has_32_vectors else 16) - 4

    def to_json(self) -> dict[str, Any]:
        """Return plain values; sets become sorted lists."""
        return {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Limits:
        """Return what `to_json` wrote.

        Raises:
            TypeError, KeyError: other values than today's, as in a file of another version.
        """
        kinds = {"extensions": frozenset, "instructions": frozenset, "max_work_items": tuple}
        return cls(**values | {name: kind(values[name]) for name, kind in kinds.items()})

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

    @property
    def is_profiled(self) -> bool:
        """Whether a profile is laid over the device (`oclgen.profiles`): its times tell nothing."""
        return self.architecture.startswith(PROFILED)


def broken(needs: Needs, limits: Limits) -> str | None:
    """Say with numbers which limit is broken, by which kernel or workspace; None if none is.

    Asked are each kernel's work-group, its work-items in each dimension and its local memory, then
    each workspace and their sum.
    """
    for kernel, local_size, local_bytes in needs.frames:
        if (items := prod(local_size)) > limits.max_work_group:
            return (
                f"{kernel} has a work-group of {' x '.join(map(str, local_size))} = {items} "
                f"work-items; the device allows {limits.max_work_group}"
            )
        for axis, count in enumerate(local_size):
            if count > limits.max_work_items[axis]:
                return (
                    f"{kernel} has {count} work-items in dimension {axis} of a work-group; the "
                    f"device allows {limits.max_work_items}"
                )
        if local_bytes > limits.most_local_bytes:
            return (
                f"{kernel} needs {local_bytes} B of local memory; the device has "
                f"{limits.most_local_bytes} B"
            )
    return _without_room(needs.workspaces, limits) if needs.workspaces else None


def first_broken(plan: Plan, limits: Limits) -> str | None:
    """Say with numbers which limit a plan breaks first, and which launch does; None if none does.

    Asked is what `broken` asks, and the bytes of each launch's arguments.
    """
    for launch in plan.launches:
        if (size := _argument_bytes(launch, limits)) > limits.max_argument_bytes:
            return (
                f"{launch.kernel} has {size} B of arguments; the device allows "
                f"{limits.max_argument_bytes} B"
            )
    return broken(plan.needs, limits)


def _without_room(workspaces: tuple[tuple[str, int], ...], limits: Limits) -> str | None:
    for role, size in workspaces:
        if size > limits.max_alloc_bytes:
            return (
                f"workspace {role} needs {size} B; the device allocates at most "
                f"{limits.max_alloc_bytes} B at once"
            )
    if (total := sum(size for _, size in workspaces)) > limits.global_bytes // SHARE:
        return (
            f"the workspaces need {total} B of the device's {limits.global_bytes} B; at most "
            f"1/{SHARE} is given to workspaces"
        )
    return None


def _argument_bytes(launch: Launch, limits: Limits) -> int:
    """Return the bytes of a launch's arguments, of which an offset is a long."""
    total = 0
    for arg in launch.args:
        if isinstance(arg, Buffer):
            total += limits.address_bits // 8
        else:
            total += SCALAR_BYTES["long" if isinstance(arg, Offset) else arg.type]
    return total
