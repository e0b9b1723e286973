"""The operators of `oclgen check`: right on the devices here, and a wrong one is said."""

from __future__ import annotations

import pytest

from ocl_backend import selftest as of_torch
from oclgen.opencl.device import Device


def test_torchs_operators_are_right_and_wrong_ones_are_said(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"ocl:{device.index}"
    for name in list(of_torch.operators())[device.index % 4 :: 4]:
        error, reason = of_torch.why_wrong(name, place)
        assert not reason, f"{name}: {reason}"
        assert error < of_torch.TOLERANCE
    planted = dict(of_torch.operators())
    planted["exp"] = lambda a: a.exp() + (1e-3 * a.exp() if a.device.type == "ocl" else 0)
    monkeypatch.setattr(of_torch, "operators", lambda: planted)
    assert "off by" in of_torch.why_wrong("exp", place)[1]
