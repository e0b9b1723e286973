"""Compiles the native shim in `csrc/` on first import and loads it.

It knows compilers and caches, not devices: nothing here calls OpenCL.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import filelock
import platformdirs
import torch

import ocl_autoload

SOURCES = Path(__file__).parents[1] / "csrc"
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-Wall", "-DAT_PER_OPERATOR_HEADERS")


class ShimError(ImportError):
    """The shim could not be compiled or loaded; the message says what to install."""


@cache
def library() -> ctypes.PyDLL:
    """Return the loaded shim, compiled first if this torch has not been seen (30 to 120 s).

    It is a `PyDLL`: its functions keep the interpreter lock, since all of them return at once.
    What waits for a device is reached through torch's operators, which release it.

    Raises:
        ShimError: there is no compiler, or it failed; the message carries its first errors.
    """
    if ocl_autoload.library is not None:
        return ocl_autoload.library
    path = cached_path()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock")):
            if not path.exists():
                compile_shim(path)
    try:
        return ctypes.PyDLL(str(path))
    except OSError as error:
        raise ShimError(
            f"cannot load {path}: {error}. Delete the file and import again."
        ) from error


def cached_path() -> Path:
    """Return where the shim of this torch, these sources and these flags lies."""
    digest = hashlib.sha256(repr((torch.__version__, sys.platform, flags())).encode())
    for source in sources():
        digest.update(source.read_bytes())
    name = f"ocl-torch{torch.__version__}-{digest.hexdigest()[:12]}.so"
    return platformdirs.user_cache_path("oclgen") / "shim" / name


def sources() -> list[Path]:
    """Return every file the shim is made of."""
    return sorted(path for path in SOURCES.rglob("*") if path.is_file())


def flags() -> tuple[str, ...]:
    """Return the compiler's options for a source of `csrc/`; torch's headers are none of ours."""
    include = Path(torch.__file__).parent / "include"
    abi = int(torch.compiled_with_cxx11_abi())
    return (*FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
            f"-ffile-prefix-map={SOURCES.parent}=ocl_backend", f"-I{SOURCES}",
            f"-isystem{include}", f"-isystem{include}/torch/csrc/api/include")  # fmt: skip


def compile_shim(target: Path) -> None:
    """Compile every source of `csrc/` and link them to the library `target`.

    Raises:
        ShimError: there is no compiler, or it failed.
    """
    print(f"ocl_backend: compiling for torch {torch.__version__}, once ...", file=sys.stderr)
    build(target, [source for source in sources() if source.suffix == ".cpp"], linking=["-shared"])


def build(
    target: Path, units: Sequence[Path], options: Sequence[str] = (), linking: Sequence[str] = ()
) -> None:
    """Compile `units` in parallel and link them and torch's libraries to `target`, all or nothing.

    Args:
        target: the file to make; an executable unless `linking` has "-shared".
        units: sources; they include headers from `csrc/` and torch.
        options: of the compiler, for compiling and linking, behind its usual ones.
        linking: more options for linking alone.

    Raises:
        ShimError: there is no compiler, or it failed.
    """
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is None:
        raise ShimError(
            f"the ocl device is compiled on first import and {compiler!r} was not found. "
            "Install g++ 10 or later (Debian, Ubuntu: apt install g++), or set CXX."
        )
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        objects = [Path(folder) / f"{index}_{unit.stem}.o" for index, unit in enumerate(units)]

        def compile_one(source: Path, out: Path) -> None:
            _run([compiler, *flags(), *options, "-c", str(source), "-o", str(out)])

        with ThreadPoolExecutor(os.cpu_count()) as workers:
            list(workers.map(compile_one, units, objects))
        linked = Path(folder) / target.name
        torch_libraries = Path(torch.__file__).parent / "lib"
        # torch's libstdc++ by its runtime name: where only libstdc++.a is installed, a second copy
        # of its locale tables would crash the first formatted number
        _run([compiler, *options, *linking, *map(str, objects), "-o", str(linked),
              f"-L{torch_libraries}", "-ltorch_cpu", "-lc10", "-ldl", "-l:libstdc++.so.6",
              "-pthread"])  # fmt: skip
        linked.replace(target)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr]
        raise ShimError(
            f"compiling the ocl device failed (torch {torch.__version__}):\n"
            + "\n".join(errors[:8])
            + f"\nThe command was: {' '.join(command)}"
        )
