"""Which cooperative matrices a device lists, by the queries of `cl_khr_cooperative_matrix`.

By the draft (OpenCL-Docs, pull request 1533, January 2026) a program is undefined whose matrices a
device does not list. So `oclgen.opencl.device` asks here before it runs the probes of these units.
No device at hand answers the queries.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from oclgen.opencl import loader
from oclgen.opencl.fragments import COOPERATIVE, STAGED_ALIGNMENT, STEPS, UNITS, Unit

QUERY = b"clGetDeviceCooperativeMatrixInfoKHR"
SUB_GROUP_VARIANTS, POINTER_ALIGNMENT, STRIDE_MULTIPLE = 0x1079, 0x107A, 0x107B
FP16, FP32 = 0, 1
ROW_BYTES = 2 * STEPS
"""Of a row of A and of a column of B, the shortest strides of the units; a row of C has twice."""


FIELDS = (
    "m_size", "n_size", "k_size", "a_type", "b_type", "c_type", "result_type",
    "saturating_accumulation",
)  # fmt: skip


class Matrices(ctypes.Structure):
    """`cl_device_cooperative_matrix_variant_khr`: matrices that may be multiplied and added."""

    _fields_ = [(name, ctypes.c_uint32) for name in FIELDS]


def unlisted(handle: Any, module: Path) -> frozenset[str]:
    """Return the names of the cooperative units whose matrices the device does not list.

    Args:
        handle: a `pyopencl.Device`. One without the extension is not asked, and lists none.
        module: pyopencl's extension module, through which OpenCL's functions are found.
    """
    cooperative = {name: unit for name, unit in UNITS.items() if unit.is_cooperative}
    if COOPERATIVE not in handle.extensions.split():
        return frozenset(cooperative)
    library = ctypes.CDLL(loader.entry_library(module))
    find, device = library.clGetExtensionFunctionAddressForPlatform, _pointer(handle)
    find.restype = ctypes.c_void_p
    address = find(_pointer(handle.platform), QUERY)
    if not address or not _takes_addresses(library, device):
        return frozenset(cooperative)
    return frozenset(
        name
        for name, unit in cooperative.items()
        if _wanted(unit) not in _listed(address, device, unit.lanes)
    )


def _pointer(handle: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(handle.int_ptr)


def _wanted(unit: Unit) -> tuple[int, ...]:
    return (unit.rows, unit.columns, STEPS, FP16, FP16, FP32, FP32, False)


def _takes_addresses(library: Any, device: ctypes.c_void_p) -> bool:
    """Say whether loads and stores of the units are aligned as the device asks."""
    return all(
        (asked := _number(library, device, name)) is not None and have % max(asked, 1) == 0
        for name, have in ((POINTER_ALIGNMENT, STAGED_ALIGNMENT), (STRIDE_MULTIPLE, ROW_BYTES))
    )


def _number(library: Any, device: ctypes.c_void_p, name: int) -> int | None:
    value = ctypes.c_uint32()
    size = ctypes.c_size_t(ctypes.sizeof(value))
    status = library.clGetDeviceInfo(device, ctypes.c_uint32(name), size, ctypes.byref(value), None)
    return None if status else value.value


def _listed(address: int, device: ctypes.c_void_p, lanes: int) -> set[tuple[int, ...]]:
    """Return the fields of all `Matrices` for sub-groups of `lanes`; none where it fails."""
    size_t, pointer = ctypes.c_size_t, ctypes.c_void_p
    types = (pointer, ctypes.c_uint32, size_t, pointer, size_t, pointer, pointer)
    query = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(address)
    asked, size = ctypes.c_uint32(lanes), size_t()
    start = (device, SUB_GROUP_VARIANTS, ctypes.sizeof(asked), ctypes.addressof(asked))
    if query(*start, 0, None, ctypes.addressof(size)):
        return set()
    found = (Matrices * (size.value // ctypes.sizeof(Matrices)))()
    if query(*start, ctypes.sizeof(found), ctypes.addressof(found), None):
        return set()
    return {tuple(getattr(one, name) for name in FIELDS) for one in found}
