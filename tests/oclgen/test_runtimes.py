"""Runtimes that are missing, broken or crashing are reported and stepped over."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oclgen import system
from oclgen.opencl import health, probe, runtimes
from oclgen.opencl.device import Device
from oclgen.opencl.health import DeviceHealth, Health
from oclgen.plan import Plan, buffer

LIST_DEVICES = """
from oclgen.opencl.device import devices
print("devices", len(devices()))
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No runtime of this machine, a cache of its own, and verdicts of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "vendors"))
    monkeypatch.delenv("OCLGEN_RUNTIMES", raising=False)
    (tmp_path / "vendors").mkdir()
    runtimes.prepare.cache_clear()


def write_icd(tmp_path: Path, name: str, library: str) -> None:
    (tmp_path / "vendors" / name).write_text(library + "\n")


def runtime_that(tmp_path: Path, body: str) -> str:
    """Compile a library that does `body` when it is loaded."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is needed to make a runtime that misbehaves")
    source, library = tmp_path / "bad.cpp", tmp_path / "libbad.so"
    source.write_text(
        "#include <cstdlib>\n#include <unistd.h>\n"
        f"__attribute__((constructor)) static void start() {{ {body} }}\n"
    )
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def test_a_library_that_is_not_there_is_reported(tmp_path: Path) -> None:
    write_icd(tmp_path, "gone.icd", "libnosuchruntime.so.1")
    found = {r.library: r for r in runtimes.examine()}
    gone = found["libnosuchruntime.so.1"]
    assert not gone.usable
    assert "libnosuchruntime.so.1" in str(gone.health.problem)
    assert gone.origin.endswith("gone.icd")


def test_an_icd_file_of_garbage_is_reported(tmp_path: Path) -> None:
    (tmp_path / "vendors" / "garbage.icd").write_bytes(b"\xff\xfe\x00nothing")
    assert [r.usable for r in runtimes.examine() if r.origin.endswith("garbage.icd")] == [False]


def test_an_empty_icd_file_is_no_runtime(tmp_path: Path) -> None:
    (tmp_path / "vendors" / "empty.icd").write_text("\n")
    assert not [origin for origin in runtimes.find().values() if origin.endswith("empty.icd")]


def test_a_library_that_crashes_costs_a_child_process(tmp_path: Path) -> None:
    verdict = health.check(runtime_that(tmp_path, "abort();"))
    assert verdict.problem is not None
    assert "SIGABRT" in verdict.problem


def test_a_library_that_hangs_is_given_up(tmp_path: Path) -> None:
    verdict = health.check(runtime_that(tmp_path, "sleep(60);"), timeout_s=2.0)
    assert verdict.problem == "it did not answer within 2 s"


def test_a_library_without_opencl_offers_no_platform(tmp_path: Path) -> None:
    verdict = health.check(runtime_that(tmp_path, ""))
    assert verdict.problem is not None
    assert "no platform" in verdict.problem


def test_verdicts_are_remembered_until_the_library_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = runtime_that(tmp_path, "abort();")
    first = health.check(library)
    with monkeypatch.context() as without_processes:
        without_processes.setattr(subprocess, "run", None)
        assert health.check(library) == first
    assert "no platform" in str(health.check(runtime_that(tmp_path, "")).problem)


def test_a_verdict_is_of_one_target_of_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A narrower target lacks instructions that the processor has, and its compiler may abort."""
    library = runtime_that(tmp_path, "")
    health.check(library)
    asked, run = [], subprocess.run

    def noted(*args: Any, **options: Any) -> Any:
        asked.append(args)
        return run(*args, **options)

    monkeypatch.setattr(subprocess, "run", noted)
    health.check(library)
    assert not asked
    monkeypatch.setenv("CL_CONFIG_CPU_TARGET_ARCH", "core-avx2")
    health.check(library)
    assert asked


def test_an_interrupt_of_the_program_does_not_reach_the_child(tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to a whole group; a child that dies of it tells nothing."""
    library = runtime_that(tmp_path, "if (getpgrp() != getpid()) abort();")
    assert "no platform" in str(health.check(library).problem)


def test_a_verdict_that_cannot_be_kept_is_one_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    assert "cannot" in str(health.check(str(tmp_path / "gone.so")).problem)


def test_the_devices_of_a_working_runtime_stay_when_others_break(tmp_path: Path) -> None:
    if not any(r.usable and r.health.devices for r in working_runtimes(tmp_path)):
        pytest.skip("no OpenCL runtime here; pip install 'oclgen[cpu]' brings one")
    write_icd(tmp_path, "00-gone.icd", "libnosuchruntime.so.1")
    write_icd(tmp_path, "01-crash.icd", runtime_that(tmp_path, "abort();"))
    done = subprocess.run(
        [sys.executable, "-c", LIST_DEVICES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= 1


def working_runtimes(tmp_path: Path) -> list[runtimes.Runtime]:
    """The packaged runtime, and the system's where its folder is there."""
    for icd in runtimes.SYSTEM_VENDORS.glob("*.icd"):
        shutil.copy(icd, tmp_path / "vendors" / icd.name)
    return list(runtimes.examine())


def test_the_choice_of_runtimes_hides_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_icd(tmp_path, "one.icd", "libone.so")
    write_icd(tmp_path, "two.icd", "libtwo.so")
    monkeypatch.setenv("OCLGEN_RUNTIMES", "two,three")
    assert list(runtimes.find()) == ["libtwo.so"]


def test_of_two_libraries_with_one_name_the_first_that_works_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("a", "b", "c"):
        write_icd(tmp_path, f"{folder}.icd", f"/{folder}/libsame.so")
    monkeypatch.setenv("OCLGEN_RUNTIMES", "libsame")
    broken = {"/a/libsame.so": Health(problem="broken")}
    monkeypatch.setattr(health, "check", lambda lib, **_: broken.get(lib, Health()))
    first, second, third = runtimes.examine()
    assert (first.usable, second.usable, third.usable) == (False, True, False)
    assert third.skipped is not None
    assert "b.icd" in third.skipped


def test_a_device_whose_compiler_fails_is_known_to_be_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_icd(tmp_path, "half.icd", "libhalf.so")
    monkeypatch.setenv("OCLGEN_RUNTIMES", "libhalf")
    devices = (
        DeviceHealth("P", "OpenCL 3.0 P", "good one", "1"),
        DeviceHealth("P", "OpenCL 3.0 P", "bad one", "1", "unknown target CPU 'generic'"),
    )
    monkeypatch.setattr(health, "check", lambda *_, **__: Health(devices))
    assert runtimes.is_broken("OpenCL 3.0 P ", "bad  one")
    assert not runtimes.is_broken("OpenCL 3.0 P", "good one")
    runtimes.prepare.cache_clear()


def test_a_device_that_leaves_long_loops_early_is_used_where_somebody_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_icd(tmp_path, "short.icd", "libshort.so")
    monkeypatch.setenv("OCLGEN_RUNTIMES", "libshort")
    monkeypatch.delenv("OCLGEN_FAULTY", raising=False)
    short = DeviceHealth("P", "OpenCL 3.0 P", "one", "1", fault="it leaves loops too early")
    monkeypatch.setattr(health, "check", lambda *_, **__: Health((short,)))
    assert runtimes.is_broken("OpenCL 3.0 P", "one")
    monkeypatch.setenv("OCLGEN_FAULTY", "1")
    assert not runtimes.is_broken("OpenCL 3.0 P", "one")
    assert runtimes.fault("OpenCL 3.0 P", "one") == short.fault
    runtimes.prepare.cache_clear()


def test_a_device_whose_events_tell_no_times_has_the_hosts(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyopencl as cl

    monkeypatch.setattr(health, "_LEAST_NS", 10**12)  # more than the kernel can take
    assert not health._try_device(cl, device.handle, "").timed
    launch = health._HEALTH
    args = (*buffer("ones"), *buffer("out"))
    buffers = {"ones": device.upload(probe.ONES), "out": device.empty(4 * (health._ITEMS + 1))}
    prepared = device.prepare(Plan((replace(launch, args=args),)), buffers)
    events: list[object] = []
    enqueue = type(prepared).enqueue
    monkeypatch.setattr(type(prepared), "enqueue", lambda one: _without_times(enqueue(one), events))
    monkeypatch.setitem(device.__dict__, "timed", False)
    assert prepared.run() > 0
    assert len(events) == 1


class _NoTimes:
    """An event that can be waited for, and that has no `profile`."""

    def __init__(self, event: Any) -> None:
        self.wait = event.wait


def _without_times(events: list[Any], seen: list[object]) -> list[_NoTimes]:
    seen += events
    return [_NoTimes(event) for event in events]


def test_loops_that_end_after_65535_rounds_are_found(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llvmpipe's limit, planted into the text of the kernel that every device is tried by."""
    import pyopencl as cl

    if runtimes.fault(device.handle.platform.version, device.name) is None:
        assert health._try_device(cl, device.handle, "") == health.Tried()
    whole = health._HEALTH
    loop = "i < 5 * ones[offset]"
    assert loop in whole.source
    short = replace(whole, text=whole.source.replace(loop, f"{loop} && i < 65535"))
    monkeypatch.setattr(health, "_HEALTH", short)
    problem, fault, _ = health._try_device(cl, device.handle, "")
    assert problem is None
    assert fault is not None and "too early" in fault
    wrong = replace(whole, text=whole.source.replace("2 * item +", "3 * item +"))
    monkeypatch.setattr(health, "_HEALTH", wrong)
    problem, fault, _ = health._try_device(cl, device.handle, "")
    assert fault is None
    assert problem is not None and "wrong results" in problem


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (Health(problem="it crashed its process (SIGILL)"), ()),
        (Health((DeviceHealth("P", "OpenCL 3.0 P", "one", "1", "wrong results", True),)), ()),
        (Health((DeviceHealth("P", "OpenCL 3.0 P", "one", "1", None, True),)), probe.FATAL),
    ],
)
def test_an_instruction_that_kills_costs_a_child_and_no_device(
    monkeypatch: pytest.MonkeyPatch, answer: Health, shown: tuple[str, ...]
) -> None:
    cpu = DeviceHealth("P", "OpenCL 3.0 P", "one", "1", None, True)
    gpu = replace(cpu, name="two", is_cpu=False)

    def child(_library: str, instruction: str, _timeout_s: float) -> Health:
        return answer if instruction else Health((cpu, gpu))

    monkeypatch.setattr(health, "_ask_child", child)
    monkeypatch.setattr(system, "allows_tiles", lambda: True)
    verdict = health.check("libcpu.so")
    assert verdict.devices == (replace(cpu, instructions=shown), gpu)
    monkeypatch.setattr(runtimes, "prepare", lambda: (runtimes.Runtime("lib", "", verdict),))
    assert runtimes.instructions("OpenCL 3.0 P ", "one") == set(shown)
    assert not runtimes.instructions("OpenCL 3.0 P", "two")
    monkeypatch.setattr(health, "_ask_child", lambda *_: pytest.fail("it was remembered"))
    assert health.check("libcpu.so") == verdict


def test_what_the_processor_lacks_is_not_shown(device: Device) -> None:
    flags = Path("/proc/cpuinfo")
    if not flags.exists() or "avx512_bf16" in flags.read_text(encoding="utf-8"):
        pytest.skip("the processor has it, or the system does not list what it has")
    assert "vdpbf16ps" not in device.limits.instructions


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is prepared")
@pytest.mark.parametrize(("given", "asked"), [(None, "0"), ("1", "1")])
def test_pocl_is_asked_for_a_folder_per_program(
    monkeypatch: pytest.MonkeyPatch, given: str | None, asked: str
) -> None:
    monkeypatch.setenv("OCLGEN_RUNTIMES", "none")
    monkeypatch.setenv("POCL_KERNEL_CACHE", given or "")
    if given is None:
        monkeypatch.delenv("POCL_KERNEL_CACHE")
    runtimes.prepare.cache_clear()
    runtimes.prepare()
    assert os.environ.get("POCL_KERNEL_CACHE") == asked
    runtimes.prepare.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is prepared")
@pytest.mark.parametrize(
    ("cores", "given", "asked"),
    [({0, 1}, None, "1"), ({0, 1}, "0", "0"), ({1}, None, None), ({0}, None, None)],
)
def test_threads_are_bound_where_all_cores_are_ours(
    monkeypatch: pytest.MonkeyPatch, cores: set[int], given: str | None, asked: str | None
) -> None:
    monkeypatch.setenv("OCLGEN_RUNTIMES", "none")
    monkeypatch.setenv("POCL_AFFINITY", given or "")
    if given is None:
        monkeypatch.delenv("POCL_AFFINITY")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    runtimes.prepare()
    assert os.environ.get("POCL_AFFINITY") == asked
    runtimes.prepare.cache_clear()


@pytest.mark.parametrize(
    ("flags", "given", "healthy", "asked"),
    [
        (" ".join(sorted(runtimes.XEON_FLAGS)), None, True, runtimes.NEWEST_XEON),
        (" ".join(sorted(runtimes.XEON_FLAGS)), None, False, None),
        (" ".join(sorted(runtimes.XEON_FLAGS)), "core-avx2", True, "core-avx2"),
        ("avx512_bf16 avx2", None, True, None),
    ],
)
def test_intels_runtime_is_told_the_processor_that_it_takes_for_an_older_one(
    monkeypatch: pytest.MonkeyPatch, flags: str, given: str | None, healthy: bool, asked: str | None
) -> None:
    def examine() -> tuple[runtimes.Runtime, ...]:
        fails = not healthy and runtimes.TARGET in os.environ
        return (
            runtimes.Runtime("libintelocl.so", "", Health(problem="it fails" if fails else None)),
        )

    monkeypatch.setenv(runtimes.TARGET, given or "")
    if given is None:
        monkeypatch.delenv(runtimes.TARGET)
    monkeypatch.setattr(health, "processor", lambda: f"flags : fpu {flags}")
    monkeypatch.setattr(runtimes, "examine", examine)
    (found,) = runtimes._examine_named()
    assert found.usable
    assert os.environ.get(runtimes.TARGET) == asked


def test_without_any_runtime_there_are_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCLGEN_RUNTIMES", "none")
    done = subprocess.run(
        [sys.executable, "-c", LIST_DEVICES], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()[-1]) == (0, "0"), done.stderr
