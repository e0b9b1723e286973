"""Kernels and their device times: in torch's two profilers, a Chrome trace and our own table."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from tests.ocl_backend.cpu_twin import place


def test_torchs_profiler_shows_kernels_under_their_operators(device: Any, tmp_path: Path) -> None:
    a = torch.rand(64, 64).to(place(device))
    a @ a
    with torch.profiler.profile() as seen:
        (a @ a).cpu()
    rows = {row.key: row for row in seen.key_averages()}
    kernels = [row for key, row in rows.items() if key.startswith(("gemm", "packed"))]
    times = [kernel.self_device_time_total for kernel in kernels]
    assert min(times) > 0
    assert rows["aten::mm"].device_time_total == pytest.approx(sum(times))
    assert rows["copy device to host"].count == 1

    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    traced = next(e for e in events if e.get("cat") == "kernel")
    operator = next(e for e in events if e.get("name") == "aten::mm")
    assert traced["pid"] == device.index
    assert traced["dur"] == pytest.approx(rows[traced["name"]].self_device_time_total, abs=0.01)
    # device and host agree on the time of day: the kernel starts after its operator, in a second
    assert -1e3 < traced["ts"] - operator["ts"] < 1e6
    assert any(e.get("cat") == "privateuse1_runtime" for e in events)


def test_the_autograd_profiler_times_operators(device: Any) -> None:
    a = torch.rand(64, 64).to(place(device))
    with torch.ocl.device(device.index), torch.autograd.profiler.profile(use_device="ocl") as seen:
        a @ a
    times = {row.key: row.device_time_total for row in seen.key_averages()}
    assert times["aten::mm"] > 0


def test_our_table_ranks_kernels_by_time(device: Any) -> None:
    a = torch.rand(64, 64).to(place(device))
    text = io.StringIO()
    with torch.ocl.profile(file=text) as seen:
        for _ in range(3):
            b = a @ a
        b.cpu()
    names = [command.name for command in seen.commands]
    assert sum(name.startswith("gemm") for name in names) >= 3
    assert names[-1] == "copy device to host"
    assert seen.commands[-1].bytes == b.nbytes
    assert all(command.device == device.index for command in seen.commands)
    assert all(command.milliseconds > 0 for command in seen.commands)
    lines = text.getvalue().splitlines()
    assert lines[0].split() == ["kernel", "device", "ms", "%", "calls", "mean", "µs"]
    assert lines[-1].startswith(f"{len(names)} commands, ")
    totals = [float(line[48:58]) for line in lines[1:-1]]
    assert totals == sorted(totals, reverse=True)


def test_profiles_nest_and_forget(device: Any) -> None:
    x = torch.ones(8).to(place(device))
    with torch.ocl.profile(file=None) as outer:
        x + 1
        with torch.ocl.profile(file=None) as inner:
            x + 1
    assert (len(outer.commands), len(inner.commands)) == (2, 1)
    with torch.ocl.profile(file=None) as later:
        pass
    assert later.commands == []
    assert later.table().endswith("0 commands, 0.000 ms on the device")
