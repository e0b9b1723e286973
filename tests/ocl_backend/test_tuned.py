"""The choice at dispatch: what is reported, what a variant that fails leads to, what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.dispatch import layouts, prepared_plan, tuned
from oclgen.families import FAMILIES
from oclgen.families.conv import conv_register
from oclgen.limits import Limits
from oclgen.measurement import Measurement
from oclgen.opencl.device import BuildError
from oclgen.problem import ConvProblem, GemmProblem
from oclgen.variant import Variant
from tests.ocl_backend.cpu_twin import place
from tuned_db import open_store


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A database of the test's own, and nothing remembered before or after."""
    path = tmp_path / "tuned.sqlite"
    monkeypatch.setenv("OCLGEN_DB", str(path))
    torch.ocl.reload_tuned()
    yield path
    monkeypatch.undo()
    torch.ocl.reload_tuned()


def factors(device: Any, m: int = 6, n: int = 5, k: int = 7) -> tuple[Any, Any]:
    return torch.randn(m, k).to(place(device)), torch.randn(k, n).to(place(device))


def test_explain_names_operator_problem_variant_and_rung(device: Any) -> None:
    a, b = factors(device)

    def twice_and_once() -> Any:
        torch.mm(a, b)
        torch.mm(a, b)
        return torch.conv2d(a.view(1, 1, 6, 7), b.view(1, 1, 7, 5)[:, :, :3, :3])

    report = torch.ocl.explain(twice_and_once)
    mm, conv = report.rows
    assert (mm.calls, mm.operator, mm.problem) == (2, "mm", "gemm:6x5x7:fp32:nn:b1:-:-:none")
    assert (conv.calls, conv.operator) == (1, "convolution_overrideable")
    assert set(json.loads(mm.config)) and mm.family in FAMILIES
    assert report.result.shape == (1, 1, 4, 5)
    assert all(text in str(report) for text in (mm.problem, conv.problem, mm.family, "rung"))


@pytest.mark.parametrize(
    ("kind", "planes_step", "rung", "planes_cost", "expected"),
    [
        ("gpu", 6, "guess", 0.99, "nhwc"),  # copies of 8 MB are slower than that
        ("gpu", 6, "guess", 0.90, "nhwc"),  # and a prediction may be as wrong as that
        ("gpu", 6, "guess", 0.80, "nchw"),
        ("gpu", 3, "nearest", 0.99, "nchw"),
        ("cpu", 6, "guess", 0.90, "nhwc"),  # on ten cores they take longer
        ("cpu", 5, "shipped", 0.99, "nhwc"),  # what served planes there is no time of pixels
        ("cpu", 5, "shipped", 0.10, "nchw"),  # but may be as fast as that
        ("cpu", 3, "nearest", 0.99, "nchw"),  # what was measured here decides
        ("gpu", 5, "shipped", 0.99, "nchw"),  # a family of CPUs serves neither
    ],
)
def test_a_layout_is_chosen_with_the_copies_that_it_takes(
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    planes_step: int,
    rung: str,
    planes_cost: float,
    expected: str,
) -> None:
    variant = Variant("conv_register", conv_register.DEFAULT)

    class Known:
        limits = Limits(kind=kind, compute_units=10)

        def choose(self, problem: ConvProblem) -> Any:
            in_pixels = problem.layout == "nhwc"
            order = (6, 1.0) if in_pixels else (planes_step, planes_cost)
            return SimpleNamespace(
                order=order,
                step=order[0],
                cost=order[1],
                ms=None,
                rung=rung,
                variant=variant,
                beaten=None,
            )

    monkeypatch.setattr(tuned, "chooser", lambda device: Known())
    planes = ConvProblem(1, 32, 128, 128, 32, 3, 3, 1, 1, 1, 1)
    pixels = replace(planes, layout="nhwc")
    assert layouts.better_known(0, pixels, planes).layout == expected


def test_explain_sees_the_backward_pass_too(device: Any) -> None:
    layer = torch.nn.Conv2d(2, 3, 3).to(place(device))
    x = torch.randn(1, 2, 5, 5).to(place(device)).requires_grad_()
    report = torch.ocl.explain(lambda: layer(x).sum().backward())
    directions = [row.problem.split(":")[-3] for row in report.rows]
    assert directions == ["fwd", "bwd_data", "bwd_weights"]
    assert torch.ocl.explain(lambda: None).rows == ()


def test_a_record_is_chosen_and_said_to_be_exact(device: Any) -> None:
    problem, family = GemmProblem(6, 5, 7), FAMILIES["gemm_register"]
    variant = Variant(family.NAME, family.DEFAULT)
    mine = open_store().of(device.info)
    mine.record(problem, variant, Measurement(samples=(0.001,), error=0.0))
    torch.ocl.reload_tuned()
    a, b = factors(device)
    (row,) = torch.ocl.explain(torch.mm, a, b).rows
    assert (row.rung, row.family) == ("exact", family.NAME)
    assert row.config == variant.to_json()
    assert (row.measured_ms, row.predicted_ms) == (0.001, None)
    torch.testing.assert_close(torch.mm(a, b).cpu(), a.cpu() @ b.cpu(), rtol=1e-5, atol=1e-5)


def test_a_variant_that_does_not_build_gives_way_to_the_next(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = list[object]()
    build = prepared_plan.prepare_plan

    def fails_at_first(*args: Any) -> Any:
        if not failed:
            failed.append(args)
            raise BuildError("the compiler crashed")
        return build(*args)

    monkeypatch.setattr(tuned, "prepare_plan", fails_at_first)
    a, b = factors(device)
    with pytest.warns(UserWarning, match="does not build and the next best is taken"):
        product = torch.mm(a, b)
    torch.testing.assert_close(product.cpu(), a.cpu() @ b.cpu(), rtol=1e-5, atol=1e-5)


def test_a_damaged_database_is_warned_of_and_not_used(device: Any, database: Path) -> None:
    database.write_bytes(b"no database at all" * 100)
    a, b = factors(device)
    with pytest.warns(UserWarning, match="shipped and default variants"):
        product = torch.mm(a, b)
    torch.testing.assert_close(product.cpu(), a.cpu() @ b.cpu(), rtol=1e-5, atol=1e-5)


def test_a_problem_is_prepared_once(device: Any) -> None:
    a, b = factors(device)
    torch.mm(a, b)
    before = tuned.tuned_call.cache_info().misses
    torch.mm(a, b)
    torch.mm(b.t(), a.t())
    assert tuned.tuned_call.cache_info().misses == before + 1


def test_a_bound_on_errors_keeps_winograd_out(device: Any) -> None:
    x, w = torch.randn(1, 3, 9, 9).to(place(device)), torch.randn(4, 3, 3, 3).to(place(device))
    try:
        torch.ocl.set_conv_accuracy(1e-9)
        report = torch.ocl.explain(torch.conv2d, x, w)
    finally:
        torch.ocl.set_conv_accuracy(None)
    assert not report.rows[0].family.startswith("winograd")
    with pytest.raises(ValueError, match=r"accuracy of 0\.0 is unreachable"):
        torch.ocl.set_conv_accuracy(0.0)
