"""Where Windows and macOS find OpenCL: the platform is pretended, the loaders' files planted."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from oclgen.opencl import health, loader, runtimes
from oclgen.opencl.health import DeviceHealth, Health


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No runtime of this machine, a cache of its own, verdicts and variables of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OCL_ICD_VENDORS", "as it was")
    monkeypatch.delenv("OCLGEN_RUNTIMES", raising=False)
    monkeypatch.setenv(loader.FILENAMES, "")
    runtimes.prepare.cache_clear()
    yield
    runtimes.prepare.cache_clear()


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Intel's runtime as its wheel for Windows has it: below Library, beside what it needs."""
    folder = tmp_path / "Library" / "bin"
    folder.mkdir(parents=True)
    names = ("OpenCL.dll", "common_clang64.dll", "intelocl64.dll")
    files = [SimpleNamespace(name=name, locate=lambda one=folder / name: one) for name in names]

    def of_package(package: str) -> list[SimpleNamespace]:
        if package != "intel-opencl-rt":
            raise metadata.PackageNotFoundError(package)
        return files

    monkeypatch.setattr(metadata, "files", of_package)
    return folder / "intelocl64.dll"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The libraries that are loaded, none of which is there."""
    seen: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda library: seen.append(library))
    return seen


def test_windows_offers_what_packages_brought_beside_the_registrys(
    packaged: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "pathsep", ";")
    monkeypatch.setenv(loader.FILENAMES, r"C:\own\driver.dll")
    device = DeviceHealth("P", "OpenCL 3.0 P", "bad one", "1", "wrong results")
    monkeypatch.setattr(health, "check", lambda library, fresh: Health((device,)))
    (runtime,) = runtimes.prepare()
    assert (runtime.library, runtime.usable) == (str(packaged), True)
    assert loaded == [str(packaged)]  # by Python, which looks beside it for what it needs
    assert os.environ[loader.FILENAMES] == rf"{packaged};C:\own\driver.dll"
    assert os.environ["OCL_ICD_VENDORS"] == "as it was"
    assert runtimes.is_broken("OpenCL 3.0 P", "bad one")


def test_windows_leaves_out_what_cannot_be_loaded(
    packaged: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(health, "check", lambda library, fresh: Health(problem="it crashed"))
    (runtime,) = runtimes.prepare()
    assert not runtime.usable
    assert loaded == []
    assert os.environ[loader.FILENAMES] == ""


def test_linux_takes_the_other_library_of_the_package(
    packaged: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors" / "one.icd").write_text("libone.so", encoding="utf-8")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "vendors"))
    monkeypatch.setattr(runtimes, "_bundled", list)
    assert list(runtimes.find()) == ["libone.so", str(packaged)]
    monkeypatch.setattr(sys, "platform", "win32")  # where nothing reads such files
    assert list(runtimes.find()) == [str(packaged)]


def test_macos_has_one_opencl_and_nothing_is_prepared(
    packaged: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert runtimes.prepare() == ()
    runtimes.claim_loader()
    assert loaded == []
    assert os.environ["OCL_ICD_VENDORS"] == "as it was"
    assert not runtimes.is_broken("OpenCL 1.2", "Apple M1")
    assert runtimes.is_timed("OpenCL 1.2", "Apple M1")


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_shim_reaches_opencl_through_what_each_system_searches(
    platform: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    module = tmp_path / "pyopencl" / "_cl.extension"
    if platform != "win32":
        assert loader.entry_library(module) == str(module)
        return
    assert loader.entry_library(module) == "OpenCL.dll"
    carried = tmp_path / "pyopencl.libs" / "opencl-9c0d85.dll"
    carried.parent.mkdir()
    (carried.parent / "msvcp140-a4c222.dll").touch()
    carried.touch()
    assert loader.entry_library(module) == str(carried)


def test_a_child_that_tries_a_library_on_windows_asks_for_no_signal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Windows has neither alarms nor limits of resources; the child is ended by its parent."""
    import signal

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(signal, "alarm")
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(sys, "argv", ["health", "some.dll", "vdpbf16ps"])
    monkeypatch.setattr(health, "_examine", lambda library, instruction: Health(problem="tried"))
    ends: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    health.main()
    assert ends == [0]
    assert '"problem": "tried"' in capsys.readouterr().out


def test_a_crash_on_windows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert health._death(0xC0000005, "") == "it crashed its process (exit code 0xC0000005)"
