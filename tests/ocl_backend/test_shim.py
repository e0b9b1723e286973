"""The shim is compiled once per torch and source, and says what to do where it cannot be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ocl_backend.runtime import shim


def test_a_second_import_compiles_nothing() -> None:
    first = shim.cached_path()
    assert first.exists() or shim.library()
    before = first.stat().st_mtime_ns
    done = subprocess.run(
        [sys.executable, "-c", "import ocl_backend"], capture_output=True, text=True, check=True
    )
    assert "compiling" not in done.stderr
    assert first.stat().st_mtime_ns == before


def test_the_cache_key_follows_sources_and_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {shim.cached_path()}
    changed = tmp_path / "csrc"
    shutil.copytree(shim.SOURCES, changed)
    (changed / "runtime/opencl.cpp").write_text("// changed\n")
    monkeypatch.setattr(shim, "SOURCES", changed)
    paths.add(shim.cached_path())
    monkeypatch.setattr("torch.__version__", "2.99.0")
    paths.add(shim.cached_path())
    assert len(paths) == 3


def test_a_missing_compiler_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(shim.ShimError, match=r"'no-such-compiler' was not found.*g\+\+.*CXX"):
        shim.compile_shim(tmp_path / "shim.so")


def test_a_failing_compiler_shows_its_errors_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "broken.cpp").write_text("int main( { return nonsense; }\n")
    monkeypatch.setattr(shim, "SOURCES", sources)
    target = tmp_path / "out" / "shim.so"
    target.parent.mkdir()
    with pytest.raises(shim.ShimError, match=r"broken\.cpp:1.*error"):
        shim.compile_shim(target)
    assert list(target.parent.iterdir()) == []
