"""Differences between operating systems: processes and how they end, their memory, their cores.

Every other module asks here. There are two exceptions: `oclgen.opencl.loader` knows how a system
finds OpenCL, `ocl_backend.runtime.compiling` knows its compiler.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

STATM = Path("/proc/self/statm")
"""Where Linux tells of a process's pages."""
LOWEST = 19
"""Added to the priority's number of a process that leaves the cores to others."""
NEW_GROUP, BELOW_ALL, MAY_WAIT, FOR_EVER = 0x200, 0x40, 0x100000, 0xFFFFFFFF
"""Windows' CREATE_NEW_PROCESS_GROUP, IDLE_PRIORITY_CLASS, SYNCHRONIZE and INFINITE."""

ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18
"""Linux' system call of x86-64, its ARCH_REQ_XCOMP_PERM, and the state of AMX's tile registers."""


@cache
def allows_tiles() -> bool:
    """Ask the kernel for AMX's tile registers, and say whether this process may use them.

    Linux hands out their 8 KiB of state on request alone (Documentation/arch/x86/xstate.rst); a
    process without it gets SIGILL. Threads and forked children have what their process was given.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    refused: int = ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA)
    return refused == 0


def apart() -> dict[str, Any]:
    """Return options of `subprocess` for a child that does not receive the terminal's Ctrl-C."""
    if sys.platform == "win32":
        return {"creationflags": NEW_GROUP}
    return {"start_new_session": True}


def handing(end: socket.socket) -> tuple[int, dict[str, Any]]:
    """Return the number by which a child knows this socket, and options of `subprocess` for it."""
    if sys.platform == "win32":
        end.set_inheritable(True)
        handles = {"handle_list": [end.fileno()]}  # of all that can be inherited this one alone
        return end.fileno(), {"startupinfo": subprocess.STARTUPINFO(lpAttributeList=handles)}
    return end.fileno(), {"pass_fds": [end.fileno()]}


def ended(code: int) -> str:
    """Say how a process ended: the signal's name, or its exit code.

    Windows has no signals; codes of its own, such as 0xC0000005 of an access to foreign memory, are
    known by their hexadecimal digits.
    """
    if code < 0:
        return signal.Signals(-code).name
    return f"exit code {code:#010X}".replace("0X", "0x") if code > 255 else f"exit code {code}"


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # macOS and Windows have all cores serve all processes
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_all_cores() -> bool:
    """Say whether this process may use every core; False where the system does not tell."""
    everything = set(range(os.cpu_count() or 1))
    return hasattr(os, "sched_getaffinity") and os.sched_getaffinity(0) == everything


def leave_cores_to_others() -> None:
    """Give this process the lowest priority."""
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernel32")
        kernel.SetPriorityClass(ctypes.c_void_p(kernel.GetCurrentProcess()), BELOW_ALL)
    else:
        os.nice(LOWEST)


def leave_no_core_file() -> None:
    """Let this process die without a copy of its memory on the disk: to die is its answer."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def wait_for_hang_up(number: int) -> None:
    """Return once the other end of the socket with this number is closed.

    Windows tells of a socket's end only with what is read from it: there it is the end of the
    process that started this one.
    """
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernel32")
        kernel.OpenProcess.restype = ctypes.c_void_p
        parent = ctypes.c_void_p(kernel.OpenProcess(MAY_WAIT, False, os.getppid()))
        kernel.WaitForSingleObject(parent, FOR_EVER)
    else:
        import select

        hung_up = select.poll()
        hung_up.register(number, 0)  # tells of a hang-up alone
        hung_up.poll()


def memory_bytes() -> int | None:
    """Return the machine's memory; None where the system does not tell."""
    if sys.platform == "win32":
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def used_bytes() -> int | None:
    """Return this process's memory, on macOS the most it had; None where it is not told."""
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes, KiB elsewhere
    if sys.platform == "win32" or not STATM.exists():
        return None
    pages = int(STATM.read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
