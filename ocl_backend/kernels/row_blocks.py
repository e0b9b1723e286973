"""How work-groups of a GPU share dense rows that they work on in local memory: sorts and scans.

A group has a block of items, which are several short rows, a row, or a part of one.
"""

from __future__ import annotations

from oclgen.limits import Limits

GROUP = 256
"""Work-items of a group."""
SHARE = 8
"""Items of a work-item: they lie in its registers."""
BLOCK = GROUP * SHARE
"""Items of a group."""


def fit(limits: Limits, local_bytes: int) -> bool:
    """Say whether a device has such groups: a processor's work-items walk rows by themselves.

    Args:
        limits: of the device.
        local_bytes: local memory of a group.
    """
    has_room = limits.max_work_group >= GROUP and limits.local_bytes >= local_bytes
    return limits.kind != "cpu" and has_room


def places(size: int) -> int:
    """Return how many places of a block a row of `size` items has, at most all: a power of two."""
    return min(BLOCK, max(SHARE, 1 << (size - 1).bit_length()))
