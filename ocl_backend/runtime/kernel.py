"""Kernels of built programs, as the shim has them: launches of whatever sizes share one."""

from __future__ import annotations

import ctypes
import re
import weakref
from functools import lru_cache
from typing import Any

from ocl_backend.runtime import shim
from oclgen.opencl.device import LaunchError

_FUNCTIONS = re.compile(r"\bvoid\s+(\w+)\(")
"""One pattern for all names: each new one takes half a millisecond."""


class Kernel:
    """A kernel of a program, which its launches share; `arguments` is how many it takes."""

    __slots__ = ("__weakref__", "arguments", "handle")

    def __init__(self, program: Any, name: str) -> None:
        """Make the kernel `name` of a `pyopencl.Program`; pyopencl's own take milliseconds."""
        new, delete = shim.library()["ocl_kernel_new"], shim.library()["ocl_kernel_delete"]
        new.argtypes, delete.argtypes = [ctypes.c_void_p, ctypes.c_char_p], [ctypes.c_void_p]
        new.restype = ctypes.c_void_p
        handle: int | None = new(program.int_ptr, name.encode())
        if handle is None:
            raise LaunchError(
                f"kernel {name}: {shim.last_error()}. The program has no kernel of that name, or "
                "it is the name of an OpenCL built-in, which some runtimes refuse."
            )
        self.handle = handle
        self.arguments: int = shim.library().ocl_kernel_arguments(ctypes.c_void_p(handle))
        weakref.finalize(self, delete, handle).atexit = False


def kernel_of(program: Any, name: str, arguments: int) -> Kernel:
    """Return a kernel of a built program.

    Args:
        program: has the kernel.
        name: of the kernel.
        arguments: how many it is said to take.

    Raises:
        LaunchError: the program has no such kernel, or it takes another number.
    """
    built = _known(program, name)
    if arguments != built.arguments:
        raise LaunchError(
            f"kernel {name} takes {built.arguments} arguments, {arguments} were described "
            "(a pointer counts for two: buffer and element offset)"
        )
    return built


@lru_cache(maxsize=512)
def are_const(source: str, name: str) -> tuple[bool, ...]:
    """Return of each pointer to global memory that a kernel takes whether it is declared const.

    Args:
        source: OpenCL C; its kernels declare their arguments without macros that hide a pointer.
        name: of the kernel.
    """
    begin = next((at.end() for at in _FUNCTIONS.finditer(source) if at[1] == name), None)
    declared = [] if begin is None else source[begin : source.find(")", begin)].split(",")
    return tuple("const" in each.partition("*")[0] for each in declared if "*" in each)


@lru_cache(maxsize=1024)
def _known(program: Any, name: str) -> Kernel:
    return Kernel(program, name)
