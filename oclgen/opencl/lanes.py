"""With how many lanes Intel's GPUs run a kernel, where their compiler would choose too many.

A hardware thread's registers are shared out among its lanes. If a GPU runs 16 or 32 lanes, the
compiler may take 32 and spill to memory what then finds no register, though 16 lanes have twice as
many registers each (`ocloc` 22.43, Ponte Vecchio). So programs are built with the fewest lanes of
such a GPU. With GPUs that run 8 lanes, the compiler itself takes fewer lanes before it spills.

Source: Khronos, "cl_intel_required_subgroup_size".
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from oclgen.opencl import loader

EXTENSION = "cl_intel_required_subgroup_size"
"""What a device announces whose kernels may say how many lanes they have."""
ATTRIBUTE = "intel_reqd_sub_group_size"
"""How a kernel says it."""
WIDE = 16
"""Lanes that a GPU has at least if its compiler chooses too many."""
_SIZES = 0x4108
"""`CL_DEVICE_SUB_GROUP_SIZES_INTEL`."""


def options(source: str, lanes: int) -> tuple[str, ...]:
    """Return the compiler's options by which the kernels of a program get `lanes` lanes.

    They reach kernels that say what their work-group is. A program that says how many lanes it has
    keeps them.

    Args:
        source: of the program.
        lanes: work-items of a sub-group; 0: the compiler chooses.
    """
    if not lanes or ATTRIBUTE in source:
        return ()
    group = "reqd_work_group_size(x,y,z)"
    return (f"-D{group}={group},{ATTRIBUTE}({lanes})",)


def fewest(sizes: tuple[int, ...]) -> int:
    """Return the lanes that programs of a GPU are built with, 0 if its compiler chooses well.

    Args:
        sizes: of the sub-groups that the device can run, none if it does not tell.
    """
    return min(sizes) if sizes and min(sizes) >= WIDE else 0


def sizes_of(handle: Any, module: Path) -> tuple[int, ...]:
    """Return the sizes of sub-groups that a device lists; none if it does not tell.

    Args:
        handle: a `pyopencl.Device`.
        module: pyopencl's extension module, through which OpenCL's functions are found.
    """
    if EXTENSION not in handle.extensions.split():
        return ()
    ask = ctypes.CDLL(loader.entry_library(module)).clGetDeviceInfo
    device, what = ctypes.c_void_p(handle.int_ptr), ctypes.c_uint32(_SIZES)
    size = ctypes.c_size_t()
    if ask(device, what, ctypes.c_size_t(0), None, ctypes.byref(size)):
        return ()
    found = (ctypes.c_size_t * (size.value // ctypes.sizeof(ctypes.c_size_t)))()
    if ask(device, what, size, found, None):
        return ()
    return tuple(found)
