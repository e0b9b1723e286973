"""Speaks to the dynamic linker and to pyopencl's ICD loader; knows no runtime by name.

The loader reads `OCL_ICD_VENDORS` (a folder of `.icd` files, each naming one library) when it is
first called, and the `.libs` folder of `PYOPENCL_HOME` besides.
"""

from __future__ import annotations

import ctypes
import getpass
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from oclgen.files import write_atomically

NEEDED_FIRST = ("libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so", "libtbb.so.12")
"""Libraries a runtime from a Python package needs and that lie beside it, where its own search
path does not look; once loaded, the linker finds them by name."""


def load(library: str) -> str | None:
    """Load a runtime's library, as the ICD loader will; return the linker's complaint or None."""
    preload(library)
    return _try_load(library)


def preload(library: str) -> None:
    """Load what lies beside `library` and must be there before it."""
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

    The folder lies in the user's cache and is named after its content, so it is written once.
    """
    digest = hashlib.sha256("\n".join(libraries).encode()).hexdigest()[:16]
    folder = cache_folder(f"vendors/{digest}")
    for index, library in enumerate(libraries):
        target = folder / f"{index:02d}-{Path(library).stem}.icd"
        if not target.exists():
            write_atomically(target, library + "\n")
    os.environ["OCL_ICD_VENDORS"] = str(folder)
    return folder


def claim(folder: Path) -> None:
    """Keep pyopencl to what `offer` listed; call after importing it, before using it.

    It would also load `pyopencl/.libs/*.icd`, which `oclgen.opencl.runtimes` lists like all others,
    so that a broken one can be left out. pyopencl sets the variable at import, and the loader
    crashes where it is unset. A binary cache that cannot be written must be no error either:
    pyopencl 2026.1 reads the second variable without a default.
    """
    os.environ["PYOPENCL_HOME"] = str(folder)
    os.environ.setdefault("PYOPENCL_CACHE_FAILURE_FATAL", "")


def cache_folder(name: str) -> Path:
    """Return a folder in the user's cache, or in the temporary one where home is read-only."""
    folder = platformdirs.user_cache_path("oclgen") / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"oclgen-{getpass.getuser()}" / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
