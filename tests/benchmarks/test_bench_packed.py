"""The table of packed weights: rates of a small product beside the read rate, verified first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.costs import packed
from oclgen.measuring import peak
from oclgen.opencl.device import Device
from oclgen.problem import PackedProblem
from tuned_db import Chooser


def test_a_product_is_verified_and_timed_beside_a_read(device: Device) -> None:
    problem = PackedProblem(2, 64, 512, "fp32", "q8_0")
    row = packed.measure(device, Chooser(None, device.info, device.limits), problem)
    assert row.problem == problem.key()
    assert row.ratio == row.gbytes / row.read > 0
    assert row.of_limit >= row.ratio
    assert problem.key() in packed.table([row])


def test_the_read_covers_what_it_is_compared_to(device: Device) -> None:
    plan, size = peak.reading(device, 2**20)
    assert 0.9 * 2**20 <= size <= 2**20
    assert plan.run() > 0


def test_rows_are_kept(
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(packed, "SIZES", dict.fromkeys(packed.SIZES, (32, 256)))
    monkeypatch.setattr(packed, "open_store", lambda: None)
    monkeypatch.setattr(packed, "select", lambda name: device)
    packed.main("0", [1, 8], ["q4_0"], "bf16", tmp_path / "rows.json")
    kept = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["problem"] for row in kept] == [
        "packed:1x32x256:bf16:q4_0", "packed:8x32x256:bf16:q4_0",
    ]  # fmt: skip
    assert "packed:8x32x256" in capsys.readouterr().out
