"""Programs of a script's last run: which are loaded ahead of their use, and what bounds it."""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyopencl")

from oclgen.opencl import preload
from oclgen.opencl.binaries import MIB, Binaries
from oclgen.opencl.device import Device
from oclgen.opencl.preload import Preload
from oclgen.opencl.programs import Programs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a test happens at the end of its process."""
    monkeypatch.setattr("atexit.register", lambda _: None)


def process(device: Device, folder: Path, script: str = "train.py") -> tuple[Programs, Preload]:
    """Programs as a new process has them, with the thread that loads."""
    stored = Binaries(folder / "programs", MIB)
    programs = Programs(device.context, device.handle, device.info, stored)
    return programs, Preload(programs, Binaries(folder / "used", MIB), script)


def texts(count: int) -> list[str]:
    return [
        f"__kernel void k_{uuid.uuid4().hex}(__global int *x) {{ x[get_global_id(0)] = {i}; }}"
        for i in range(count)
    ]


def used(device: Device, folder: Path, sources: list[str]) -> None:
    """Run a script that uses these programs."""
    programs, thread = process(device, folder)
    thread.start()
    for source in sources:
        programs.get(source)
    thread.end()


def settled(programs: Programs, count: int) -> int:
    """Return how many programs are in memory once `count` are, and some time has passed."""
    ends = time.monotonic() + 20
    while len(programs._known) < count and time.monotonic() < ends:
        time.sleep(0.01)
    time.sleep(0.1)
    return len(programs._known)


def test_the_next_run_finds_in_memory_what_the_last_one_used(device: Device, folder: Path) -> None:
    sources = texts(4)
    used(device, folder, sources)
    programs, thread = process(device, folder)
    assert thread.known == [programs.key(source) for source in sources]
    thread.start()
    assert settled(programs, 4) == 4
    loaded = programs.tally.loaded
    assert all(programs.find(source).kernel_names for source in sources)
    assert (programs.tally.loaded, programs.tally.built) == (loaded, 0) == (4, 0)
    thread.end()


def test_the_thread_stays_some_programs_ahead_of_the_script(
    device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preload, "AHEAD", 2)
    sources, others = texts(6), texts(3)
    used(device, folder, sources)
    programs, thread = process(device, folder)
    thread.start()
    assert settled(programs, 2) == 2
    for other in others:  # those of another network
        programs.get(other)
    assert settled(programs, 5) == 5
    programs.get(sources[0])
    assert settled(programs, 6) == 6
    programs.get(sources[5])  # not in its turn
    assert settled(programs, 8) == 8
    thread.end()
    again = process(device, folder)[1].known
    assert again[:3] == [programs.key(other) for other in others]
    assert sorted(again) == sorted(map(programs.key, sources + others))


def test_what_is_gone_or_damaged_is_left_out(device: Device, folder: Path) -> None:
    sources = texts(3)
    used(device, folder, sources)
    programs, thread = process(device, folder)
    programs.stored.drop(programs.key(sources[0]))
    programs.stored.put(programs.key(sources[1]), b"no program")
    thread.start()
    assert settled(programs, 1) == 1
    assert programs.find(sources[0]) is None
    assert programs.find(sources[2]).kernel_names
    thread.end()
    for content in (b"", b"{", b"7", b"[1, 2]"):
        thread._stored.put(thread._name, content)
        other, damaged = process(device, folder)
        damaged.start()
        damaged.end()
        assert not other._known


def test_a_driver_that_keeps_programs_is_told_their_texts(
    device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oclgen.opencl.programs.OWN_CACHES", (device.info.runtime,))
    sources = texts(2)
    used(device, folder, sources)
    programs, thread = process(device, folder)
    assert programs.stored.get(thread.known[0]) not in (None, b"")
    thread.start()
    assert settled(programs, 2) == 2
    assert (programs.tally.loaded, programs.tally.built) == (2, 0)
    thread.end()


def test_scripts_have_lists_of_their_own_and_commands_none(
    device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(device, folder, texts(1))
    assert process(device, folder, "another.py")[1].known == []
    begun: list[str] = []
    monkeypatch.setattr(Preload, "start", lambda self: begun.append(self._name))
    programs = process(device, folder)[0]
    for argv in (["-c"], [""], [], [str(folder / "gone.py")]):
        monkeypatch.setattr(sys, "argv", argv)
        preload.begin(programs)
    assert begun == []
    script = folder / "here.py"
    script.write_text("")
    monkeypatch.setattr(sys, "argv", [str(script)])
    preload.begin(programs)
    assert len(begun) == 1


def test_a_list_is_written_where_it_has_changed(device: Device, folder: Path) -> None:
    sources = texts(2)
    used(device, folder, sources)
    puts: list[Any] = []
    programs, thread = process(device, folder)
    thread._stored.put = lambda *given: puts.append(given)  # type: ignore[method-assign]
    thread.start()
    for source in sources:
        programs.get(source)
    thread.end()
    assert puts == []
    programs.get(texts(1)[0])
    thread.end()
    ((_, content),) = puts
    assert len(json.loads(content)) == 3
