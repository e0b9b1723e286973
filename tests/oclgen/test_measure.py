"""How many samples are taken, cold and warm caches, guard zones, and what is noted with a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oclgen.families.gemm import gemm_register
from oclgen.limits import DeviceInfo
from oclgen.measurement import Measurement, undisturbed
from oclgen.measuring import conditions as module
from oclgen.measuring.canary import GUARD, guarded
from oclgen.measuring.conditions import before_and_after, conditions
from oclgen.measuring.measure import (
    MAX_SAMPLES,
    MIN_SAMPLES,
    Bench,
    compare,
    second_chance,
    time_samples,
    uncertainty,
)
from oclgen.opencl.binaries import Binaries
from oclgen.opencl.device import BuildError, Device
from oclgen.opencl.programs import Programs
from oclgen.problem import GemmProblem

SMALL = GemmProblem(24, 40, 16)


@dataclass
class Prepared:
    """A plan that takes the times it is told; the first is the warm-up's."""

    times: Iterator[float]
    runs: int = 0
    seen: list[str] = field(default_factory=list)

    def run(self) -> float:
        self.runs += 1
        self.seen.append("run")
        return next(self.times)


COMPARING = """
import numpy as np, os, time
from pathlib import Path
from oclgen.measuring.measure import compare
def others():
    tasks = Path("/proc/self/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks
               if task.name != str(os.getpid()))
many = np.ones((700, 700))
many @ many  # starts BLAS's threads
before = -1
while before != (before := others()):
    time.sleep(0.2)  # until they sleep
assert compare(many, many, 1e-3) == (0.0, "")
print(others() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells how long each thread ran")
def test_no_other_thread_runs_behind_a_comparison() -> None:
    """It would have a core that the kernel lacks which is timed next."""
    done = subprocess.run([sys.executable, "-c", COMPARING], capture_output=True, text=True)
    assert done.stdout.split() == ["0"], done.stdout + done.stderr


def sampled(times: Iterator[float], **more: Any) -> tuple[float, ...]:
    return time_samples(Prepared(times), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("element", [2.0, np.inf, np.nan])
def test_one_wrong_element_is_wrong(element: float) -> None:
    want = np.ones(1000)
    assert compare(want, want, 1e-3) == (0.0, "")
    got = want.copy()
    got[7] = element
    assert "allowed 1e-03" in compare(got, want, 1e-3)[1]


def test_few_samples_do_where_they_agree() -> None:
    assert len(sampled(repeat(30.0))) == MIN_SAMPLES


def test_more_are_taken_until_the_median_is_known() -> None:
    wide = (30 + 0.5 * (i % 5) for i in count())
    samples = sampled(wide)
    assert MIN_SAMPLES < len(samples) <= MAX_SAMPLES
    assert uncertainty(samples) < 0.005 or len(samples) == MAX_SAMPLES


def test_an_outlier_does_not_keep_it_from_being_known() -> None:
    assert len(sampled(chain([30, 30, 90], repeat(30.0)))) < 10


def test_a_clear_loser_is_given_up() -> None:
    noisy: Callable[[], Iterator[float]] = lambda: (30 + 5.0 * (i % 3) for i in count())  # noqa: E731
    assert len(sampled(noisy(), limit_ms=10)) == MIN_SAMPLES
    assert len(sampled(noisy(), limit_ms=29)) > MIN_SAMPLES


def test_load_turns_no_winner_among_undisturbed_samples() -> None:
    """Times of a processor that others use: a variant's own time shows in some samples only."""
    fast = (3.6, 3.7, 3.6, *[19.6] * 9)
    slow = (9.8, 9.9, *[15.9] * 10)
    assert Measurement(fast).ms > Measurement(slow).ms
    assert Measurement(undisturbed(fast)).ms == 3.6
    assert Measurement(undisturbed(slow)).ms > 9.8
    assert undisturbed([2.0]) == (2.0,)


def test_processors_keep_the_fastest_samples_and_others_all(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = (5.0, 1.0, 4.0, 2.0, 3.0)
    monkeypatch.setattr("oclgen.measuring.measure.time_samples", lambda *_: samples)
    plan = gemm_register.plan(SMALL, gemm_register.DEFAULT)
    kept = Bench(device, SMALL).measure(plan).samples
    assert kept == ((1.0, 2.0) if device.limits.kind == "cpu" else samples)


def test_a_slow_first_launch_has_more_chances_within_a_bound() -> None:
    def fastest(*times: float, most: int) -> tuple[float, int]:
        prepared = Prepared(iter(times))
        return second_chance(prepared, 50.0, 10.0, most), prepared.runs  # type: ignore[arg-type]

    assert fastest(40.0, 9.0, 8.0, most=5) == (9.0, 2)
    assert fastest(40.0, 9.0, 8.0, most=2) == (40.0, 1)
    assert fastest(*[40.0] * 4, most=5) == (40.0, 4)
    assert fastest(300.0, 9.0, most=5) == (50.0, 1)


def test_a_variant_that_is_verified_alone_is_launched_once() -> None:
    prepared = Prepared(repeat(1.0))
    assert second_chance(prepared, 50.0, 0.0, 5) == 50.0  # type: ignore[arg-type]
    assert prepared.runs == 0


def test_caches_are_flushed_before_each_sample_and_only_then() -> None:
    prepared = Prepared(repeat(30.0))
    time_samples(prepared, flush=lambda: prepared.seen.append("flush"))  # type: ignore[arg-type]
    assert prepared.seen == ["run"] + ["flush", "run"] * MIN_SAMPLES


def test_warm_and_cold_caches_are_told(device: Device) -> None:
    problem = GemmProblem(1, 512, 512)  # reads a megabyte once
    plan = gemm_register.plan(problem, gemm_register.DEFAULT)
    warm, cold = (Bench(device, problem, 7, cache).measure(plan) for cache in ("warm", "cold"))
    assert (warm.cache, cold.cache) == ("warm", "cold")
    assert warm.seed == cold.seed == 7
    assert warm.ok
    assert cold.ok


def test_the_seed_draws_other_inputs(device: Device) -> None:
    first, second = (Bench(device, SMALL, seed).expected for seed in (1, 2))
    assert not np.array_equal(first, second)


def test_guard_zones_tell_what_was_written_beside(device: Device) -> None:
    buffer = guarded(device, "c", 100)
    assert buffer.damage() == ""
    like = np.empty(100, np.uint8)
    assert (device.download(buffer.region, like) == 0xFF).all()
    device.fill(buffer.whole, 0, 3, GUARD - 3)
    device.fill(buffer.whole, 0, 2, GUARD + 100)
    assert buffer.damage() == "3 bytes before c and 2 bytes behind c"
    buffer.restore()
    assert buffer.damage() == ""


def test_what_a_driver_does_not_fill_is_written(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of buffers beyond its limit, in blocks, and what lies beyond it altogether."""
    monkeypatch.setattr("oclgen.opencl.filling.FILLED", 1000)
    monkeypatch.setattr("oclgen.opencl.filling.BLOCK", 300)
    whole = device.empty(3000)
    device.fill(whole, 1, 3000)
    device.fill(whole, 2, 1900, 40)
    device.fill(whole, 3, 10, 2990)
    expected = np.repeat(np.array([1, 2, 1, 3], np.uint8), [40, 1900, 1050, 10])
    assert np.array_equal(device.download(whole, expected), expected)


def test_a_program_built_elsewhere_is_loaded(device: Device) -> None:
    plan = gemm_register.plan(SMALL, gemm_register.DEFAULT)
    (launch,) = plan.launches
    binary = device.programs.binary(launch.source)
    device.programs.forget()
    text = "no compiler takes this"
    device.programs.load(text, binary)
    loaded = replace(plan, launches=(replace(launch, text=text),))
    assert Bench(device, SMALL).measure(loaded).ok
    device.programs.forget()
    device.programs.load(text, b"no binary")
    with pytest.raises(BuildError):
        device.build(text)


def test_programs_that_were_not_asked_for_lately_are_let_go(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def compiled(source: str, options: tuple[str, ...]) -> str:
        built.append(source)
        return source

    monkeypatch.setattr("oclgen.opencl.programs.MOST_PROGRAMS", 3)
    made = Programs(device.context, device.handle, device.info, Binaries(tmp_path, 0))
    monkeypatch.setattr(made, "_compile", compiled)
    monkeypatch.setattr(made, "_kept_of", lambda program: b"")
    for source in "abcadbabcd":
        made.get(source)
    assert "".join(built) == "abcdbcd"


CPU = DeviceInfo("Zen", "AMD", "cpu", "cpu float16", "OpenCL", "3.0", "1", 2)
GPU = DeviceInfo("H", "NVIDIA Corporation", "gpu", "nvidia sm_90", "CUDA", "3.0", "1", 132)


def test_clocks_and_temperature_of_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3000000\n",
        "devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2000000\n",
        "class/hwmon/hwmon0/name": "nvme\n",
        "class/hwmon/hwmon0/temp1_input": "90000\n",
        "class/hwmon/hwmon1/name": "k10temp\n",
        "class/hwmon/hwmon1/temp1_input": "61500\n",
        "class/hwmon/hwmon1/temp2_input": "n/a\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(module, "SYSTEM", tmp_path)
    assert conditions(CPU, None) == {"mhz": 2500.0, "celsius": 61.5}
    monkeypatch.setattr(module, "SYSTEM", tmp_path / "nothing here")
    assert conditions(CPU, None) == {}


def test_clocks_and_temperature_of_an_nvidia_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    library = SimpleNamespace(
        NVMLError=RuntimeError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetHandleByPciBusId=asked.append,
        nvmlDeviceGetClockInfo=lambda device, kind: 1980,
        nvmlDeviceGetTemperature=lambda device, kind: 41,
    )
    monkeypatch.setattr(module, "_nvml", lambda: library)
    handle = SimpleNamespace(pci_domain_id_nv=0, pci_bus_id_nv=0x1B, pci_slot_id_nv=0)
    assert conditions(GPU, handle) == {"mhz": 1980.0, "celsius": 41.0}
    assert asked == [b"00000000:1b:00.0"]
    monkeypatch.setattr(module, "_nvml", lambda: None)
    assert conditions(GPU, handle) == {}


def test_before_and_after_are_told_apart() -> None:
    assert before_and_after({"mhz": 1.0}, {"mhz": 2.0, "celsius": 3.0}) == {
        "mhz_before": 1.0,
        "mhz_after": 2.0,
        "celsius_after": 3.0,
    }
