"""Skips the folder where there is no OpenCL device: torch's classes ask for it when collected."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from tests import torch_frames

torch_frames.walk()


@pytest.fixture(autouse=True)
def _needs_a_device(any_device: None) -> None:
    """Skip without a device."""
