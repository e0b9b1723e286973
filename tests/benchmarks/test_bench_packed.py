"""The table of packed weights: rates of a small product beside the read rate, verified first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.costs import packed
from oclgen.families.packed import packed_lanes
from oclgen.measuring import measure, peak
from oclgen.opencl.device import Device, PreparedPlan
from oclgen.problem import PackedProblem
from oclgen.variant import Variant
from tuned_db import Chooser
from tuned_db.choosing.choice import Choice


def test_a_product_is_verified_and_timed_beside_a_read(device: Device) -> None:
    problem = PackedProblem(2, 64, 512, "fp32", "q8_0")
    row = packed.measure(device, Chooser(None, device.info, device.limits), problem)
    assert row.problem == problem.key()
    assert row.ratio == row.gbytes / row.read > 0
    assert row.of_limit >= row.ratio
    assert problem.key() in packed.table([row])


def test_launches_of_weights_alone_are_not_timed(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = PackedProblem(1, 64, 512)
    ran, run = [], PreparedPlan.run
    lanes = Variant("packed_lanes", packed_lanes.DEFAULT)

    def seen(self: PreparedPlan) -> float:
        ran.append([launch.kernel for _, launch in self.steps])
        return run(self)

    chooser = Chooser(None, device.info, device.limits)
    chosen = Choice(problem, lanes, "guess", None, "", 0)
    monkeypatch.setattr(chooser, "choose", lambda _: chosen)
    monkeypatch.setattr(PreparedPlan, "run", seen)
    packed.measure(device, chooser, problem)
    assert ran.count([packed_lanes.PACK, packed_lanes.NAME]) == 2  # verified, and kept
    assert ran.count([packed_lanes.NAME]) >= packed.TURNS


def test_cold_caches_hold_other_bytes_before_each_launch(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reading = [], peak.reading

    def seen(device: Device, size: int) -> tuple[PreparedPlan, int]:
        read.append(size)
        return reading(device, size)

    monkeypatch.setattr(measure, "FLUSH_BYTES", 2**20)
    monkeypatch.setattr(peak, "reading", seen)
    problem, chooser = (
        PackedProblem(1, 64, 512, "fp32", "q8_0"), Chooser(None, device.info, device.limits),
    )  # fmt: skip
    packed.measure(device, chooser, problem)
    assert read == [problem.bytes]
    packed.measure(device, chooser, problem, is_cold=True)
    assert read[1:] == [problem.bytes, measure.Flush.bytes_of(device)]


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
    monkeypatch.setattr(packed, "MOST_WEIGHTS", dict.fromkeys(packed.MOST_WEIGHTS, 2**19))
    path = tmp_path / "rows.json"
    packed.main(packed.Options("0", [1, 8], ["q4_0"], "bf16", 2, 7, cold=False, path=path))
    kept = json.loads(path.read_text())["rows"]
    assert [row["problem"] for row in kept if not row["drawn"]] == [
        "packed:1x32x256:bf16:q4_0", "packed:8x32x256:bf16:q4_0",
    ]  # fmt: skip
    by_seed = [row["problem"] for row in kept if row["drawn"]]
    assert by_seed == [one.key() for one in packed.drawn(7, 2, ["q4_0"], "bf16", 2**19)]
    printed = capsys.readouterr().out
    assert "packed:8x32x256" in printed
    assert "chosen by a seed: " in printed


def test_a_seed_draws_other_sizes_rows_and_formats() -> None:
    found = packed.drawn(3, 20, ["q4_0", "int8"], "fp16", 2**22)
    assert found[:5] == packed.drawn(3, 5, ["q4_0", "int8"], "fp16", 2**22)
    assert found != packed.drawn(4, 20, ["q4_0", "int8"], "fp16", 2**22)
    assert {one.m for one in found} <= set(range(1, packed.MOST_ROWS + 1))
    assert {one.format for one in found} == {"q4_0", "int8"}
    assert all(one.n * one.k <= 2**22 for one in found)
