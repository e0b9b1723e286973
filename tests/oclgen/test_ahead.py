"""Processes that build: how many, what happens if one dies, and who else builds."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from platformdirs import user_cache_path

from oclgen.limits import DeviceInfo, Limits
from oclgen.measuring import builders
from oclgen.measuring.builders import Pool, Source, Texts
from oclgen.measuring.child import PROCESSES_VARIABLE, TIMEOUTS, Child, ChildError, WorkerError
from oclgen.templates import Templates

cl = pytest.importorskip("pyopencl")

from oclgen.opencl import ahead
from oclgen.opencl.ahead import Ahead, processes
from oclgen.opencl.binaries import FEW, MIB, Binaries
from oclgen.opencl.device import BuildError, Device
from oclgen.opencl.programs import OWN_CACHES, Programs

OPTIONS = ("-cl-opt-disable",)


def fresh() -> str:
    """Return a program that no cache holds."""
    return f"__kernel void k_{uuid.uuid4().hex}(__global int *x) {{ x[get_global_id(0)] = 1; }}"


def child_of(device: Device, info: DeviceInfo | None = None) -> Child:
    return Child("build", device.index, info or device.info, dict(TIMEOUTS))


@pytest.fixture
def pool(device: Device) -> Iterator[Pool]:
    made = Pool([child_of(device)])
    yield made
    made.close()


def test_a_process_answers_in_order_and_tells_what_the_compiler_says(pool: Pool) -> None:
    good, bad = Source(fresh(), OPTIONS), Source("__kernel void k() { nonsense; }", OPTIONS)
    answers = [pool.submit(question) for question in (good, bad, good)]
    assert answers[0].result().seconds > 0
    refusal = answers[1].result()
    assert isinstance(refusal, BuildError)
    assert "nonsense" in str(refusal)
    assert answers[2].result().seconds > 0


def test_a_process_that_dies_costs_one_answer(pool: Pool) -> None:
    pool.submit(Source(fresh(), OPTIONS)).result()
    (child,) = pool.children
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)  # or the answer might be there before it dies
    answers = [pool.submit(Source(fresh(), OPTIONS)) for _ in range(2)]
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildError, match="SIGKILL"):
        answers[0].result()
    assert answers[1].result().seconds > 0


def test_a_process_ends_after_its_life_and_when_it_is_idle(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders, "LIFE", 1)
    pool = Pool([child_of(device)], idle_s=0.0)
    for _ in range(2):
        assert pool.submit(Source(fresh(), OPTIONS)).result().seconds > 0
        for thread in [*pool._threads]:
            thread.join()
        assert [child.pid for child in pool.children] == [None]
    pool.close()


class Ending:
    """A process that takes its time to end."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.ends, self.may_end = Event(), Event()

    def ask(self, question: str, _stage: str) -> str:
        self.seen.append(question)
        return question

    def close(self) -> None:
        self.ends.set()
        self.may_end.wait()
        self.seen.append("ended")


def test_a_process_that_is_ending_is_asked_nothing() -> None:
    process: Any = Ending()
    pool = Pool([process], idle_s=0.0)
    assert pool.submit("first").result() == "first"
    assert process.ends.wait(60)
    second = pool.submit("second")
    assert wait([second], 0.2).not_done
    process.may_end.set()
    assert second.result(60) == "second"
    assert process.seen[:3] == ["first", "ended", "second"]
    pool.close()


def test_a_process_that_cannot_be_had_is_said(device: Device) -> None:
    pool = Pool([child_of(device, replace(device.info, driver_version="another"))])
    with pytest.raises(WorkerError, match="driver"):
        pool.submit(Source(fresh(), OPTIONS)).result()
    pool.close()


def test_what_is_not_answered_when_a_pool_closes_fails(device: Device) -> None:
    pool = Pool([child_of(device)])
    answers = [pool.submit(Source(fresh(), OPTIONS)) for _ in range(20)]
    pool.close()
    wait(answers)
    assert all(child.pid is None for child in pool.children)
    assert not pool._threads


@pytest.fixture
def programs(device: Device, tmp_path: Any) -> Programs:
    """Programs of the device that know nothing yet."""
    stored = Binaries(tmp_path / "programs", MIB)
    return Programs(device.context, device.handle, device.info, stored)


@pytest.mark.parametrize("helps", [True, False])
def test_programs_are_built_by_processes_and_by_who_waits(
    programs: Programs, device: Device, helps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROCESSES_VARIABLE, "1")
    monkeypatch.setattr(ahead, "HELPS", helps)
    building = Ahead(programs, device.index, device.limits)
    sources = [fresh() for _ in range(4)]
    futures = [building.find(source) for source in sources]
    assert all(isinstance(future, Future) for future in futures)
    assert building.find(sources[0]) is futures[0]  # asked for once
    told: list[tuple[int, int]] = []
    found = [building.wait(future, lambda *numbers: told.append(numbers)) for future in futures]
    assert told[-1][1] == len(sources)
    again = [building.find(source) for source in sources]
    assert all(one is other for one, other in zip(found, again, strict=True))


def test_who_waits_builds_what_a_pool_left_to_them(
    programs: Programs, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool starts no process for the one program that it leaves to a thread that helps."""
    monkeypatch.setattr(ahead, "HELPS", True)
    builder = Ahead(programs, device.index, device.limits)
    future = builder.find(fresh())
    monkeypatch.setattr(ahead, "HELPS", False)
    assert builder.wait(future).get_info(cl.program_info.NUM_KERNELS) == 1


def test_one_program_starts_no_process(
    programs: Programs, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "HELPS", True)
    monkeypatch.setenv(PROCESSES_VARIABLE, "2")
    building = Ahead(programs, device.index, device.limits)
    future = building.find(fresh())
    assert building.wait(future).kernel_names
    assert building._pool is not None
    assert [child.pid for child in building._pool.children] == [None, None]


def test_a_process_builds_what_nobody_waits_for(
    programs: Programs, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROCESSES_VARIABLE, "1")
    building = Ahead(programs, device.index, device.limits)
    source, wrong = fresh(), "this is no OpenCL C;"
    while not building.are_built([source]):
        time.sleep(0.01)
    assert programs.find(source).kernel_names
    with pytest.raises(BuildError):
        while not building.are_built([source, wrong]):
            time.sleep(0.01)
    assert building._pool is not None
    building._pool.close()


def test_what_was_asked_for_is_not_loaded_from_disk(
    programs: Programs, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has put it there, and the future of who asked does not have it yet."""
    monkeypatch.setattr(ahead, "HELPS", True)
    building, source = Ahead(programs, device.index, device.limits), fresh()
    asked = building.find(source)
    Programs(device.context, device.handle, device.info, programs.stored).get(source)
    assert building.find(source) is asked
    assert building.wait(asked).kernel_names
    assert (programs.tally.built, programs.tally.loaded) == (1, 0)


@pytest.mark.parametrize("probes", [False, True], ids=["unprobed", "probed"])
def test_a_first_network_is_met_by_processes_that_are_there(
    programs: Programs, device: Device, monkeypatch: pytest.MonkeyPatch, probes: bool
) -> None:
    monkeypatch.setenv(PROCESSES_VARIABLE, "2")
    for number in range(FEW - 2):  # what probes leave
        programs.stored.put(f"probe{number}", b"program")
    building = Ahead(programs, device.index, device.limits)
    if probes:
        building.wait(building.find(fresh()))
    building.expect()
    pool = building._pool
    assert pool is not None
    assert len(pool._threads) == 2
    assert building.wait(building.find(fresh())).kernel_names
    pool.close()


def test_processes_that_wait_for_a_first_network_compile_the_templates(
    programs: Programs, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROCESSES_VARIABLE, "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ahead, "MANY", 1)
    kept = Templates("oclgen", user_cache_path("oclgen") / "templates")
    monkeypatch.setattr("oclgen.templates.templates", lambda _: kept)
    missing = kept.uncompiled()
    assert "conv_mma.cl.mako" in missing
    building = Ahead(programs, device.index, device.limits)
    building.expect()
    assert building.wait(building.find(fresh())).kernel_names
    assert building._pool is not None
    building._pool.submit(Texts(())).result()  # answered after them
    building._pool.close()
    assert kept.uncompiled() == []


def test_nothing_is_started_where_programs_were_built_or_none_may_be(
    programs: Programs, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROCESSES_VARIABLE, "0")
    building = Ahead(programs, device.index, device.limits)
    building.expect()
    assert building._pool is None
    monkeypatch.setenv(PROCESSES_VARIABLE, "2")
    for number in range(FEW):
        programs.stored.put(f"program{number}", b"program")
    building = Ahead(programs, device.index, device.limits)
    building.expect()
    assert building._pool is None


def test_the_largest_program_is_begun_first(pool: Pool) -> None:
    """One that is begun last is waited for while all other processes rest."""
    pool.submit(Source(fresh(), OPTIONS)).result()  # the process is there
    (child,) = pool.children
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    ended: list[str] = []

    def note(name: str, _: Any) -> None:
        ended.append(name)

    answers = []
    for name, size in (("first", 3), ("small", 1), ("large", 9), ("as small", 1)):
        answers.append(pool.submit(Source(fresh(), OPTIONS), size))
        answers[-1].add_done_callback(partial(note, name))
        while name == "first" and pool._tasks:  # until the process has it
            time.sleep(0.01)
    os.kill(child.pid, signal.SIGCONT)
    wait(answers)
    assert ended == ["first", "large", "small", "as small"]


def test_what_a_compiler_refuses_is_raised_by_every_wait(
    programs: Programs, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in ("0", "1"):
        monkeypatch.setenv(PROCESSES_VARIABLE, count)
        building = Ahead(programs, device.index, device.limits)
        broken = f"__kernel void k_{uuid.uuid4().hex}() {{ nonsense; }}"
        for _ in range(2):
            with pytest.raises(BuildError, match="nonsense"):
                found = building.find(broken)
                building.wait(found)


def test_another_process_finds_what_was_built_and_builds_what_is_damaged(
    programs: Programs, device: Device
) -> None:
    if device.info.runtime in OWN_CACHES:
        pytest.skip("the driver keeps what it built")
    source = fresh()
    programs.get(source)
    later = Programs(device.context, device.handle, device.info, programs.stored)
    assert later.find(source).kernel_names
    assert (later.tally.built, later.tally.loaded) == (0, 1)
    programs.stored.put(programs.key(source), b"whole, but no binary")
    last = Programs(device.context, device.handle, device.info, programs.stored)
    assert last.find(source) is None
    assert last.get(source).kernel_names
    assert (last.tally.built, last.tally.loaded) == (1, 0)


def test_a_driver_that_keeps_programs_is_asked_again(
    programs: Programs, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oclgen.opencl.programs.OWN_CACHES", (device.info.runtime,))
    programs = Programs(device.context, device.handle, device.info, programs.stored)
    source = fresh()
    assert programs.find(source) is None
    built = programs.built_for_others(source, programs.options(source))
    assert built.binary == b""
    programs.keep(source, built)
    assert programs.take(source, built).kernel_names
    later = Programs(device.context, device.handle, device.info, programs.stored)
    assert later.find(source).kernel_names
    later.forget()
    later.tally.load_s = 1e3  # a driver without its cache
    assert later.find(source) is None


def test_the_number_of_processes_is_of_cores_memory_and_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(PROCESSES_VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {*range(16)}, raising=False)
    gib = 1 << 30
    assert processes(Limits(kind="cpu", global_bytes=gib)) == 15
    assert processes(Limits(kind="gpu", global_bytes=140 * gib)) == 15
    assert processes(Limits(kind="gpu", global_bytes=8 * gib)) == 2
    assert processes(Limits(kind="gpu", global_bytes=gib)) == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert processes(Limits(kind="gpu", global_bytes=140 * gib)) == 3
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3}, raising=False)
    assert processes(Limits(kind="cpu", global_bytes=gib)) == 1
    for text, count in (("5", 5), ("0", 0), ("-1", 0), ("many", 1)):
        monkeypatch.setenv(PROCESSES_VARIABLE, text)
        assert processes(Limits(kind="cpu", global_bytes=gib)) == count
