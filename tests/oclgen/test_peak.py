"""The measured peak is of the right order and is measured once."""

from __future__ import annotations

import time

from oclgen.device import Device
from oclgen.peak import measure
from oclgen.render import render


def test_peak_is_plausible_and_measured_once(device: Device) -> None:
    peak = measure(device)
    # one core of a CPU of 2005 does 1 GFLOP/s; no device of 2026 passes an exaflop
    assert 1 < peak.gflops < 1e9
    assert 0.5 < peak.gbytes < 1e6
    start = time.perf_counter()
    assert measure(device) is peak
    assert time.perf_counter() - start < 0.01


def test_every_parameter_changes_the_text() -> None:
    base = render("peak_fma", vec=4, chains=4)
    assert "float4 a3 = " in base
    assert base != render("peak_fma", vec=1, chains=4)
    assert base != render("peak_fma", vec=4, chains=5)
    assert "float16 *" in render("peak_copy", vec=16)
