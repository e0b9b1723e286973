"""Problems of networks are recorded without building or computing; the list is not the proofs'."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn

import ocl_backend.libraries  # noqa: F401 (first: it readies torchvision)
from benchmarks.models.validate import CASES
from benchmarks.shapes import record
from benchmarks.shapes.networks import NETWORKS, Network
from benchmarks.shapes.rank import ranked
from benchmarks.shapes.unbuilt import ValueNeededError, calls
from benchmarks.tasks import classifiers, networks
from oclgen import recording
from oclgen.keys import parse_key
from oclgen.opencl.device import Device
from oclgen.problem import ConvProblem
from oclgen.roofline import Roofs
from tests import installed
from tests.oclgen.test_guesses import GPU
from tuned_db import Chooser
from tuned_db.records.shipped import shipped_records

installed.require("torchvision")

SHAPES = Path(__file__).parents[2] / "benchmarks/data/shapes"
RECORDED = {"forty_networks.jsonl": 2000, "forty_networks_batch1.jsonl": 1000}
"""The files of the forty networks, and the bound of each."""
CONV = "conv:1,3,8,8,4,3,3:s1,1:p1,1:d1,1:g1:fp32:fwd:bias:relu"


ALONE = "SHAPES_ARE_RECORDED"
alone = pytest.mark.skipif(ALONE not in os.environ, reason="runs in a process of its own")
"""Recording leaves kernels that nothing builds, for which later launches would wait without end."""


def test_recordings_are_right_in_a_process_of_their_own(any_device: None) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "device", __file__]
    done = subprocess.run(
        command, env={**os.environ, ALONE: "1"}, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 5))


def given(batch: int) -> dict[str, Any]:
    return {"x": torch.randn(batch, 3, 8, 8)}


def test_forty_networks_of_which_no_benchmark_measures_one() -> None:
    names = [network.name for network in NETWORKS]
    assert len(names) == len({*names}) == 40
    drawn = {name.removeprefix(classifiers.TIMM) for name in classifiers.classifiers()}
    assert not {*names} & {*drawn, *CASES, *networks.NETWORKS}


@pytest.mark.parametrize("name", RECORDED)
def test_the_recording_is_bounded_and_has_each_problem_once(name: str) -> None:
    lines = (SHAPES / name).read_text().splitlines()
    met = recording.load(lines)
    assert RECORDED[name] / 2 < len(met) == len(lines) <= RECORDED[name]
    assert {key.split(":")[0] for key in map(str, (one.key() for one in met))} == {
        "conv", "gemm", "attention",
    }  # fmt: skip


@alone
def test_steps_are_met_without_a_build(device: Device) -> None:
    built = device.programs.tally.built
    model = small().to(f"ocl:{device.index}").eval()
    x = given(1)["x"].to(f"ocl:{device.index}")
    with torch.no_grad():
        met = calls(lambda: model(x), device.index)
    assert met[parse_key(CONV)] == 1
    assert device.programs.tally.built == built
    assert (x + 1).cpu().isfinite().all()  # the device computes again


@alone
def test_a_step_that_needs_a_value_is_refused(device: Device) -> None:
    x = given(1)["x"].to(f"ocl:{device.index}")
    with pytest.raises((ValueNeededError, RuntimeError), match="value"):
        calls(lambda: (x * 3).sum().item(), device.index)


@alone
def test_modes_and_dtypes_of_a_network_are_met(device: Device) -> None:
    network = Network("small", "here", small, given, is_trained_alone=False)
    met = record.met_by(network, (1, 2), device.index)
    convs = [one for one in met if isinstance(one, ConvProblem)]
    kinds = {(one.batch, one.dtype, one.direction) for one in convs}
    assert {(n, dtype) for n, dtype, direction in kinds if direction == "fwd"} == {
        (n, dtype) for n in (1, 2) for dtype in ("fp32", "bf16")
    }
    assert {n for n, _, direction in kinds if direction == "bwd_weights"} == {2}


def test_a_problem_that_the_package_has_a_record_of_is_not_ranked() -> None:
    known, other = (f"gemm:{n}x{n}x{n}:fp32:nn:b1:-:-:none" for n in (1024, 1000))
    record = next(
        one for one in shipped_records() if one.device.kind == "gpu" and one.problem == known
    )
    met = Counter(map(parse_key, (known, other)))
    rows = ranked(met, Chooser(None, record.device, GPU), Roofs(1e9, 1e9))
    assert [row.choice.problem.key() for row in rows] == [other]


@alone
def test_the_heaviest_are_kept_and_what_loses_most_comes_first(device: Device) -> None:
    sizes = (64, 128, 2048)
    met = Counter({parse_key(f"gemm:{n}x{n}x{n}:fp32:nn:b1:-:-:none"): 2 for n in sizes})
    heavy = record.heaviest(met, 1)
    assert [(one.flops, count) for one, count in heavy.items()] == [(2 * 2048**3, 2)]
    rows = ranked(met, Chooser(None, device.info, device.limits), Roofs(1e9, 1e9))
    assert [row.lost_ms for row in rows] == sorted((row.lost_ms for row in rows), reverse=True)
    assert all(row.calls == 2 for row in rows)
