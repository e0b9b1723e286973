"""Local memory that a kernel's text may declare on NVIDIA's GPUs: more than their OpenCL reports.

The driver reports 48 KiB, and refuses a launch whose arguments ask for more. But its compiler takes
a `__local` array of all that CUDA allows a block (CUDA C++ Programming Guide, "Technical
specifications per compute capability"), less the 1 KiB that it keeps for itself, and the kernel
runs: 226 KiB on an H200 (driver 580, OpenCL 3.0). `oclgen.opencl.device` asks each device by a
kernel that writes and reads so much in work-groups that run side by side.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oclgen.limits import KIB, DeviceInfo
from oclgen.plan import Launch, Plan, buffer

MOST_KIB = {
    "nvidia sm_70": 96, "nvidia sm_72": 96, "nvidia sm_75": 64, "nvidia sm_80": 163,
    "nvidia sm_86": 99, "nvidia sm_87": 163, "nvidia sm_89": 99, "nvidia sm_90": 227,
    "nvidia sm_100": 227, "nvidia sm_103": 227, "nvidia sm_120": 99, "nvidia sm_121": 99,
}  # fmt: skip
"""Shared memory of a block in KiB, by architecture."""
RESERVED_KIB = 1
ITEMS, GROUPS = 64, 512
"""Of the kernel that asks: groups enough for each compute unit to have several in turn."""


def worth_asking(info: DeviceInfo) -> int:
    """Return the bytes that such a device may let a kernel declare; 0: no more than it reports."""
    return KIB * max(MOST_KIB.get(info.architecture, 0) - RESERVED_KIB, 0)


def probe(size: int) -> Plan:
    """Return the plan whose work-groups fill `size` bytes of local memory, and read them back.

    Args:
        size: bytes, a multiple of 4.
    """
    from oclgen.render import render  # mako takes a tenth of a second, and builders need none

    text = render("probe_declared", words=size // 4, items=ITEMS)
    shape = (ITEMS * GROUPS,), (ITEMS,)
    return Plan((Launch(text, "probe_declared", *shape, buffer("out"), local_bytes=size),))


def answer(size: int) -> NDArray[np.float32]:
    """Return what `probe` writes where all is well: how many words each work-item found right."""
    words = size // 4
    each = [len(range(item, words, ITEMS)) for item in range(ITEMS)]
    return np.tile(np.array(each, np.float32), GROUPS)
