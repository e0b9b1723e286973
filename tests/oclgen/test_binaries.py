"""Programs on disk: what is damaged is built again, what cannot be kept is no error."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oclgen.limits import DeviceInfo
from oclgen.opencl import binaries
from oclgen.opencl.binaries import MIB, Binaries

BINARY = bytes(range(256)) * 5


@pytest.fixture
def kept(tmp_path: Path) -> Binaries:
    return Binaries(tmp_path / "programs", MIB)


def test_what_was_put_is_got_by_any_process(kept: Binaries) -> None:
    assert kept.get("a") is None
    kept.put("a", BINARY)
    kept.put("b", b"")
    assert Binaries(kept.folder, MIB).get("a") == BINARY
    assert kept.get("b") == b""
    kept.put("a", b"other")
    assert kept.get("a") == b"other"
    kept.drop("a")
    kept.drop("never there")
    assert kept.get("a") is None


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 32 + len(BINARY) - 1])
def test_a_truncated_file_is_no_binary_and_goes(kept: Binaries, length: int) -> None:
    kept.put("a", BINARY)
    path = kept.folder / "a"
    path.write_bytes(path.read_bytes()[:length])
    assert kept.get("a") is None
    assert not path.exists()


@pytest.mark.parametrize("at", [0, 31, 32, 32 + len(BINARY) - 1])
def test_a_changed_byte_is_damage(kept: Binaries, at: int) -> None:
    kept.put("a", BINARY)
    content = bytearray((kept.folder / "a").read_bytes())
    content[at] ^= 1
    (kept.folder / "a").write_bytes(content)
    assert kept.get("a") is None


def test_the_least_recently_used_go_when_the_bound_is_passed(tmp_path: Path) -> None:
    kept = Binaries(tmp_path, 10 * 1000)
    for number in range(9):
        kept.put(f"{number}", bytes(968))
        os.utime(tmp_path / f"{number}", (number, number))
    assert kept.get("0") is not None  # the least recently used is "1" now
    kept.put("more", bytes(968))
    kept.put("most", bytes(968))
    left = {path.name for path in tmp_path.iterdir()}
    assert {"0", "more", "most"} <= left
    assert {"1", "2"}.isdisjoint(left)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10 * 1000


def test_the_bound_holds_whoever_writes(tmp_path: Path) -> None:
    first, second = Binaries(tmp_path, 50 * 1000), Binaries(tmp_path, 50 * 1000)
    for number in range(60):
        first.put(f"a{number}", bytes(968))
        second.put(f"b{number}", bytes(968))
    # each knows what it wrote, and counts all when that passes the bound
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 * 50 * 1000


def test_what_is_larger_than_the_bound_and_a_bound_of_nothing_keep_nothing(tmp_path: Path) -> None:
    Binaries(tmp_path / "none", 0).put("a", b"")
    Binaries(tmp_path / "small", 40).put("a", bytes(9))
    assert not [*tmp_path.iterdir()]


def test_what_a_killed_process_left_goes_in_time(tmp_path: Path) -> None:
    kept = Binaries(tmp_path, 2000)
    old, young = tmp_path / ".new-old", tmp_path / ".new-young"
    for path in (old, young):
        path.write_bytes(bytes(100))
    os.utime(old, (1, 1))
    kept.put("a", bytes(968))
    assert (old.exists(), young.exists()) == (False, True)


def test_a_folder_that_cannot_be_written_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "programs").write_text("a file, no folder")
    kept = Binaries(tmp_path / "programs", MIB)
    with caplog.at_level(logging.DEBUG, binaries.__name__):
        for _ in range(3):
            assert kept.get("a") is None
            kept.put("a", BINARY)
    assert len(caplog.records) == 1
    assert "programs are not kept" in caplog.text


def test_threads_and_processes_write_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from oclgen.opencl.binaries import Binaries\n"
        "kept = Binaries(Path(sys.argv[1]), 64 * 1000)\n"
        "for turn in range(200):\n"
        "    key = str(turn % 20)\n"
        "    kept.put(key, key.encode() * 4000)\n"
        "    found = kept.get(key)\n"
        "    assert found is None or found == key.encode() * 4000, key\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    others = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    wrong: list[str] = []
    kept = Binaries(tmp_path, 64 * 1000)

    def work() -> None:
        for turn in range(200):
            key = str(turn % 20)
            kept.put(key, key.encode() * 4000)
            if kept.get(key) not in (None, key.encode() * 4000):
                wrong.append(key)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        _, errors = other.communicate()
        assert other.returncode == 0, errors.decode()
    assert wrong == []


def test_the_setting_is_in_mib_and_nonsense_is_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"": binaries.MOST_MIB * MIB, "0": 0, "0.5": MIB // 2, "much": binaries.MOST_MIB * MIB}
    for text, size in sizes.items():
        monkeypatch.setenv(binaries.SIZE_VARIABLE, text)
        assert binaries.of_user().most_bytes == size


CPU = DeviceInfo("Zen", "AMD", "cpu", "cpu float16", "OpenCL", "3.0", "1", 2)


def programs_of(info: DeviceInfo) -> Any:
    pytest.importorskip("pyopencl")
    import oclgen.opencl.device  # noqa: F401 (it tells the loader where the runtimes lie)
    from oclgen.opencl.programs import Programs

    return Programs(None, None, info)


def test_a_key_is_of_text_options_device_driver_and_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from oclgen.opencl import health

    keys = [programs_of(CPU).key("text"), programs_of(CPU).key("other text")]
    others = (
        replace(CPU, name="Zen 5"),
        replace(CPU, driver_version="2"),
        replace(CPU, runtime_version="3.1"),
    )
    keys += [programs_of(info).key("text") for info in others]
    programs = programs_of(CPU)
    monkeypatch.setattr(programs, "options", lambda source: ("-cl-opt-disable",))
    keys.append(programs.key("text"))
    monkeypatch.setenv("CL_CONFIG_CPU_TARGET_ARCH", "corei7")
    keys.append(programs_of(CPU).key("text"))
    monkeypatch.delenv("CL_CONFIG_CPU_TARGET_ARCH")
    monkeypatch.setattr(health, "processor", lambda: "flags: fewer")
    keys.append(programs_of(CPU).key("text"))
    assert len(set(keys)) == len(keys)
    monkeypatch.undo()
    assert programs_of(CPU).key("text") == keys[0]


def test_a_compilers_log_is_told_to_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    cl = pytest.importorskip("pyopencl")
    programs_of(CPU)
    with warnings.catch_warnings():  # as pytest's own filters, after those of the import
        warnings.simplefilter("error")
        cl.compiler_output("kernel f was vectorised")
        monkeypatch.setenv("PYOPENCL_COMPILER_OUTPUT", "1")
        with pytest.raises(cl.CompilerWarning, match="vectorised"):
            cl.compiler_output("kernel f was vectorised")
