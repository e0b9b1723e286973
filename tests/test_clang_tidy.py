"""clang-tidy finds nothing in the C++: `pytest -m tidy tests/test_clang_tidy.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import samples

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests/csrc"
ROOMS = sorted(path for path in (ROOT / "ocl_backend/csrc").iterdir() if path.is_dir())
SHALLOW = ["-Xclang", "-analyzer-config", "-Xclang", "mode=shallow"]
"""The static analyzer goes a few calls deep: the whole search takes eight times as long."""


def sources() -> list[Path]:
    return [path for room in (*ROOMS, TESTS) for path in sorted(room.glob("*.cpp"))]


def joined(folder: Path) -> dict[Path, list[Path]]:
    """Write one unit for each room, and return the files whose texts follow each other in it.

    A file alone takes seconds for torch's headers. Included files will not do: of these, the
    analyzer looks at nothing that the unit itself does not call. The tests' `main` compiles what a
    header brings, and stays alone.
    """
    rooms = {room.name: sorted(room.glob("*.cpp")) for room in ROOMS}
    rooms["tests"] = [path for path in sorted(TESTS.glob("*.cpp")) if path.name != "main.cpp"]
    rooms["main"] = [TESTS / "main.cpp"]
    units = {folder / f"{name}.cpp": files for name, files in rooms.items()}
    for unit, files in units.items():
        unit.write_text("".join(path.read_text() for path in files))
    return units


def in_files(findings: str, unit: Path, files: list[Path]) -> str:
    """Return a unit's findings with the file and line that each is about."""
    lines = [
        f"{path}:{number}"
        for path in files
        for number in range(1, len(path.read_text().splitlines()) + 1)
    ]
    of_unit = re.compile(rf"^{re.escape(str(unit))}:(\d+)", re.MULTILINE)
    return of_unit.sub(lambda found: lines[int(found[1]) - 1], findings)


def findings(unit: Path, before: list[str], after: list[str]) -> str:
    """Return what clang-tidy says of a unit, nothing if it finds nothing."""
    from ocl_backend.runtime import compiling, shim

    tool = Path(sysconfig.get_path("scripts")) / "clang-tidy"
    assert tool.exists(), "pip install -e '.[test]' brings clang-tidy in the version that counts"
    # older compilers than ours take C++17, and others than g++ no extensions of g++
    standard = ["-std=c++17", "-pedantic"]
    standard.append("-Wno-variadic-macro-arguments-omitted")  # as torch's macros do
    options = ["--", *compiling.flags(shim.installed()), *standard, f"-I{TESTS}", *after]
    command: list[str | Path]
    command = [tool, "--quiet", f"--config-file={ROOT / '.clang-tidy'}", *before, unit, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout or done.stderr if done.returncode else ""


def test_no_file_includes_a_header_twice() -> None:
    """What clang-tidy cannot see where the texts of files follow each other."""
    for path in sources():
        named = re.findall(r'^#include ["<]([^">]+)', path.read_text(), re.MULTILINE)
        assert len(named) == len(set(named)), path


def test_findings_name_files(tmp_path: Path) -> None:
    unit, files = tmp_path / "unit.cpp", [tmp_path / "a.cpp", tmp_path / "b.cpp"]
    for path in files:
        path.write_text("one\ntwo\n")
    assert in_files(f"{unit}:3:7: error: x\n", unit, files) == f"{files[1]}:1:7: error: x\n"


@pytest.mark.tidy
@pytest.mark.timeout(1800)  # seconds: parses torch's headers, in a thorough run for each file
def test_cpp_has_no_finding_of_clang_tidy(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if "tidy" not in pytestconfig.getoption("markexpr"):
        pytest.skip("takes a minute; `pytest -m tidy` runs it")

    def of_room(unit: Path) -> str:
        found = findings(unit, ["--checks=-readability-duplicate-include"], SHALLOW)
        return in_files(found, unit, units[unit])

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        if samples.THOROUGH:
            found = list(workers.map(lambda path: findings(path, [], []), sources()))
        else:
            units = joined(tmp_path)
            found = list(workers.map(of_room, units))
    assert found
    assert not any(found), "\n".join(filter(None, found))
