"""Finds the OpenCL runtimes of this machine and points pyopencl's ICD loader at them.

It loads no runtime and opens no device; `oclgen.device` does, after `prepare()`.

A runtime from a Python package (`intel-opencl-rt`) lies in the environment's `lib` folder, where
no loader looks, with an `.icd` file that names a path of its build machine. `OCL_ICD_VENDORS`
replaces the loader's default folder, so the folder written here lists the system's files too.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import platformdirs

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
PACKAGED = ("libintelocl.so",)
"""Runtimes that PyPI packages put into an environment's `lib` folder."""
NEEDED_FIRST = ("libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so", "libtbb.so.12")
"""Libraries a packaged runtime needs; loaded ahead where its own search path misses them."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """An OpenCL runtime library: its path, where it was found, and why it cannot be loaded."""

    library: str
    origin: str
    problem: str | None = None


def packaged_libraries() -> list[Path]:
    """Return the runtime libraries that Python packages installed, newest environment first."""
    folders = {Path(prefix) / "lib" for prefix in (sys.prefix, sys.base_prefix)}
    return [folder / name for folder in sorted(folders) for name in PACKAGED
            if (folder / name).exists()]  # fmt: skip


def system_icd_files() -> list[Path]:
    """Return the `.icd` files the loader would read without us, in its order.

    The user's `OCL_ICD_VENDORS` (a folder or one file) goes before the system's folder.
    """
    chosen = Path(os.environ.get("OCL_ICD_VENDORS") or SYSTEM_VENDORS)
    if chosen.is_dir():
        return sorted(chosen.glob("*.icd"))
    return [chosen] if chosen.is_file() else []


def find() -> list[Runtime]:
    """Return every runtime of this machine, the broken ones with the reason.

    Libraries named in `OCL_ICD_FILENAMES` come first, then the `.icd` files, then the packages.
    """
    found: dict[str, str] = {}
    for library in filter(None, os.environ.get("OCL_ICD_FILENAMES", "").split(os.pathsep)):
        found.setdefault(library, "OCL_ICD_FILENAMES")
    for icd in system_icd_files():
        library = icd.read_text(errors="replace").strip()
        if library:
            found.setdefault(library, str(icd))
    names = {Path(library).name for library in found if _load_error(library) is None}
    for path in packaged_libraries():
        if path.name not in names:
            found.setdefault(str(path), "Python package")
    return [Runtime(lib, origin, _load_error(lib)) for lib, origin in found.items()]


@cache
def _load_error(library: str) -> str | None:
    """Return the dynamic linker's complaint, or None. Loading is what the ICD loader does next."""
    folder = Path(library).parent
    for needed in NEEDED_FIRST if folder.is_absolute() else ():
        if (folder / needed).exists():
            _try_load(str(folder / needed))
    return _try_load(library)


def _try_load(library: str) -> str | None:
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return str(error)
    return None


@cache
def prepare() -> tuple[Runtime, ...]:
    """Point the ICD loader at every runtime that loads; call before pyopencl is imported.

    Returns all runtimes found, broken ones included, for `oclgen doctor`. Writes one `.icd` file
    per runtime into the user's cache folder and sets `OCL_ICD_VENDORS` to it.
    """
    runtimes = tuple(find())
    usable = [r.library for r in runtimes if r.problem is None]
    if any(r.origin == "Python package" for r in runtimes) or any(r.problem for r in runtimes):
        os.environ["OCL_ICD_VENDORS"] = str(_write_vendors(usable))
        os.environ.pop("OCL_ICD_FILENAMES", None)
    return runtimes


def _write_vendors(libraries: list[str]) -> Path:
    """Write a vendors folder that lists `libraries`; its name follows its content."""
    digest = hashlib.sha256("\n".join(libraries).encode()).hexdigest()[:16]
    folder = platformdirs.user_cache_path("oclgen") / "vendors" / digest
    folder.mkdir(parents=True, exist_ok=True)
    for index, library in enumerate(libraries):
        target = folder / f"{index:02d}-{Path(library).stem}.icd"
        if not target.exists():
            temporary = target.with_suffix(f".{os.getpid()}")
            temporary.write_text(library + "\n")
            temporary.replace(target)
    return folder
