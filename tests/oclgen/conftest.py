"""Fixtures of the families' tests."""

from __future__ import annotations

from typing import Any

import pytest

from oclgen.measuring import measure
from oclgen.opencl.device import Device
from tests import walls
from tests.oclgen.amx_emulated import with_tiles


@pytest.fixture(autouse=True)
def walled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variants are measured with a wall behind each buffer: one that reads on ends the process."""
    monkeypatch.setattr(measure, "guarded", walls.walled)


@pytest.fixture(params=["in C", "own"])
def tiled(request: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device with tiles, in plain C or its own."""
    return with_tiles(device, monkeypatch, request.param == "in C")
