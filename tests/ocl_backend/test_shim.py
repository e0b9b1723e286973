"""The shim is a wheel's or compiled once, by torch and source; an error says what to do."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ocl_backend.runtime import compiling, shim
from ocl_backend.runtime.compiling import Torch, prebuilt_name


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, which the shim is then made of."""
    folder = tmp_path / "csrc"
    shutil.copytree(compiling.SOURCES, folder)
    monkeypatch.setattr(compiling, "SOURCES", folder)
    return folder


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a wheel's shims, empty."""
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    monkeypatch.setattr(compiling, "PREBUILT", folder)
    return folder


def test_a_second_import_compiles_nothing() -> None:
    first = shim.path()
    before = first.stat().st_mtime_ns
    done = subprocess.run(
        [sys.executable, "-c", "import ocl_backend"], capture_output=True, text=True, check=True
    )
    assert "compiling" not in done.stderr
    assert first.stat().st_mtime_ns == before


def test_it_is_compiled_elsewhere_where_home_is_read_only(
    changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (changed / "runtime/opencl.cpp").write_text("// changed\n")
    made: list[Path] = []
    monkeypatch.setattr(compiling, "compile_shim", lambda path, _: made.append(path))
    with pytest.raises(compiling.ShimError, match="cannot load"):
        shim.compiled()
    assert tmp_path in made[0].parents and made[0].name == shim.cached_path().name


def test_the_cache_key_follows_sources_and_torch(
    changed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {shim.cached_path()}
    (changed / "runtime/opencl.cpp").write_text("// changed\n")
    paths.add(shim.cached_path())
    monkeypatch.setattr("torch.__version__", "2.99.0")
    paths.add(shim.cached_path())
    assert len(paths) == 3


@pytest.mark.parametrize(("platform", "same"), [("linux", True), ("darwin", False)])
def test_one_shim_serves_every_environment_with_this_torch(
    platform: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS it holds the path of torch's libraries."""
    monkeypatch.setattr(sys, "platform", platform)
    here = shim.cached_path()
    shutil.copytree(compiling.SOURCES, tmp_path / "site-packages" / "csrc")
    monkeypatch.setattr(compiling, "SOURCES", tmp_path / "site-packages" / "csrc")
    assert shim.cached_path() == here
    monkeypatch.setattr("torch.__file__", str(tmp_path / "site-packages" / "torch" / "__init__.py"))
    assert (shim.cached_path() == here) is same


def own_name() -> str:
    name = prebuilt_name(shim.installed())
    if name is None:
        pytest.skip(f"no wheel carries a shim for torch {shim.installed().version}")
    return name


def test_a_shim_of_the_wheel_is_loaded_before_any_other(carried: Path) -> None:
    (carried / own_name()).symlink_to(shim.path())
    found = shim.prebuilt()
    assert found is not None
    assert found._name == str(carried / own_name())


@pytest.mark.parametrize(
    ("version", "same"),
    [
        ("2.13.0", True),
        ("2.13.1+cpu", True),
        ("2.13.0+cu130", True),
        ("2.13.0+rocm7.1", True),
        ("2.12.1", False),
        ("2.1.3", False),
        ("2.13.0.dev20260401+cpu", False),
        ("2.13.0rc2", False),
        ("2.13.0a0+git1234567", False),
        ("2.13.0+gentoo", False),
    ],
)
def test_releases_of_a_minor_version_share_a_shim(version: str, same: bool) -> None:
    here = Path()
    assert (prebuilt_name(Torch(version, here)) == prebuilt_name(Torch("2.13.0", here))) is same


def test_a_shim_of_other_sources_machines_or_strings_is_left_alone(
    carried: Path, changed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = shim.installed()
    names = {own_name(), prebuilt_name(Torch(ours.version, ours.folder, not ours.cxx11_abi))}
    (carried / own_name()).symlink_to(shim.path())
    assert shim.prebuilt() is not None
    with monkeypatch.context() as other:
        other.setattr("sysconfig.get_platform", lambda: "linux-riscv64")
        names.add(own_name())
        assert shim.prebuilt() is None
    (changed / "runtime/opencl.h").rename(changed / "runtime/opencl2.h")
    names.add(own_name())
    assert shim.prebuilt() is None
    assert len(names) == 4


def test_where_the_wheels_shim_does_not_load_another_is_compiled(
    carried: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (carried / own_name()).write_bytes(b"no library")
    monkeypatch.setattr("ocl_autoload.library", None)
    another = ctypes.PyDLL(None)
    monkeypatch.setattr(shim, "compiled", lambda: another)
    assert shim.library.__wrapped__() is another
    assert f"{own_name()} of this installation is of no use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("minors", "told"),
    [
        ((), r"does not bring it compiled.*'no-such-compiler' was not found.*g\+\+.*CXX\.$"),
        ((9, 12), r"for torch 2\.9, 2\.12 alone.*g\+\+.*CXX, or one of these versions of torch\.$"),
    ],
)
def test_a_missing_compiler_is_named_with_the_remedy(
    minors: tuple[int, ...], told: str, carried: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minor in minors:
        (carried / f"ocl-torch2.{minor}-cxx11-test-0.so").touch()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(compiling.ShimError, match=told):
        compiling.compile_shim(carried / "shim.so", shim.installed())


def test_a_failing_compiler_shows_its_errors_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "broken.cpp").write_text("int main( { return nonsense; }\n")
    monkeypatch.setattr(compiling, "SOURCES", sources)
    target = tmp_path / "out" / "shim.so"
    target.parent.mkdir()
    with pytest.raises(compiling.ShimError, match=r"broken\.cpp:1.*error"):
        compiling.compile_shim(target, shim.installed())
    assert list(target.parent.iterdir()) == []
