"""Compiles the native shim in `csrc/` for a torch, and names what was compiled before.

It imports no torch, and nothing that does: a release is compiled for torches that are unpacked, not
installed. Linux has g++ or clang, macOS its clang, Windows MSVC.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "csrc"
PREBUILT = Path(__file__).with_name("prebuilt")
"""A wheel's shims, one per minor version of torch; a source tree has none."""
ENTRY = re.compile(r"^\w[\w: ]*[ *]+(ocl_\w+)\(", re.MULTILINE)
"""The beginning of a function in C++ that Python calls through the shim."""
ALONE = ("autocast.cpp",)
"""Units that are compiled by themselves: they take as long as all others of their folder."""
OLDEST = (2, 11)
"""Minor version of torch from which on its interfaces are those used here."""


class ShimError(ImportError):
    """The shim could not be compiled or loaded; the message says what to install."""


@dataclass(frozen=True)
class Torch:
    """A torch to compile for.

    Attributes:
        version: as `torch.__version__` has it, such as "2.13.0+cpu".
        folder: holds its `include` and `lib`.
        cxx11_abi: whether its strings are those of C++11, as in every build of torch's own.
    """

    version: str
    folder: Path
    cxx11_abi: bool = True


def entries(sources: Iterable[Path]) -> list[str]:
    """Return the functions that Python calls, which are those whose names begin with `ocl_`."""
    texts = (path.read_text(encoding="utf-8") for path in sources if path.suffix == ".cpp")
    return sorted({name for text in texts for name in ENTRY.findall(text)})


class Gnu:
    """g++ or clang on Linux.

    Attributes:
        compiler: the one that is called unless `CXX` names another.
        suffix: of a library's file.
        flags: options for every source.
        remedy: what to do where there is no compiler.
    """

    compiler = "g++"
    suffix = ".so"
    flags: tuple[str, ...] = (
        "-std=c++20", "-O2", "-fPIC", "-Wall", "-DAT_PER_OPERATOR_HEADERS",
        "-Wno-maybe-uninitialized",  # g++ 12 says so of every vector of torch's that is copied
    )  # fmt: skip
    remedy = "Install g++ 10 or later (Debian, Ubuntu: apt install g++), or set CXX"

    def including(self, sources: Path, include: Path, cxx11_abi: bool) -> tuple[str, ...]:
        """Return options by which a source finds its headers; torch's are none of ours.

        Args:
            sources: the folder of the shim's.
            include: the folder of torch's.
            cxx11_abi: whether torch's strings are those of C++11.
        """
        return (
            f"-D_GLIBCXX_USE_CXX11_ABI={int(cxx11_abi)}",
            f"-ffile-prefix-map={sources.parent}=ocl_backend", f"-I{sources}",
            f"-ffile-prefix-map={include}=torch",
            f"-isystem{include}", f"-isystem{include}/torch/csrc/api/include",
        )  # fmt: skip

    def bound_to(self, torch: Path) -> list[str]:
        """Return the paths that a library holds, given torch's folder."""
        return []

    def compiling(self, source: Path, out: Path) -> list[str]:
        """Return what makes the object file `out` of one source."""
        return ["-c", str(source), "-o", str(out)]

    def sharing(self, exported: Sequence[str]) -> list[str]:
        """Return options of `linking` for a library, with the functions that it offers."""
        return ["-shared"]

    def linking(
        self, options: Sequence[str], objects: Sequence[Path], out: Path, libraries: Path
    ) -> list[str]:
        """Return what links object files and torch's libraries.

        Args:
            options: further ones.
            objects: the files.
            out: what is made.
            libraries: the folder of torch's.
        """
        # torch's libstdc++ by its runtime name: where only libstdc++.a is installed, a second copy
        # of its locale tables would crash the first formatted number
        return [
            *options, *map(str, objects), "-o", str(out), f"-L{libraries}", "-ltorch_cpu",
            "-lc10", "-ldl", "-l:libstdc++.so.6", "-pthread",
        ]  # fmt: skip


class Apple(Gnu):
    """clang on macOS, whose libraries name torch's by a path that the linker notes."""

    compiler = "clang++"
    suffix = ".dylib"
    remedy = "Install the command line tools (xcode-select --install), or set CXX"

    def bound_to(self, torch: Path) -> list[str]:
        """Return the paths that a library holds, given torch's folder."""
        return [str(torch)]

    def sharing(self, exported: Sequence[str]) -> list[str]:
        """Return options of `linking` for a library."""
        return ["-dynamiclib"]

    def linking(
        self, options: Sequence[str], objects: Sequence[Path], out: Path, libraries: Path
    ) -> list[str]:
        """Return what links object files and torch's libraries.

        Args:
            options: further ones.
            objects: the files.
            out: what is made.
            libraries: the folder of torch's.
        """
        return [
            *options, *map(str, objects), "-o", str(out), f"-L{libraries}", "-ltorch_cpu",
            "-lc10", f"-Wl,-rpath,{libraries}",
        ]  # fmt: skip


class Msvc(Gnu):
    """MSVC on Windows, whose libraries offer only the functions that are named."""

    compiler = "cl"
    suffix = ".dll"
    flags = (
        "/nologo", "/std:c++20", "/O1", "/MD", "/EHsc", "/utf-8", "/permissive-", "/bigobj",
        "/Zc:__cplusplus", "/DAT_PER_OPERATOR_HEADERS", "/DNOMINMAX", "/external:W0",
    )  # fmt: skip
    remedy = (
        "Install Visual Studio's Build Tools with C++ and start Python from their x64 Native Tools "
        "prompt, or set CXX"
    )

    def including(self, sources: Path, include: Path, cxx11_abi: bool) -> tuple[str, ...]:
        """Return options by which a source finds its headers.

        Args:
            sources: the folder of the shim's.
            include: the folder of torch's.
            cxx11_abi: of no meaning to MSVC.
        """
        api = include / "torch" / "csrc" / "api" / "include"
        return (f"/I{sources}", f"/external:I{include}", f"/external:I{api}")

    def compiling(self, source: Path, out: Path) -> list[str]:
        """Return what makes the object file `out` of one source."""
        return ["/c", str(source), f"/Fo{out}"]

    def sharing(self, exported: Sequence[str]) -> list[str]:
        """Return options of `linking` for a library."""
        return ["/DLL", *(f"/EXPORT:{name}" for name in exported)]

    def linking(
        self, options: Sequence[str], objects: Sequence[Path], out: Path, libraries: Path
    ) -> list[str]:
        """Return what links object files and torch's libraries.

        Args:
            options: further ones.
            objects: the files.
            out: what is made.
            libraries: the folder of torch's.
        """
        return [
            "/nologo", "/MD", *map(str, objects), f"/Fe{out}", "/link", *options,
            f"/LIBPATH:{libraries}", "torch_cpu.lib", "c10.lib",
        ]  # fmt: skip


def tools() -> Gnu:
    """Return how this system's compiler is called."""
    return {"win32": Msvc, "darwin": Apple}.get(sys.platform, Gnu)()


def check_version(version: str) -> None:
    """Refuse a torch that is too old.

    Args:
        version: as `torch.__version__` has it.

    Raises:
        ShimError: it is below `OLDEST`.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ShimError(
            f"torch {version} is too old: the ocl device needs {oldest} or later. "
            f"pip install 'torch>={oldest}'"
        )


def sources() -> list[Path]:
    """Return every file the shim is made of."""
    return sorted(path for path in SOURCES.rglob("*") if path.is_file())


def digest(*beside: object) -> str:
    """Return 12 hexadecimal digits that differ between sources, their names, or `beside`."""
    found = hashlib.sha256(repr(beside).encode())
    for source in sources():
        found.update(source.relative_to(SOURCES).as_posix().encode() + b"\0")
        found.update(source.read_bytes())
    return found.hexdigest()[:12]


def prebuilt_name(torch: Torch) -> str | None:
    """Return the name of a wheel's shim for `torch`, by its minor version.

    Releases of a minor version share their C++ interface, for processors and for GPUs alike.
    Alphas, release candidates and builds by others share it with nothing: None.
    """
    release = re.fullmatch(r"(\d+\.\d+)\.\d+(\+(cpu|cu\d+|rocm[\d.]+|xpu))?", torch.version)
    if release is None:
        return None
    abi = "cxx11" if torch.cxx11_abi else "cxx98"
    machine = f"{sysconfig.get_platform()}-{digest(tools().flags)}"
    return f"ocl-torch{release[1]}-{abi}-{machine}{tools().suffix}"


def flags(torch: Torch) -> tuple[str, ...]:
    """Return the compiler's options for a source of `csrc/`."""
    headers = tools().including(SOURCES, torch.folder / "include", torch.cxx11_abi)
    return (*tools().flags, *headers)


def compile_shim(target: Path, torch: Torch, linking: Sequence[str] = ()) -> None:
    """Compile every source of `csrc/` and link them to the library `target`.

    Args:
        target: the file to make.
        torch: whose headers and libraries it is for.
        linking: more options for linking.

    Raises:
        ShimError: there is no compiler, or it failed.
    """
    units = [source for source in sources() if source.suffix == ".cpp"]
    sharing = tools().sharing(entries(units))
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        together = joined(units, Path(folder))
        build(target, together, torch, linking=[*sharing, *linking])


def joined(units: Sequence[Path], folder: Path) -> list[Path]:
    """Return the units of each folder as one, which reads torch's headers once for all of them.

    With two to four seconds for these headers each, some forty units take two and a half times as
    long by themselves. No two of a folder may give one name to different things.

    Args:
        units: sources.
        folder: where what includes them is written.
    """
    together = [unit for unit in units if unit.name in ALONE]
    for parent in dict.fromkeys(unit.parent for unit in units):
        path = folder / f"{parent.name}.cpp"
        those = [unit for unit in units if unit.parent == parent and unit not in together]
        path.write_text("".join(f'#include "{unit.as_posix()}"\n' for unit in those), "utf-8")
        together.append(path)
    return together


def build(
    target: Path,
    units: Sequence[Path],
    torch: Torch,
    options: Sequence[str] = (),
    linking: Sequence[str] = (),
) -> None:
    """Compile `units` in parallel and link them and torch's libraries to `target`, all or nothing.

    Args:
        target: the file to make; an executable unless `linking` says otherwise.
        units: sources; they include headers from `csrc/` and torch.
        torch: whose headers and libraries they are for.
        options: of the compiler, for compiling and linking, behind its usual ones.
        linking: more options for linking alone.

    Raises:
        ShimError: there is no compiler, or it failed.
    """
    compiler = os.environ.get("CXX") or tools().compiler
    if shutil.which(compiler) is None:
        raise ShimError(_no_compiler(compiler, torch))
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        objects = [Path(folder) / f"{index}_{unit.stem}.o" for index, unit in enumerate(units)]

        def compile_one(source: Path, out: Path) -> None:
            _run([compiler, *flags(torch), *options, *tools().compiling(source, out)], torch)

        with ThreadPoolExecutor(os.cpu_count()) as workers:
            list(workers.map(compile_one, units, objects))
        linked = Path(folder) / target.name
        command = tools().linking([*options, *linking], objects, linked, torch.folder / "lib")
        _run([compiler, *command], torch)
        linked.replace(target)


def _no_compiler(compiler: str, torch: Torch) -> str:
    carried = (
        re.match(r"ocl-torch(\d+)\.(\d+)-", path.name) for path in PREBUILT.glob("ocl-torch*")
    )
    minors = sorted({(int(found[1]), int(found[2])) for found in carried if found})
    has = ", ".join(f"{major}.{minor}" for major, minor in minors)
    brings = f"brings it compiled for torch {has} alone" if minors else "does not bring it compiled"
    instead = ", or one of these versions of torch" if minors else ""
    return (
        f"torch {torch.version} needs the native part of the ocl device, this installation "
        f"{brings}, and the compiler {compiler!r} was not found. "
        f"{tools().remedy}{instead}."
    )


def _run(command: list[str], torch: Torch) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        told = done.stderr + done.stdout  # MSVC prints errors to the latter
        errors = [line for line in told.splitlines() if "error" in line] or [told]
        raise ShimError(
            f"compiling the ocl device failed (torch {torch.version}):\n"
            + "\n".join(errors[:8])
            + f"\nThe command was: {' '.join(command)}"
        )


if __name__ == "__main__":  # python ocl_backend/runtime/compiling.py VERSION FOLDER, as Torch's
    torch = Torch(sys.argv[1], Path(sys.argv[2]))
    name = prebuilt_name(torch)
    if name is None:
        sys.exit(f"torch {torch.version} is no release: no wheel carries a shim for it")
    PREBUILT.mkdir(exist_ok=True)
    compile_shim(PREBUILT / name, torch, ["-s", "-Wl,-z,defs"])  # small; each symbol is torch's
