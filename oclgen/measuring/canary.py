"""Buffers between two guard zones, which show whether a kernel wrote outside of them.

`oclgen.measuring.measure` fills the buffers and checks what kernels write into them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oclgen.opencl.device import Device

GUARD = 4096
"""Bytes of a zone: a page, so that no device aligns the buffer after it otherwise than before."""
CANARY, POISON = 0xA7, 0xFF
"""Bytes in the zones, and those in a buffer before it is written: NaN in fp32, fp16 and bf16."""
POISON_OF_SUMS = 0x80
"""The same for int32, which has no NaN: no sum of 131,072 products of int8 is as low."""


@dataclass(frozen=True)
class Guarded:
    """A buffer of `size` bytes inside of a larger one; kernels are given `region` alone."""

    device: Device
    role: str
    size: int
    whole: Any
    region: Any
    content: int = POISON

    def restore(self) -> None:
        """Fill the buffer as it was at first and write its zones anew."""
        self.device.fill(self.whole, CANARY, GUARD)
        self.device.fill(self.whole, self.content, self.size, GUARD)
        self.device.fill(self.whole, CANARY, GUARD, GUARD + self.size)

    def damage(self) -> str:
        """Say how much of the zones was overwritten; "" if they are whole."""
        like = np.empty(GUARD, np.uint8)
        found = []
        for place, begin in (("before", 0), ("behind", GUARD + self.size)):
            zone = self.device.download(self.whole, like, begin)
            if count := int(np.count_nonzero(zone != CANARY)):
                found.append(f"{count} bytes {place} {self.role}")
        return " and ".join(found)

    def changed(self) -> int:
        """Return how many bytes of the buffer are no longer what it was filled with."""
        stored = self.device.download(self.region, np.empty(self.size, np.uint8))
        return int(np.count_nonzero(stored != self.content))


def guarded(device: Device, role: str, size: int, content: int = POISON) -> Guarded:
    """Return a buffer of `size` bytes `content` between two zones.

    Args:
        device: where the buffer lies.
        role: names the buffer in a report.
        size: bytes between the zones; 0 counts as 1.
        content: byte that fills it, 0 to 255.

    Raises:
        LaunchError: there is no room for it.
    """
    size = max(size, 1)
    whole = device.empty(size + 2 * GUARD)
    buffer = Guarded(device, role, size, whole, whole.get_sub_region(GUARD, size), content)
    buffer.restore()
    return buffer
