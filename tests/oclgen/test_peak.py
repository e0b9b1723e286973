"""The measured peak is of the right order and is measured once."""

from __future__ import annotations

from typing import Any

import pytest

from oclgen.limits import Limits
from oclgen.measuring import peak
from oclgen.measuring.peak import (
    GROUPS_PER_UNIT,
    MATRIX_DTYPES,
    MATRIX_UNITS,
    NARROW,
    Level,
    Peak,
    by_dtype,
    matrix_gflops,
    measure,
)
from oclgen.opencl import ptx
from oclgen.opencl.device import Device
from oclgen.opencl.probe import FATAL
from oclgen.render import render


def test_peak_is_plausible_and_measured_once(device: Device) -> None:
    peak = measure(device)
    # one core of a CPU of 2005 does 1 GFLOP/s; no device of 2026 passes an exaflop
    assert 1 < peak.gflops < 1e9
    assert 0.5 < peak.gbytes < 1e6
    assert measure(device) is peak


def test_no_loop_is_longer_than_every_driver_runs_it(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rounds took no more time on llvmpipe, and their number grew beyond an int."""
    asked: list[int] = []
    prepare = Device.prepare

    def noted(self: Device, *given: Any, **more: Any) -> Any:
        asked.append(more["scalars"]["steps"])
        return prepare(self, *given, **more)

    monkeypatch.setattr(Device, "prepare", noted)
    assert peak.MOST_STEPS < 65_535
    monkeypatch.setattr(peak, "MOST_STEPS", 5000)
    assert peak._gflops(device, 1, 4) > 0
    assert max(asked) <= 5000


def test_the_best_known_stays_and_load_is_noticed() -> None:
    assert Level(Peak(100, 10)).notice == ""
    assert Level(Peak(100, 10), Peak(80, 12)).best == Peak(100, 12)
    assert Level(Peak(81, 5), Peak(100, 10)).notice == ""
    loaded = Level(Peak(66, 5), Peak(202, 10))
    assert loaded.best == Peak(202, 10)
    assert "peak of 66 GFLOP/s is below 0.8 of the 202 GFLOP/s known" in loaded.notice
    assert "End that work and tune again" in loaded.notice


def test_every_parameter_changes_the_text() -> None:
    base = render("peak_fma", vec=4, chains=4)
    assert "float4 a3 = " in base
    assert base != render("peak_fma", vec=1, chains=4)
    assert base != render("peak_fma", vec=4, chains=5)
    assert "float16 *" in render("peak_copy", vec=16)


def test_matrix_units_are_measured_where_they_are(device: Device) -> None:
    rates = matrix_gflops(device)
    assert bool(rates) == bool({"mma", "wgmma"} & device.limits.instructions)
    assert all(rate > measure(device).gflops for rate in rates.values())


def test_a_dtype_that_no_instruction_is_for_has_the_rate_of_fp32(device: Device) -> None:
    rates = by_dtype(device, 7.0)
    assert rates.get("tf32") == matrix_gflops(device).get("tf32", 7.0)
    of_processors = [name for name in FATAL if "bf16" in NARROW[name]]
    assert ("bf16" in rates) == device.limits.instructions.isdisjoint(of_processors)
    if matrix_gflops(device):
        assert "bf16" not in by_dtype(device, 7.0, known=MATRIX_DTYPES)


@pytest.mark.parametrize("dtype", MATRIX_DTYPES)
def test_matrix_kernels_name_instruction_dtype_and_work(dtype: str) -> None:
    limits = Limits(compute_units=2)
    k = 8 if dtype == "tf32" else 16
    texts = {unit.source(dtype) for unit in MATRIX_UNITS}
    assert len(texts) == len(MATRIX_UNITS)
    for unit in MATRIX_UNITS:
        launch, flops = unit.launch(limits, dtype)
        size = f"m{unit.m}n{unit.n}k{k}"
        assert launch.source.count(size) == unit.chains
        assert flops == 2 * unit.m * unit.n * k * unit.chains * (2 * GROUPS_PER_UNIT)
        assert launch.global_size[0] == 2 * GROUPS_PER_UNIT * unit.group
        assert bool(ptx.target_of(launch.source)) == (unit.instruction == "wgmma")
