"""Speaks to the dynamic linker and to pyopencl's ICD loader; knows no runtime by name.

On Linux the loader reads `OCL_ICD_VENDORS` (a folder of `.icd` files, each naming one library) when
it is first called, and the `.libs` folder of `PYOPENCL_HOME` besides. On Windows it reads the
registry, and `OCL_ICD_FILENAMES` (paths) besides. macOS has one OpenCL and no loader.
"""

from __future__ import annotations

import ctypes
import getpass
import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from oclgen.files import write_atomically

NEEDED_FIRST = ("libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so", "libtbb.so.12")
"""Libraries a runtime from a Python package needs and that lie beside it, where its own search
path does not look; once loaded, the linker finds them by name."""

FILENAMES = "OCL_ICD_FILENAMES"
"""Environment variable of the Khronos loader, which pyopencl carries on Windows."""

CACHE_BYTES = 1 << 16
"""More than what pyopencl's cache is made with."""


def load(library: str) -> str | None:
    """Load a runtime's library, as the ICD loader will; return the linker's complaint or None."""
    preload(library)
    return _try_load(library)


def preload(library: str) -> None:
    """Load the libraries beside `library` that must be loaded before it.

    On Windows that is all it needs: Python looks beside a library for those, the loader does not.
    """
    if sys.platform == "win32":
        _try_load(library)
        return
    folder = Path(library).parent
    for needed in NEEDED_FIRST if folder.is_absolute() else ():
        if (folder / needed).exists():
            _try_load(str(folder / needed))


def _try_load(library: str) -> str | None:
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return str(error)
    return None


def offer(libraries: Sequence[str]) -> Path:
    """Make these libraries all that the ICD loader sees; return the folder that lists them.

    The folder lies in the user's cache and is named after its content, so it is written once. On
    Windows the loader sees these beside what the registry lists.

    Raises:
        OSError: neither the user's cache nor the temporary folder can be written.
    """
    digest = hashlib.sha256("\n".join(libraries).encode()).hexdigest()[:16]
    name = f"vendors/{digest}"
    folder = cache_folder(name)
    try:
        _list(libraries, folder)
    except OSError:  # the disk is full, or the folder is another user's
        folder = temporary_folder(name)
        _list(libraries, folder)
    _spare_cache()
    if sys.platform == "win32":
        given = os.environ.get(FILENAMES, "").split(os.pathsep)
        paths = dict.fromkeys([*libraries, *filter(None, given)])
        os.environ[FILENAMES] = os.pathsep.join(paths)
    else:
        os.environ["OCL_ICD_VENDORS"] = str(folder)
    return folder


def _list(libraries: Sequence[str], folder: Path) -> None:
    for index, library in enumerate(libraries):
        target = folder / f"{index:02d}-{Path(library).stem}.icd"
        if not target.exists():
            write_atomically(target, library + "\n")


def _spare_cache() -> None:
    """Let pyopencl do without its cache if that cannot be written: its import would fail."""
    folder = platformdirs.user_cache_path("pytools", "pytools")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(CACHE_BYTES))
    except OSError:
        os.environ.setdefault("PYOPENCL_NO_CACHE", "1")


def claim(folder: Path) -> None:
    """Keep pyopencl to what `offer` listed; call after importing it, before using it.

    It would also load `pyopencl/.libs/*.icd`, which `oclgen.opencl.runtimes` lists like all others,
    so that a broken one can be left out. pyopencl sets the variable at import, and the loader
    crashes where it is unset. A binary cache that cannot be written must be no error either:
    pyopencl 2026.1 reads the second variable without a default.
    """
    os.environ["PYOPENCL_HOME"] = str(folder)
    os.environ.setdefault("PYOPENCL_CACHE_FAILURE_FATAL", "")


def entry_library(module: Path) -> str:
    """Return the library through which pyopencl's extension `module` reaches OpenCL.

    On Linux and macOS names are looked up in what a library loads, too, so that the module serves.
    Windows looks in the library alone: in the loader that pyopencl's wheel carries, else in the
    system's.
    """
    if sys.platform != "win32":
        return str(module)
    carried = sorted((module.parents[1] / "pyopencl.libs").glob("opencl*.dll"))
    return str(carried[0]) if carried else "OpenCL.dll"


def cache_folder(name: str) -> Path:
    """Return a folder in the user's cache, or in the temporary one where home is read-only."""
    folder = platformdirs.user_cache_path("oclgen") / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return temporary_folder(name)
    return folder


def writable_folder(name: str) -> Path:
    """Return `cache_folder`, or the temporary one if there is one that cannot be written."""
    folder = cache_folder(name)
    return folder if os.access(folder, os.W_OK) else temporary_folder(name)


def temporary_folder(name: str) -> Path:
    """Return a folder of this user's in the system's temporary one.

    Raises:
        PermissionError: it is another user's, who could put libraries there.
    """
    folder = Path(tempfile.gettempdir())
    if sys.platform == "win32":
        own = folder / f"oclgen-{getpass.getuser()}"
        own.mkdir(exist_ok=True)
    else:  # a container may run as a user without a name
        own = folder / f"oclgen-{os.getuid()}"
        own.mkdir(mode=0o700, exist_ok=True)
        if own.lstat().st_uid != os.getuid():
            raise PermissionError(
                f"{own} belongs to another user; set XDG_CACHE_HOME to a folder that you can write"
            )
    folder = own / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
