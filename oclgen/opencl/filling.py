"""Fills buffers of any size with a byte, also where a driver's own fill fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

FILLED = 1 << 30
"""Bytes of a buffer that `clEnqueueFillBuffer` fills. NVIDIA's driver 580 fills 1.5 GiB; at 2.5 GiB
it loses the queue, or does not end."""
BLOCK = 64 << 20
"""Bytes that are written from the host at once behind them."""


def fill(queue: Any, buffer: Any, byte: int, size: int, begin: int = 0) -> None:
    """Set `size` bytes of `buffer` from `begin` on; later commands of the queue see them.

    Args:
        queue: a `pyopencl.CommandQueue`, in order.
        buffer: a `pyopencl.Buffer` of at least `begin` + `size` bytes.
        byte: 0 to 255.
        size: bytes to set.
        begin: first byte.

    Raises:
        pyopencl.Error: there is no room for the buffer.
    """
    near = min(size, max(FILLED - begin, 0))
    if near:
        cl.enqueue_fill_buffer(queue, buffer, np.uint8(byte), begin, near)
    block = np.full(min(size - near, BLOCK), byte, np.uint8)
    for first in range(near, size, BLOCK):
        cl.enqueue_copy(queue, buffer, block[: size - first], dst_offset=begin + first)
