"""The example without torch, as it is."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from tests.home import ROOT


def test_the_example_without_torch_computes_a_product(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oclgen.opencl.device.select", lambda _: device)
    found = runpy.run_path(str(ROOT / "examples/gemm_without_torch.py"))
    assert found["c"].shape[-2:] == (300, 500)
    assert found["error"] < 1e-3
