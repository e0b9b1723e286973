"""Rules of the repository that no other tool holds: what is shipped, who imports what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS: dict[str, Any] = PROJECT["tool"]["setuptools"]
TESTED = ("tests", "benchmarks")
SHOWN = ("examples", "docs")
FOLDERS = ("oclgen", "search_spaces", "tuned_db", "ocl_backend", "cli")
PYOPENCL_USERS = {
    "oclgen/opencl/device.py",
    "oclgen/opencl/filling.py",
    "oclgen/opencl/health.py",
    "oclgen/opencl/programs.py",
    "oclgen/opencl/shown.py",
    "ocl_backend/ops/tensor/copies.py",
    "ocl_backend/runtime/memory.py",
}
LONGEST_FILE = 400
LONGEST_FUNCTION = 60


def sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def checked() -> list[Path]:
    """Every Python file that the rules of length hold for."""
    return [
        *sources(),
        *sorted(path for folder in (*TESTED, *SHOWN) for path in (ROOT / folder).rglob("*.py")),
        *sorted(ROOT.glob("*.py")),
    ]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> set[str]:
    """The top-level names of every package that a module imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


NOUNS = (
    "Plan", "Launch", "Step", "Kind", "Layout", "Tiles", "Geometry", "Limits", "Variant",
    "Session", "Setting", "PreparedPlan", "Rule",
)  # fmt: skip


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_has_one_meaning(noun: str) -> None:
    said = re.compile(rf"^(?:class {noun}\b|{noun}(?:: [\w.\[\]]+)? = )", re.MULTILINE)
    meanings = [name_of(path) for path in sources() if said.search(path.read_text())]
    assert len(meanings) == 1, "name the others by what they are of"


LISTED = (
    *("oclgen", "search_spaces", "tuned_db", "ocl_backend"),
    *("tuned_db/choosing", "tuned_db/database", "tuned_db/files", "tuned_db/records"),
    *("tuned_db/service", "tuned_db/storage", "tuned_db/trust", "tuned_db/tuners"),
    "tuned_db/views",
)


@pytest.mark.parametrize("package", LISTED)
def test_a_package_says_where_its_modules_are(package: str) -> None:
    """The list in the package's docstring, by which a newcomer finds them, names every module."""
    folder = ROOT / package
    listed = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = set(re.findall(r"`(\w+)`", listed.partition("modules:")[2]))
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    modules |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert modules, package
    assert modules <= named, f"list these in {package}/__init__.py: {sorted(modules - named)}"
    found = {path.stem for path in folder.iterdir()}
    assert named <= found, f"these are not in {package}: {sorted(named - found)}"


def test_every_package_is_installed() -> None:
    found = {
        path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("__init__.py")
    }
    listed = {"cli" if name == "oclgen_cli" else name for name in SETUPTOOLS["packages"]}
    assert listed == {name for name in found if name != "tuned_db.database.migrations.versions"}


def test_every_data_file_is_shipped() -> None:
    data: dict[str, list[str]] = SETUPTOOLS["package-data"]
    for folder in FOLDERS:
        package = "oclgen_cli" if folder == "cli" else folder
        shipped = {p for glob in data.get(package, []) for p in (ROOT / folder).glob(glob)}
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                assert path in shipped, f"{name_of(path)} is in no package-data"


def test_only_the_doors_to_opencl_import_pyopencl() -> None:
    users = {name_of(p) for p in sources() if "pyopencl" in imports(ast.parse(p.read_text()))}
    assert users <= PYOPENCL_USERS, (
        "these go through oclgen.opencl.device or ocl_backend.runtime.launch"
    )


@pytest.mark.parametrize("module", ["oclgen.families", "oclgen.measurement", "search_spaces.tune"])
def test_everything_left_of_the_measurement_works_without_opencl(module: str) -> None:
    code = f"import sys; sys.modules['pyopencl'] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_files_and_functions_stay_short() -> None:
    found = []
    for path in checked():
        text = path.read_text(encoding="utf-8")
        if (length := len(text.splitlines())) > LONGEST_FILE:
            found.append(f"{name_of(path)} has {length} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    found.append(f"{name_of(path)}: {node.name} has {length} lines")
    assert not found


def templates() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.mako"))


def cpp() -> list[Path]:
    folders = (ROOT / "ocl_backend/csrc", ROOT / "tests/csrc")
    return sorted(p for folder in folders for p in folder.rglob("*") if p.suffix in (".cpp", ".h"))


def test_cpp_files_stay_small() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in cpp()}
    assert lengths
    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE} == {}


ROOMS_BELOW = {
    "runtime": (),
    "profiler": ("runtime",),
    "fusion": ("runtime",),
    "dispatch": ("runtime", "profiler", "fusion"),
}
"""Folders of the shim, and those whose headers each may include beside its own."""


def test_rooms_of_cpp_include_in_one_direction() -> None:
    csrc = ROOT / "ocl_backend/csrc"
    assert {path.name for path in csrc.iterdir()} == set(ROOMS_BELOW)
    for room, below in ROOMS_BELOW.items():
        for path in (csrc / room).iterdir():
            named = set(re.findall(r'^#include "(\w+)/', path.read_text(), re.MULTILINE))
            assert named <= {room, *below}, name_of(path)


def tool_for_cpp(name: str) -> Path:
    tool = Path(sysconfig.get_path("scripts")) / name
    assert tool.exists(), f"pip install -e '.[test]' brings {name} in the version that counts"
    return tool


def test_cpp_is_formatted() -> None:
    tool = tool_for_cpp("clang-format")
    done = subprocess.run(
        [tool, "--dry-run", "--Werror", *cpp()], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"run {tool} -i on these:\n{done.stderr}"


def test_every_template_has_a_legend() -> None:
    assert templates()
    for path in templates():
        assert path.read_text().startswith("<%doc>"), f"{path.name}: say what its parameters are"


def test_templates_stay_short() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in templates()}
    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE} == {}


def test_the_readme_shows_commands_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    for script in re.findall(r"(?:examples|benchmarks|docs)/\w+\.(?:py|md)", readme):
        assert (ROOT / script).is_file(), script
    helped = subprocess.run(
        [sys.executable, "-m", "oclgen_cli", "--help"], capture_output=True, text=True, check=True
    )
    for command in set(re.findall(r"^oclgen ([a-z-]+)", readme, flags=re.MULTILINE)):
        assert re.search(rf"^  {command} ", helped.stdout, flags=re.MULTILINE), command


def documents() -> list[str]:
    return [name_of(path) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])]


@pytest.mark.parametrize("document", documents())
def test_documents_name_files_that_exist(document: str) -> None:
    """What begins with a folder of the repository is a file there."""
    folders = "|".join({*FOLDERS, *TESTED, "docs", "examples", "release", "deploy"})
    suffixes = "py|md|mako|cpp|h|json|toml"
    for name in re.findall(
        rf"`((?:{folders})/[\w/-]+\.(?:{suffixes}))`", (ROOT / document).read_text()
    ):
        assert "NAME" in name or (ROOT / name).is_file(), name


def test_extras_named_in_the_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    extras = {e for found in re.findall(r"\.\[([a-z,]+)\]", readme) for e in found.split(",")}
    assert extras
    assert extras <= set(PROJECT["project"]["optional-dependencies"])
