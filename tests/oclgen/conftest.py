"""Forgets the programs of each file: what its plans are built to, no other file runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """Let go of the programs that a file built."""
    yield
    device = sys.modules.get("oclgen.opencl.device")
    if device is None:
        return
    for one in device.devices():
        one.programs.forget()
