"""What the loader is offered, and folders where home is read-only or full."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from oclgen.files import write_atomically
from oclgen.opencl import loader

USE = """
from oclgen.opencl.device import devices
from oclgen.opencl.exclusive import locks
import pyopencl.invoker
from filelock import FileLock

for _, path in locks(devices()):
    with FileLock(path):
        print(path)
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A temporary folder of the test, where offers leave the environment as it was."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    for name in ("OCL_ICD_VENDORS", loader.FILENAMES, "PYOPENCL_NO_CACHE"):
        monkeypatch.setenv(name, "")  # such that it is restored
        monkeypatch.delenv(name)
    return folder


def test_devices_are_used_without_a_home(device: Any, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.touch()  # no folder can be made in a file, even by root
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "TMPDIR": str(tmp_path)}
    used = subprocess.run(
        [sys.executable, "-c", USE], env=environment, capture_output=True, text=True, check=True
    )
    assert str(tmp_path) in used.stdout


def test_runtimes_are_offered_from_elsewhere_where_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def write(target: Path, text: str) -> None:
        if temporary not in target.parents:
            raise OSError("No space left on device")
        write_atomically(target, text)

    monkeypatch.setattr(loader, "write_atomically", write)
    folder = loader.offer(["/a/libone.so", "/b/libtwo.so"])
    assert temporary in folder.parents and os.environ["OCL_ICD_VENDORS"] == str(folder)
    assert sorted(path.read_text() for path in folder.iterdir()) == [
        "/a/libone.so\n",
        "/b/libtwo.so\n",
    ]


@pytest.mark.parametrize("works", [True, False])
def test_pyopencl_has_no_cache_where_it_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path, works: bool
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir() if works else cache.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    loader.offer([])
    assert ("PYOPENCL_NO_CACHE" in os.environ) is not works


@pytest.mark.skipif(sys.platform == "win32", reason="files have no owner's number there")
def test_a_temporary_folder_of_another_user_is_refused(
    monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    assert loader.temporary_folder("vendors/1").is_dir()
    unknown = os.getuid() + 4711  # one without a name, as in some containers
    monkeypatch.setattr(os, "getuid", lambda: unknown)
    (temporary / f"oclgen-{unknown}").mkdir()
    with pytest.raises(PermissionError, match="XDG_CACHE_HOME"):
        loader.temporary_folder("vendors/1")
