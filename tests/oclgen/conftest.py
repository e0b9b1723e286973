"""Releases the memory of programs after each file, which adds up to gigabytes in one process."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def released() -> Iterator[None]:
    """Forget the programs that a file built.

    A CPU's compiler frees a program's memory to the C library, which keeps it until it is told to
    trim.
    """
    yield
    device = sys.modules.get("oclgen.opencl.device")
    if device is None:
        return
    for one in device.devices():
        one.forget_programs()
    gc.collect()
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
