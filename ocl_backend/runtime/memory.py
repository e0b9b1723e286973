"""Hands the OpenCL devices to the shim: contexts, queues, memory sizes and memory limits.

`oclgen.opencl.device` lists the devices; allocation itself happens in the shim.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path

import torch

from oclgen import system
from oclgen.opencl import loader
from oclgen.opencl.device import Device, devices  # before pyopencl: it prepares the loader

import pyopencl as cl  # isort: skip

from ocl_backend.runtime import compiling, shim

SUBMITTER_VARIABLE = "OCLGEN_SUBMITTER"
SLOW_COPIES = "Intel"
"""How the name of a processor's runtime begins whose command for copies takes twice as long as a
kernel: 9 us for 8 KiB in place of 5, and 0.50 ms for 8 MiB in place of 0.20. It shares out a copy
by divisors of its size: 262,144 bytes take 12 us, 262,148 take 480. PoCL's 8 MiB take 0.18 ms."""
FEWEST_CORES = 4
"""With fewer a thread of its own takes a core from the model, autograd or the driver."""


class Submission(IntEnum):
    """Who hands a device's commands to its driver: `How` of csrc/runtime/submitter.cpp."""

    EACH_CALL = 0
    THREAD = 1
    BATCHES = 2


@cache
def open_devices() -> tuple[Device, ...]:
    """Give every device of `oclgen.opencl.device` to torch under its index, once per process.

    Raises:
        ShimError: the shim could not be compiled, or pyopencl's loader lacks an entry point.
    """
    library = shim.library()
    library.ocl_bind.restype = ctypes.c_char_p
    missing = library.ocl_bind(loader.entry_library(Path(cl._cl.__file__)).encode())
    if missing is not None:
        raise compiling.ShimError(
            f"pyopencl {cl.VERSION_TEXT} gives no access to {missing.decode()}"
        )
    found = devices()[: library.ocl_room()]
    for index, device in enumerate(found):
        limits = device.limits
        library.ocl_add_device(
            ctypes.c_void_p(device.context.int_ptr),
            ctypes.c_void_p(device.queue.int_ptr),
            device.name.encode(),
            ctypes.c_size_t(limits.global_bytes),
            ctypes.c_size_t(limits.max_alloc_bytes),
            ctypes.c_int("cl_khr_fp64" in limits.extensions),
        )
        if device.enforced is not None:
            library.ocl_enforce_largest(ctypes.c_int(index))
        own = not device.handle.host_unified_memory
        set_own_memory(index, own)
        if limits.kind == "cpu":
            set_processor(index, True)
            if device.info.runtime.startswith(SLOW_COPIES):
                library.ocl_copy_by_kernels(ctypes.c_int(index))
        set_submission(index, submission(own, on_cpu=limits.kind == "cpu"))
    if are_processors(found):
        library.ocl_keep_backward()
    if found:
        found[0].expect()  # a network is about to be moved there
    return found


def are_processors(found: Sequence[Device]) -> bool:
    """Say whether processors are all that torch computes on: none runs beside the host's threads.

    Then a backward pass runs in the thread that calls it. Devices that run beside it may have
    passes of their own at the same time (`torch.nn.DataParallel`), which take a thread each.

    Args:
        found: the devices of `ocl`.
    """
    return not torch.cuda.is_available() and all(each.limits.kind == "cpu" for each in found)


def set_limit(index: int, size: int) -> None:
    """Let the allocator of device `index` reserve at most `size` bytes from now on."""
    shim.library().ocl_set_memory_limit(ctypes.c_int(index), ctypes.c_size_t(size))


def set_processor(index: int, is_processor: bool) -> None:
    """Say whether device `index` is a processor: calls of few items may then run on its host."""
    shim.library().ocl_set_processor(ctypes.c_int(index), ctypes.c_int(is_processor))


def set_own_memory(index: int, own: bool) -> None:
    """Say whether the memory of device `index` is its own: large copies then take pinned memory."""
    shim.library().ocl_set_own_memory(ctypes.c_int(index), ctypes.c_int(own))


def submission(own_memory: bool, on_cpu: bool) -> Submission:
    """Return who hands a device's commands to its driver, as the environment or its cores say.

    On a processor the kernels need its core, and on few cores the model does. On the only core a
    command that wakes the kernels' threads takes the core from the model, so batches do it.

    Args:
        own_memory: whether the device's memory is not the host's.
        on_cpu: whether the device is a processor.

    Raises:
        ValueError: `OCLGEN_SUBMITTER` is no number of a `Submission`.
    """
    if wish := os.environ.get(SUBMITTER_VARIABLE, ""):
        known = {str(int(who)): who for who in Submission}
        if wish not in known:
            raise ValueError(f"{SUBMITTER_VARIABLE}={wish!r}; it must be one of {', '.join(known)}")
        return known[wish]
    cores = system.cores()
    if own_memory and cores >= FEWEST_CORES:
        return Submission.THREAD
    return Submission.BATCHES if on_cpu and cores == 1 else Submission.EACH_CALL


def set_submission(index: int, who: Submission) -> None:
    """Say who hands the commands of device `index` to its driver from now on."""
    shim.library().ocl_set_submitter(ctypes.c_int(index), ctypes.c_int(who))


def stop_submitters() -> None:
    """End these threads after the commands that they have: the process ends."""
    shim.library().ocl_stop_submitters()
