"""Finds the native shim of `csrc/` for the torch of this process, compiled if need be; loads it.

It knows wheels and caches, not devices: nothing here calls OpenCL.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

import filelock
import platformdirs
import torch

import ocl_autoload
from ocl_backend.runtime import compiling


@cache
def library() -> ctypes.PyDLL:
    """Return the loaded shim: the wheel's, or else compiled once for this torch (30 to 120 s).

    It is a `PyDLL`: its functions keep the interpreter lock, since all of them return at once.
    What waits for a device is reached through torch's operators, which release it.

    Raises:
        ShimError: there is no compiler, or it failed; the message carries its first errors.
    """
    return ocl_autoload.library or prebuilt() or compiled()


def last_error() -> str:
    """Return the text of the shim's last failure in this thread."""
    read = library().ocl_last_error
    read.restype = ctypes.c_char_p
    text: bytes = read()
    return text.decode()


def path() -> Path:
    """Return the file of the loaded shim."""
    return Path(library()._name)


def is_of_these_sources() -> bool:
    """Whether the loaded shim was made from the sources as they are now: they may have changed."""
    return path().parent == compiling.PREBUILT or path().name == cached_path().name


def installed() -> compiling.Torch:
    """Return the torch of this process, to compile for."""
    abi = torch.compiled_with_cxx11_abi()
    return compiling.Torch(torch.__version__, Path(torch.__file__).parent, abi)


def prebuilt() -> ctypes.PyDLL | None:
    """Return the wheel's shim for this torch and these sources, None where none can be loaded.

    A shim that is there may still not load, as where the system's libc is older than its own.
    """
    name = compiling.prebuilt_name(installed())
    if name is None or not (compiling.PREBUILT / name).exists():
        return None
    try:
        return ctypes.PyDLL(str(compiling.PREBUILT / name))
    except OSError as error:
        print(f"ocl_backend: {name} of this installation is of no use: {error}", file=sys.stderr)
        return None


def compiled() -> ctypes.PyDLL:
    """Return the shim from the user's cache, where it is compiled to if it is not there.

    If nothing can be written there, the system's temporary folder takes its place.

    Raises:
        ShimError: it could not be compiled or loaded.
    """
    path = cached_path()
    if not path.exists():
        from oclgen.opencl import loader  # a shim that is there needs nothing of it

        path = loader.writable_folder(path.parent.name) / path.name
    if not path.exists():
        with filelock.FileLock(path.with_suffix(".lock")):
            if not path.exists():
                started = f"ocl_backend: compiling for torch {torch.__version__}, once ..."
                print(started, file=sys.stderr)
                compiling.compile_shim(path, installed())
    try:
        return ctypes.PyDLL(str(path))
    except OSError as error:
        raise compiling.ShimError(
            f"cannot load {path}: {error}. Delete the file and import again."
        ) from error


def cached_path() -> Path:
    """Return where the shim of this torch, these sources and these flags lies, once compiled.

    It holds no path of sources or of torch, so that one serves every environment with this torch;
    macOS's names torch's libraries by their path.
    """
    ours, tools = installed(), compiling.tools()
    parts = (ours.version, sys.platform, tools.flags, ours.cxx11_abi, *tools.bound_to(ours.folder))
    digest = compiling.digest(*parts)
    name = f"ocl-torch{torch.__version__}-{digest}{compiling.tools().suffix}"
    return platformdirs.user_cache_path("oclgen") / "shim" / name
