"""The shim's runtime and fusion by themselves: tests/csrc, against an OpenCL of its own.

With every test, the tests' own files are compiled, with the shim as their library. The two builds
with sanitizers compile the shim's files, too, and take minutes: `pytest -m sanitizers`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from ocl_backend.runtime import compiling, shim

TESTS = Path(__file__).parents[1] / "csrc"
TORCH_LIBRARIES = Path(torch.__file__).parent / "lib"
COMPILER = os.environ.get("CXX") or "g++"
BUILDS = {
    "plain": ("-O0",),
    "address": ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-O1", "-g1", "-fsanitize=thread"),
}
"""Options of the compiler, by name of the build. A report needs lines alone, and neither `-O2` nor
whole debug information: they take 50 % more time."""

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="there is no C++ compiler")


def has_doctest() -> bool:
    code = "#include <doctest/doctest.h>\n"
    command = [COMPILER, "-fsyntax-only", "-x", "c++", "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True).returncode == 0


def joined(folder: Path) -> list[Path]:
    """Return units with all tests: one for `main`, and one that reads torch's headers once.

    Each of a dozen files alone would take the compiler two to three seconds for them, with a
    sanitizer six to ten.
    """
    main = TESTS / "main.cpp"
    together = folder / "together.cpp"
    others = [unit for unit in sorted(TESTS.glob("*.cpp")) if unit != main]
    together.write_text("".join(f'#include "{unit}"\n' for unit in others))
    return [main, together]


def environment() -> dict[str, str]:
    """Say which reports are of torch's libraries, whose loads and stores no sanitizer sees."""
    return os.environ | {
        "TSAN_OPTIONS": f"suppressions={TESTS / 'tsan.supp'} halt_on_error=0 exitcode=66",
        "LSAN_OPTIONS": f"suppressions={TESTS / 'lsan.supp'}",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


@pytest.mark.timeout(1200)  # seconds: with a sanitizer, two dozen files that include torch
@pytest.mark.parametrize(
    "name",
    [
        "plain",
        pytest.param("address", marks=pytest.mark.sanitizers),
        pytest.param("thread", marks=pytest.mark.sanitizers),
    ],
)
def test_runtime_and_fusion_hold_by_themselves(
    name: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    if name != "plain" and "sanitizers" not in pytestconfig.getoption("markexpr"):
        pytest.skip("takes minutes; `pytest -m sanitizers` runs it")
    if not has_doctest():
        remedy = "tests/csrc needs doctest/doctest.h (Debian, Ubuntu: apt install doctest-dev)"
        # CI installs it; a newcomer's first run of all tests does not depend on it
        pytest.fail(remedy) if os.environ.get("CI") else pytest.skip(remedy)
    program, units = tmp_path / name, joined(tmp_path)
    linking = [f"-Wl,-rpath,{TORCH_LIBRARIES}"]
    if name == "plain":
        linking += ["-Wl,--no-as-needed", str(shim.path())]  # it stands before its users
    else:
        folders = compiling.SOURCES / "runtime", compiling.SOURCES / "fusion"
        checked = sorted(unit for folder in folders for unit in folder.glob("*.cpp"))
        units += compiling.joined(checked, tmp_path)
    options = [f"-I{TESTS}", *BUILDS[name]]
    compiling.build(program, units, shim.installed(), options, linking)
    done = subprocess.run([program], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, f"{name}: status {done.returncode}\n{done.stdout}{done.stderr}"
    assert "0 failed" in done.stdout, done.stdout
