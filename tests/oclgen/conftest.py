"""Fixtures of the families' tests."""

from __future__ import annotations

from typing import Any

import pytest

from oclgen.opencl.device import Device
from tests.oclgen.amx_emulated import with_tiles


@pytest.fixture(params=["in C", "own"])
def tiled(request: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device with tiles, in plain C or its own."""
    return with_tiles(device, monkeypatch, request.param == "in C")
