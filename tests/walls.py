"""Buffers without memory behind them, which show what a kernel reads there.

Between the zones of `oclgen.measuring.canary` such a read passes unseen. A user's buffer may be the
last of its memory: there it ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from oclgen.measuring import canary
from oclgen.measuring.canary import CANARY, GUARD, POISON, Guarded
from oclgen.opencl.device import Device

PROT_NONE = 0
"""No access, as `mprotect` of POSIX has it."""
RUSTICL = "rusticl"
"""Mesa's runtime, as the platform names it."""
_between_zones = canary.guarded


@dataclass(frozen=True)
class Walled(Guarded):
    """A buffer behind one zone, with a wall behind it."""

    def restore(self) -> None:
        """Fill the buffer as it was at first and write its zone anew."""
        self.device.fill(self.whole, CANARY, GUARD)
        self.device.fill(self.whole, self.content, self.size, GUARD)

    def damage(self) -> str:
        """Say how much of the zone was overwritten; "" if it is whole."""
        zone = self.device.download(self.whole, np.empty(GUARD, np.uint8))
        count = int(np.count_nonzero(zone != CANARY))
        return f"{count} bytes before {self.role}" if count else ""


@dataclass(frozen=True)
class Alone(Guarded):
    """A buffer that is the whole of its memory, for a simulator that knows its ends."""

    def restore(self) -> None:
        """Fill the buffer as it was at first."""
        self.device.fill(self.whole, self.content, self.size)

    def damage(self) -> str:
        """Say nothing: the simulator does."""
        return ""


def before_a_wall(size: int) -> NDArray[np.uint8]:
    """Return an array of bytes whose last one is the last of its page; the next has no access.

    Raises:
        OSError: the system does not take the access away.
    """
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    wall = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + pages
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(ctypes.c_void_p(wall), ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return np.frombuffer(memory, np.uint8, size, pages - size)


def walled(device: Device, role: str, size: int, content: int = POISON) -> Guarded:
    """Return a buffer as `canary.guarded` does; on a processor with a wall behind it.

    It ends where the wall begins, so it begins at any element, as a view of a tensor does. On
    rusticl kernels that are right elsewhere end the process at a wall, so it has none there.
    """
    is_processor = device.handle.type & cl.device_type.CPU
    if not is_processor or device.info.runtime == RUSTICL:
        return _between_zones(device, role, size, content)
    size = max(size, 1)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR  # neither Intel nor PoCL copies
    whole = cl.Buffer(device.context, flags, hostbuf=before_a_wall(GUARD + size))
    return _filled(Walled(device, role, size, whole, whole.get_sub_region(GUARD, size), content))


def alone(device: Device, role: str, size: int, content: int = POISON) -> Guarded:
    """Return a buffer as `canary.guarded` does, without zones."""
    whole = device.empty(max(size, 1))
    return _filled(Alone(device, role, max(size, 1), whole, whole, content))


def _filled(buffer: Guarded) -> Guarded:
    buffer.restore()
    return buffer
