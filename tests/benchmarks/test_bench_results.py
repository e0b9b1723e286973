"""Rows survive their file, a later run goes on with them, and reports and plots show them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.report import text as report
from benchmarks.report.plot import draw
from benchmarks.report.rows import LEFT_OUT, Result, ResultError, Row, geometric_mean, load, worst
from oclgen.limits import DeviceInfo
from oclgen.roofline import COPY, MULTIPLY_ADD, Roofs

DEVICE = DeviceInfo("A100", "NVIDIA", "gpu", "nvidia sm_80", "CUDA", "OpenCL 3.0", "550.1", 108)
ROOFS = Roofs(gflops=20_000.0, gbytes=1500.0, matrix={"bf16": 300_000.0})
SQUARES = tuple(
    Row(
        "gemm", f"{size}x{size}x{size}:{dtype}:nn:b1:-:-:none", (f"squares {dtype}",), dtype,
        2.0 * size**3, 3 * 4.0 * size**2, 0.5, {"torch": 0.25, "CLBlast": 1.0}, "gemm_staged", "{}",
        3e-7,
    )
    for size in (256, 512, 1024)
    for dtype in ("fp32", "bf16")
)  # fmt: skip
FAILED = Row("conv", "1,3,8,8,4,3,3", ("odd fwd",), reason="torch: OutOfMemoryError: no 2 GB")
LATE = Row("pointwise", "relu", ("pointwise",), reason=f"{LEFT_OUT}: the budget was over")
RESULT = Result(
    DEVICE, {"torch": "2.13"}, {"torch": "torch 2.13 A100"}, ROOFS, "alone", (*SQUARES, FAILED)
)


def test_rows_survive_their_file_and_a_row_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    RESULT.save(path)
    assert load(path) == RESULT
    drawn = replace(RESULT, rows=(replace(SQUARES[0], seed=7, tuned=(0, 1)),))
    drawn.save(path)
    assert load(path) == drawn
    RESULT.save(path)
    assert sum('"kind": "gemm"' in line for line in path.read_text().splitlines()) == len(SQUARES)
    assert '"ratios": {"torch": 0.5, "CLBlast": 2.0}' in path.read_text()
    assert list(path.parent.iterdir()) == [path]


def test_a_later_run_replaces_what_it_measured(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    RESULT.save(path)
    busy = Roofs(gflops=10_000.0, gbytes=1800.0, matrix={})
    later = replace(RESULT, rows=(), note="second", roofs=busy).resumed(path)
    assert later.rows == RESULT.rows
    assert later.roofs == Roofs(20_000.0, 1800.0, {"bf16": 300_000.0})
    better = replace(SQUARES[0], ours_ms=0.1)
    assert later.with_row(better).rows == (better, *RESULT.rows[1:])
    assert later.note == "second"
    assert later.has("gemm", SQUARES[0].key)
    assert not later.has("conv", FAILED.key)


def test_a_row_left_out_replaces_nothing_and_a_failure_does() -> None:
    none = replace(SQUARES[0], ours_ms=None, reason=f"{LEFT_OUT}: no time")
    assert RESULT.with_row(none) == RESULT
    assert RESULT.with_row(LATE).rows[-1] == LATE
    worse = replace(none, reason="ours: its process ended with code -11")
    assert RESULT.with_row(worse).rows[0] == worse


def test_rows_of_another_device_are_refused_and_of_another_torch_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    RESULT.save(path)
    with pytest.raises(ResultError, match=r"driver_version='550.1'.*Name another file"):
        replace(RESULT, device=replace(DEVICE, driver_version="560.2")).resumed(path)
    assert replace(RESULT, rows=(), versions={"torch": "2.14"}).resumed(path).rows == ()
    assert replace(RESULT, rows=(), peers={"torch": "torch 2.14"}).resumed(path).rows == ()
    more = replace(RESULT, rows=(), peers={"CLBlast": "libclblast.so.1"}).resumed(path)
    assert (more.rows, set(more.peers)) == (RESULT.rows, {"torch", "CLBlast"})
    assert replace(RESULT, rows=()).resumed(tmp_path / "none.json").rows == ()


def test_the_roof_is_the_one_that_takes_longest() -> None:
    roof = ROOFS.over(2e9, 1e6, "fp32")
    assert roof.name == MULTIPLY_ADD
    assert roof.ms == pytest.approx(0.1)
    copied = ROOFS.over(2e9, 1.5e9, "fp32")
    assert copied.name == COPY
    assert copied.ms == pytest.approx(1.0)
    on_units = ROOFS.over(3e9, 1e6, "bf16")
    assert on_units.name == "bf16 matrix units"
    assert on_units.ms == pytest.approx(0.01)
    assert ROOFS.over(3e9, 1e6, "fp16").name == MULTIPLY_ADD


def test_the_report_shows_means_rows_and_failures() -> None:
    tuned = [(0, 1), (1, 1), (2, 53), (0, 1), (1, 1), (1, 1)]
    seeds = [7, None, 9, None, None, None]
    rows = (
        replace(row, tuned=of, seed=seed)
        for row, of, seed in zip(SQUARES, tuned, seeds, strict=True)
    )
    result = replace(RESULT, rows=(*rows, FAILED, LATE))
    text = report.markdown(result, Path("docs/a.svg"))
    assert "A100, CUDA, OpenCL 3.0, driver 550.1" in text
    assert "bf16 300; copies 1500 GB/s" in text
    assert "Note: alone" in text
    assert "![Parts of the measured peak over size](a.svg)" in text
    assert "| squares bf16 | 3 | 2 | 0.50 | 0.50 | 2.00 | 2.00 | 0% | 0% |" in text
    assert "Seeds of the drawn shapes: 7, 9." in text
    row = next(line for line in text.splitlines() if line.startswith("| 1024x1024x1024:fp32"))
    assert row.count("|") == 12
    assert row.endswith("| gemm_staged | yes | 3e-07 |")
    assert sum(line.endswith("| no | 3e-07 |") for line in text.splitlines()) == 2
    assert sum(line.endswith("| 2 of 53 | 3e-07 |") for line in text.splitlines()) == 1
    assert "4.29 TFLOP/s" not in row  # 2.1 GFLOP in 0.5 ms
    assert "| 4295 GFLOP/s | 21% of fp32 multiply-add | 0.25 | 0.50 | 1 | 2.00 |" in row
    assert "- 1,3,8,8,4,3,3: torch: OutOfMemoryError: no 2 GB" in text
    assert "1 more were left out for lack of time" in text


def test_the_worst_row_of_a_group_is_shown_beside_its_mean() -> None:
    slow = replace(SQUARES[0], key="8x8x8", ours_ms=5.0, tuned=(0, 1))
    lines = report.means(replace(RESULT, rows=(*SQUARES, slow))).splitlines()
    (line,) = (line for line in lines if line.startswith("| squares fp32"))
    assert line.startswith("| squares fp32 | 4 | 0 | 0.28 | 0.05 | 1.12 | 0.20 |")
    assert worst([2.0, None, 0.5]) == 0.5
    assert worst([None]) is None


def test_geometric_means_know_what_is_missing() -> None:
    assert geometric_mean([2.0, None, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([None]) is None


def test_the_plot_is_small_text_and_the_same_every_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        draw(RESULT, path)
    text = paths[0].read_text()
    assert text == paths[1].read_text()
    assert len(text.splitlines()) < 600
    assert all(
        word in text for word in (">fp32, 100", ">bf16, 100 % = 300 T", ">1024<", ">CLBlast<")
    )
    draw(replace(RESULT, rows=(FAILED,)), tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
