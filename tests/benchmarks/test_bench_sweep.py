"""The sweep draws every class of convolutions and products, and both sides make the same call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from benchmarks.comparison.sweep import WORST, below, drawn_again, least, worst
from benchmarks.report.rows import Result, Row, load
from benchmarks.tasks import sweep
from benchmarks.tasks.sweep import Layer, Product
from benchmarks.tasks.sweep_calls import call
from oclgen.keys import parse_key
from oclgen.limits import DeviceInfo, Limits
from oclgen.roofline import Roofs

ROOT = Path(__file__).parents[2]
GPU = Limits(kind="gpu", instructions=frozenset({"mma"}))
MIB = 2.0**20
LAYER = Layer("3x3", "fwd", "fp32", (2, 6, 9, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), groups=2)


def test_a_case_of_each_class_comes_before_the_second_of_any() -> None:
    every = sweep.classes(("fp32", "bf16", "fp16", "tf32"))
    cases = sweep.drawn(1, len(every) + 20, GPU, 256 * MIB)
    drawn = [sweep.Class(case.direction, case.dtype, case.kind) for case in cases]
    assert set(drawn[: len(every)]) == set(every)
    assert len(set(cases)) == len(cases)
    assert cases[:50] == sweep.drawn(1, 50, GPU, 256 * MIB)
    assert cases != sweep.drawn(2, len(cases), GPU, 256 * MIB)
    assert ("bwd_data", "fp32", "first") not in every


def test_cases_are_of_all_shapes_and_none_is_too_large_or_too_small() -> None:
    cases = sweep.drawn(3, 400, GPU, 64 * MIB)
    assert all(case.exists and case.bytes <= 64 * MIB for case in cases)
    assert all(case.flops <= sweep.MOST_FLOPS["gpu"] for case in cases)
    least = (sweep.MOST_FLOPS["gpu"] / sweep.LEAST, MIB)
    assert all(case.flops >= least[0] or case.bytes >= least[1] for case in cases)
    layers = [case for case in cases if isinstance(case, Layer)]
    assert {len(layer.stride) for layer in layers} == {1, 2, 3}
    assert {1, 2, 4, 32} <= {layer.groups for layer in layers}
    assert {max(layer.w[2:]) for layer in layers} >= {1, 2, 3, 5, 7, 9, 11}
    assert {layer.layout for layer in layers} == {"planes", "channels_last"}
    times = {layer.w[0] // layer.groups for layer in layers if "depthwise" in layer.kind}
    assert len(times) > 1
    assert any(size % 2 for layer in layers for size in layer.x[2:])
    products = [case for case in cases if isinstance(case, Product)]
    assert len({product.trans for product in products}) == 4
    assert {product.is_shared for product in products} == {True, False}
    assert any(product.gap for product in products)


def test_devices_without_matrix_units_get_no_tf32_and_smaller_cases() -> None:
    cases = sweep.drawn(1, 150, Limits(kind="cpu"), 32 * MIB)
    assert {case.dtype for case in cases} == {"fp32", "bf16", "fp16"}
    assert max(case.flops for case in cases) <= sweep.MOST_FLOPS["cpu"]


def test_a_distribution_that_runs_dry_says_so() -> None:
    with pytest.raises(ValueError, match="there are 0 cases, not 5: ask for fewer"):
        sweep.drawn(1, 5, GPU, 1.0)


@pytest.mark.parametrize(
    "case",
    [
        LAYER,
        replace(LAYER, is_last=True, stride=(2, 1), dilation=(1, 2)),
        Layer("1-d", "fwd", "fp32", (2, 6, 20), (4, 6, 5), (2,), (3,), (1,)),
        Layer("3-d", "fwd", "fp32", (1, 2, 5, 6, 7), (3, 2, 3, 1, 2), (1,) * 3, (1,) * 3, (1,) * 3),
        replace(LAYER, w=(6, 2, 3, 3), stride=(2, 3), is_transposed=True),
    ],
    ids=Layer.key,
)  # fmt: skip
def test_layers_are_called_as_they_are_described(case: Layer) -> None:
    result = call(case, "cpu")()
    assert isinstance(result, torch.Tensor)
    assert tuple(result.shape) == case.y
    if case.is_last:
        assert result.is_contiguous(memory_format=torch.channels_last)
    for direction, shape in (("bwd_data", case.x), ("bwd_weights", case.w)):
        gradients = call(replace(case, direction=direction), "cpu")()
        found = [tuple(each.shape) for each in gradients if each is not None]  # type: ignore[attr-defined]
        assert found == [shape]


@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("more", [{}, {"batch": 3}, {"batch": 3, "is_shared": True}, {"gap": 8}])
def test_products_are_called_as_they_are_described(
    trans: tuple[bool, bool], more: dict[str, int]
) -> None:
    case = Product("large", "bf16", 5, 6, 7, trans=trans, **more)  # type: ignore[arg-type]
    result = call(case, "cpu")()
    assert isinstance(result, torch.Tensor)
    assert tuple(result.shape[-2:]) == (5, 6)
    assert result.dtype is torch.bfloat16
    assert result.dim() == (3 if case.batch > 1 else 2)


def test_operations_are_those_that_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for case in (LAYER, replace(LAYER, w=(6, 2, 3, 3), stride=(2, 2), is_transposed=True)):
        with FlopCounterMode(display=False) as counted:
            call(case, "cpu")()
        assert counted.get_total_flops() == case.flops


def test_the_worst_rows_come_first_with_what_served_them() -> None:
    device = DeviceInfo("d", "v", "cpu", "a", "r", "1", "2", 1)
    config = json.dumps([["gemm:8x8x8:fp32:nn:b1:-:-:none", "{}"]])
    rows = tuple(
        Row("sweep", f"case {at}", ("all",), ours_ms=at + 1.0, peers={"torch": 2.0},
            variant="gemm_register, guess", config=config, tuned=(0, 1))
        for at in range(WORST + 3)
    )  # fmt: skip
    result = Result(device, {}, {"torch": "torch"}, Roofs(1.0, 1.0, {}), rows=rows)
    lines = worst(result).splitlines()
    assert len(lines) == 2 + WORST
    assert lines[2] == (
        "| 0.087 | 23.0000 | case 22 | gemm_register, guess `gemm:8x8x8:fp32:nn:b1:-:-:none` | no |"
    )


def test_slow_cases_are_measured_again_and_each_side_s_least_time_counts() -> None:
    device = DeviceInfo("d", "v", "cpu", "a", "r", "1", "2", 1)
    row = Row("sweep", "case", ("all",), ours_ms=4.0, peers={"torch": 2.0})
    others = (
        replace(row, key="fast", ours_ms=1.0), replace(row, key="failed", ours_ms=None),
        replace(row, kind="gemm"),
    )  # fmt: skip
    result = Result(device, {}, {"torch": "torch"}, Roofs(1.0, 1.0, {}), rows=(row, *others))
    assert below(0.7, result) == {row.name: row}
    again = replace(row, ours_ms=1.5, peers={"torch": 3.0})
    assert (least(row, again).ours_ms, least(row, again).peers) == (1.5, {"torch": 2.0})
    assert least(again, row).ours_ms == 1.5
    failed = replace(row, ours_ms=None, reason="died")
    assert least(row, failed) == failed


def test_slow_cases_of_another_draw_are_named() -> None:
    made = list(sweep.tasks(1, 5, GPU, 256 * MIB))
    slow = {(task.kind, task.key) for task in made[3:]}
    assert drawn_again(made, slow) == made[3:]
    with pytest.raises(ValueError, match="2 of 2 slow cases are not among the 3 that are drawn"):
        drawn_again(made[:3], slow)


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("any_device")
@pytest.mark.parametrize("of_operators", [False, True])
def test_the_command_measures_both_sides_and_says_what_served(
    of_operators: bool, tmp_path: Path
) -> None:
    asked = ["sweep", "--seed", "5", "--cases", "2", "--most-mib", "2", "--builders", "1"]
    asked += ["--operators"] * of_operators
    command = [sys.executable, "-m", "benchmarks", *asked, "--json", "rows.json"]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "Drawn by --seed 5." in done.stdout
    assert "| torch / ours | ours, ms |" in done.stdout
    rows = load(tmp_path / "rows.json").rows
    again = subprocess.run(
        [*command, "--again", "1e9"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert "[2/2]" in again.stdout
    repeated = load(tmp_path / "rows.json").rows
    assert [row.key for row in repeated] == [row.key for row in rows]
    assert all(
        (now.ours_ms or 0) <= (row.ours_ms or 0) for now, row in zip(repeated, rows, strict=True)
    )
    assert len(rows) == 2
    for row in rows:
        assert row.reason == ""
        assert row.ratio("torch")
        served = json.loads(row.config or "[]")
        assert served or of_operators
        assert bool(row.tuned and row.tuned[1] >= 1) == bool(served)
        for problem, _ in served:
            assert parse_key(problem).key() == problem
