"""Tensors of a processor lie in large pages; what they hold does not depend on it."""

from __future__ import annotations

import ctypes
import sys

import pytest
import torch

import ocl_backend  # noqa: F401  (registers the device)
from ocl_backend.runtime import shim
from oclgen.opencl.device import devices


@pytest.mark.skipif(sys.platform != "linux", reason="asked of Linux alone")
def test_tensors_of_processors_lie_in_pages() -> None:
    mapped = shim.library().ocl_mapped_pages
    mapped.restype = ctypes.c_size_t
    for index, device in enumerate(devices()):
        one = torch.arange(1 << 20, device=f"ocl:{index}", dtype=torch.float32)
        assert torch.equal(one.cpu(), torch.arange(1 << 20, dtype=torch.float32))
        if device.limits.kind == "cpu":
            assert mapped() >= one.nbytes
