"""The identity and limits of a `pyopencl.Device`, as plain values."""

from __future__ import annotations

import re
from typing import Any

import pyopencl as cl

from oclgen.limits import KIB, DeviceInfo, Limits
from oclgen.texts import printable

LONGEST = 400
"""Letters of a line of a driver that are kept; shared files allow no more."""


def kind_of(handle: Any) -> Any:
    """Return "gpu", "cpu" or "other"."""
    if handle.type & cl.device_type.GPU:
        return "gpu"
    return "cpu" if handle.type & cl.device_type.CPU else "other"


def limits_of(handle: Any) -> Limits:
    """Return what it allows; instructions beyond OpenCL C have to be tried."""
    # NVIDIA keeps about 1 KiB of the local memory it reports for itself
    reserved = KIB if "NVIDIA" in handle.vendor else 0
    return Limits(
        kind=kind_of(handle),
        local_bytes=handle.local_mem_size - reserved,
        max_work_group=handle.max_work_group_size,
        max_work_items=tuple(handle.max_work_item_sizes),
        max_argument_bytes=handle.max_parameter_size,
        max_alloc_bytes=handle.max_mem_alloc_size,
        global_bytes=handle.global_mem_size,
        compute_units=handle.max_compute_units,
        native_float_width=max(handle.native_vector_width_float, 1),
        extensions=frozenset(handle.extensions.split()),
        address_bits=handle.address_bits,
    )


def info_of(handle: Any) -> DeviceInfo:
    """Return who it is."""
    return DeviceInfo(
        name=" ".join(_line(handle.name).split()),
        vendor=_line(handle.vendor),
        kind=kind_of(handle),
        architecture=_architecture(handle),
        runtime=_line(handle.platform.name),
        runtime_version=_line(handle.platform.version),
        driver_version=_line(handle.driver_version),
        compute_units=handle.max_compute_units,
    )


def _line(text: str) -> str:
    """Return what a driver says as a line that records and files of a self-test can hold."""
    return printable(text)[:LONGEST].strip()


def nvidia_processor(handle: Any) -> tuple[int, int] | None:
    """Return the major and the minor number of a processor of NVIDIA, None of others."""
    if "cl_nv_device_attribute_query" not in handle.extensions:
        return None
    return handle.compute_capability_major_nv, handle.compute_capability_minor_nv


def _architecture(handle: Any) -> str:
    """Return the coarse class of a device whose records serve its relatives."""
    if processor := nvidia_processor(handle):
        return "nvidia sm_{}{}".format(*processor)
    if kind_of(handle) == "cpu":
        # float vectors tell SSE, AVX and AVX-512 apart without asking the operating system
        return f"cpu float{max(handle.native_vector_width_float, 1)}"
    words = re.sub(r"[^a-z0-9]+", " ", f"{handle.vendor} {handle.name}".lower()).split()
    return " ".join(words[:4])
