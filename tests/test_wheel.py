"""What sdist and wheel contain, and how a wheel with compiled shims is tagged."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STEM = f"oclgen-{PROJECT['version']}"
FOLDERS = ("cli", "ocl_backend", "oclgen", "search_spaces", "tuned_db")
FILES = ("LICENSE", "MANIFEST.in", "README.md", "ocl_autoload.py", "pyproject.toml", "setup.py")
SHIM = "ocl_backend/runtime/prebuilt/ocl-torch2.99-cxx11-test-0123456789ab.so"
IGNORED = shutil.ignore_patterns("__pycache__", "prebuilt", "*.egg-info")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packed, and of a test, which is not; setuptools writes beside sources."""
    folder = tmp_path_factory.mktemp("tree")
    for name in FILES:
        shutil.copy2(ROOT / name, folder)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=IGNORED)
    (folder / "tests").mkdir()
    shutil.copy2(__file__, folder / "tests")
    return folder


@pytest.fixture(scope="module")
def packed(tree: Path) -> set[str]:
    """Every file that the tree's packages hold, by its name in a wheel."""
    files = {p.relative_to(tree).as_posix() for n in FOLDERS for p in (tree / n).rglob("*.*")}
    files = {name for name in files if (tree / name).is_file()}
    return {re.sub("^cli/", "oclgen_cli/", name) for name in files} | {"ocl_autoload.py"}


def wheel(tree: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    done = subprocess.run(
        [*command, "-w", str(out), str(tree)], cwd=out, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (made,) = out.glob("*.whl")
    return made


def contents(path: Path) -> tuple[set[str], str]:
    """Return the files of a wheel, without those about it, and its file WHEEL."""
    about = f"{STEM}.dist-info"
    with ZipFile(path) as opened:
        names = {name for name in opened.namelist() if not name.endswith("/")}
        beside = {name for name in names if name.startswith(about)}
        assert beside == {
            f"{about}/{name}"
            for name in (
                "METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE",
                "top_level.txt",
            )
        }  # fmt: skip
        return names - beside, opened.read(f"{about}/WHEEL").decode()


def test_a_wheel_without_shims_is_for_every_machine(
    tree: Path, packed: set[str], tmp_path: Path
) -> None:
    made = wheel(tree, tmp_path)
    assert made.name == f"{STEM}-py3-none-any.whl"
    names, told = contents(made)
    assert names == packed
    assert "Root-Is-Purelib: true" in told


def test_a_wheel_with_shims_is_for_one_platform_and_any_python(
    tree: Path, packed: set[str], tmp_path: Path
) -> None:
    target = tree / SHIM
    target.parent.mkdir()
    target.write_bytes(b"a shim")
    try:
        made = wheel(tree, tmp_path)
    finally:
        shutil.rmtree(target.parent)
    platform = re.sub("[-.]", "_", sysconfig.get_platform())
    assert made.name == f"{STEM}-py3-none-{platform}.whl"
    names, told = contents(made)
    assert names == packed | {SHIM}
    assert "Root-Is-Purelib: false" in told
    with ZipFile(made) as opened:
        metadata = Parser().parsestr(opened.read(f"{STEM}.dist-info/METADATA").decode())
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert metadata.get_payload() == (ROOT / "README.md").read_text()


def test_an_sdist_has_sources_alone(tree: Path, packed: set[str], tmp_path: Path) -> None:
    target = tree / SHIM
    target.parent.mkdir()
    target.write_bytes(b"a shim")
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    try:
        subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, check=True)
    finally:
        shutil.rmtree(target.parent)
    with tarfile.open(tmp_path / f"{STEM}.tar.gz") as opened:
        names = {m.name.removeprefix(f"{STEM}/") for m in opened.getmembers() if m.isfile()}
    made = {name for name in names if name.startswith("oclgen.egg-info/")}
    sources = {re.sub("^oclgen_cli/", "cli/", name) for name in packed}
    assert names - made == sources | set(FILES) | {"PKG-INFO", "setup.cfg"}


def test_a_release_compiles_for_each_minor_version_of_torch_once() -> None:
    text = (ROOT / "release/build").read_text()
    listed = re.search(r'^torches="(.*)"$', text, re.MULTILINE)
    assert listed
    minors = [tuple(map(int, version.split(".")[:2])) for version in listed[1].split()]
    (oldest,) = PROJECT["optional-dependencies"]["torch"]
    first = int(oldest.removeprefix("torch>=2."))
    assert minors == [(2, minor) for minor in range(first, first + len(minors))]
