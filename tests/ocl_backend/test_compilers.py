"""The shim's compiler on each system, by its command lines; g++ alone is called."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ocl_backend.runtime import compiling, shim
from ocl_backend.runtime.compiling import Torch

TORCH = Torch("2.13.0", Path("torch"))


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that compile and link, in their order; they leave what they are to make."""
    seen: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(command)
        made = [part.removeprefix("/Fe") for part in command if part.startswith("/Fe")]
        made += [out for before, out in pairwise(command) if before == "-o"]
        for path in made:
            Path(path).touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda compiler: compiler)
    monkeypatch.setattr(subprocess, "run", run)
    return seen


@pytest.mark.parametrize(
    ("platform", "compiler", "suffix"),
    [("linux", "g++", ".so"), ("darwin", "clang++", ".dylib"), ("win32", "cl", ".dll")],
)
def test_each_system_has_its_compiler_and_name(
    platform: str,
    compiler: str,
    suffix: str,
    commands: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    target = tmp_path / f"shim{suffix}"
    compiling.compile_shim(target, TORCH)
    units = [path for path in compiling.sources() if path.suffix == ".cpp"]
    assert len(commands) == len(compiling.joined(units, tmp_path)) + 1
    assert {command[0] for command in commands} == {compiler}
    assert target.exists()
    assert str(shim.cached_path()).endswith(suffix)
    assert str(compiling.prebuilt_name(TORCH)).endswith(suffix)


def test_each_unit_is_compiled_once(tmp_path: Path) -> None:
    units = [path for path in compiling.sources() if path.suffix == ".cpp"]
    together = compiling.joined(units, tmp_path)
    alone = [path for path in together if path in units]
    assert {path.name for path in alone} == {*compiling.ALONE}
    texts = "".join(path.read_text(encoding="utf-8") for path in together if path not in units)
    included = [Path(path) for path in re.findall(r'^#include "(.*)"$', texts, re.MULTILINE)]
    assert sorted([*alone, *included]) == units


def linked(commands: list[list[str]], tmp_path: Path, *more: str) -> list[str]:
    compiling.compile_shim(tmp_path / "shim", TORCH, more)
    return commands[-1]


def test_msvc_is_told_what_the_library_offers(
    commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    link = linked(commands, tmp_path, "/more")
    split = link.index("/link")  # what stands before is cl's, what stands after the linker's
    assert "/MD" in link[:split]  # the C library that torch uses
    assert {"torch_cpu.lib", "c10.lib", f"/LIBPATH:{Path('torch/lib')}"} <= set(link[split:])
    assert link[split + 1] == "/DLL"
    assert "/more" in link[split:]
    assert "/EXPORT:ocl_register" in link[split:]
    assert all(part.startswith("/") for part in commands[0][1:] if not part.endswith(".cpp"))
    assert not [part for part in link if part.startswith("-")]


def test_macos_notes_where_torchs_libraries_lie(
    commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    link = linked(commands, tmp_path)
    assert {"-dynamiclib", f"-Wl,-rpath,{Path('torch/lib')}"} <= set(link)
    assert not {"-ldl", "-l:libstdc++.so.6", "-shared"} & set(link)


def test_the_functions_that_windows_is_told_are_those_of_the_shim() -> None:
    names = compiling.entries(compiling.sources())
    library = ctypes.CDLL(str(shim.path()))
    assert [name for name in names if not hasattr(library, name)] == []
    package = compiling.SOURCES.parent
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    texts.append(Path(package.parent, "ocl_autoload.py").read_text(encoding="utf-8"))
    used = {name for text in texts for name in re.findall(r"\.(ocl_[a-z_]+)\b", text)}
    asked = {name for name in used if hasattr(library, name)}
    assert len(asked) > 40
    assert asked <= set(names)


@pytest.mark.parametrize(
    ("platform", "remedy"),
    [
        ("linux", "apt install g++"),
        ("darwin", "xcode-select --install"),
        ("win32", "x64 Native Tools prompt"),
    ],
)
def test_a_missing_compiler_is_told_with_the_systems_remedy(
    platform: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(shutil, "which", lambda compiler: None)
    with pytest.raises(compiling.ShimError) as raised:
        compiling.compile_shim(tmp_path / "shim", TORCH)
    assert remedy in str(raised.value)


def test_errors_that_msvc_prints_to_its_output_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    failed = subprocess.CompletedProcess([], 2, "a.cpp(3): error C2065: 'x': undeclared\n", "")
    monkeypatch.setattr(shutil, "which", lambda compiler: compiler)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(compiling.ShimError, match="error C2065"):
        compiling.compile_shim(tmp_path / "shim.dll", TORCH)
