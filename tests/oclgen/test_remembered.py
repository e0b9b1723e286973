"""What is remembered for later processes: found by all it was made from, and by nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import oclgen
from oclgen import remembered
from oclgen.opencl.binaries import MIB, Binaries
from oclgen.remembered import Remembered

VALUE = {"texts": ["__kernel void f() {}\n", "é"], "cost": 0.1, "none": None}
SOURCE = "A = 1\n"


@pytest.fixture(autouse=True)
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a package that values are made by; it is older than this process."""
    package = tmp_path / "maker_of_values"
    package.mkdir()
    file = package / "__init__.py"
    file.write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(remembered, "IS_ON", True)
    monkeypatch.setattr(remembered, "PACKAGES", (package.name,))
    monkeypatch.setattr(remembered, "QUIET_S", 0.0)
    later(monkeypatch)
    yield file
    sys.modules.pop(package.name, None)
    remembered._code.cache_clear()


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as a process that begins after all files were written."""
    monkeypatch.setattr(oclgen, "BEGUN", time.time() + 2 * remembered.CLOCK_S)
    remembered._code.cache_clear()


@pytest.fixture
def stored(tmp_path: Path) -> Binaries:
    return Binaries(tmp_path / "choices", MIB)


def put(stored: Binaries, *made_from: str) -> None:
    """Write a value at once."""
    one = Remembered(stored)
    one.put(VALUE, *made_from)
    one.write()


def wait_for(stored: Binaries, *made_from: str) -> object:
    end = time.monotonic() + 30
    while (found := Remembered(stored).get(*made_from)) is None and time.monotonic() < end:
        time.sleep(0.01)
    return found


def test_a_later_process_finds_what_was_put_by_all_it_was_made_from(stored: Binaries) -> None:
    put(stored, "texts", "a", "b")
    assert Remembered(stored).get("texts", "a", "b") == VALUE
    for other in (("texts", "a"), ("texts", "a", "c"), ("texts", "ab"), ("text", "sa", "b")):
        assert Remembered(stored).get(*other) is None


def test_values_are_written_while_the_process_runs(stored: Binaries) -> None:
    Remembered(stored).put(VALUE, "a")
    assert wait_for(stored, "a") == VALUE


@pytest.mark.parametrize("content", [b"", b"no text", b"\x78\x01\x03\x00\x00\x00\x00\x01"])
def test_damage_is_no_value_and_is_removed(stored: Binaries, content: bytes) -> None:
    put(stored, "a")
    (file,) = stored.folder.iterdir()
    stored.put(file.name, content)
    assert Remembered(stored).get("a") is None
    assert not file.exists()
    put(stored, "a")
    file.write_bytes(b"not even a checksum")
    assert Remembered(stored).get("a") is None


@pytest.mark.parametrize("how", ["changed", "added", "removed", "renamed"])
def test_other_code_finds_nothing(
    stored: Binaries, code: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = code.with_name("kernel.cl.mako")
    beside.write_text("text")
    later(monkeypatch)
    put(stored, "a")
    match how:
        case "changed":
            beside.write_text("tixt")  # of the same length
        case "added":
            code.with_name("records.jsonl").write_text("")
        case "removed":
            beside.unlink()
        case "renamed":
            beside.rename(code.with_name("kernels.cl.mako"))
    later(monkeypatch)
    assert Remembered(stored).get("a") is None
    put(stored, "a")
    assert Remembered(stored).get("a") == VALUE


def test_a_process_whose_code_was_changed_neither_reads_nor_writes(
    stored: Binaries, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(stored, "a")
    monkeypatch.setattr(oclgen, "BEGUN", time.time())
    remembered._code.cache_clear()
    code.write_text(SOURCE, encoding="utf-8")
    assert Remembered(stored).get("a") is None
    put(stored, "b")
    later(monkeypatch)
    assert Remembered(stored).get("a") == VALUE
    assert Remembered(stored).get("b") is None


def test_what_was_made_before_code_changed_is_not_written_behind_it(
    stored: Binaries, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text may come from a template that was read after the digest was taken."""
    monkeypatch.setattr(remembered, "QUIET_S", 60.0)
    one = Remembered(stored)
    one.put(VALUE, "a")
    code.with_name("kernel.cl.mako").write_text("text")
    monkeypatch.setattr(oclgen, "BEGUN", time.time())
    one.write()
    code.with_name("kernel.cl.mako").unlink()
    later(monkeypatch)
    assert Remembered(stored).get("a") is None


def test_nothing_is_kept_of_a_package_that_shows_no_files(
    stored: Binaries, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code.unlink()
    later(monkeypatch)
    put(stored, "a")
    assert not stored.folder.exists()


def test_nothing_is_kept_where_the_cache_has_no_room(tmp_path: Path) -> None:
    none = Binaries(tmp_path / "none", 0)
    put(none, "a")
    assert not none.folder.exists()


AT_ONCE = """
import sys
from pathlib import Path
from oclgen.opencl.binaries import MIB, Binaries
from oclgen.remembered import Remembered
one = Remembered(Binaries(Path(sys.argv[1]), MIB))
one.put(sys.argv[2], "a")
if len(sys.argv) > 3:
    one.put([sys.argv[2]] * 5, "b")
"""


def test_what_waits_is_written_at_the_end_of_a_process_also_of_several_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "choices"
    command = [sys.executable, "-c", AT_ONCE, str(folder), "x" * 10_000]
    processes = [subprocess.Popen([*command, *["too"] * (n % 2)]) for n in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    monkeypatch.setattr(remembered, "PACKAGES", ("oclgen", "tuned_db"))
    remembered._code.cache_clear()
    stored = Binaries(folder, MIB)
    assert Remembered(stored).get("a") == "x" * 10_000
    assert Remembered(stored).get("b") == ["x" * 10_000] * 5
    assert len([*folder.iterdir()]) == 2, "nothing is left of what was being written"
