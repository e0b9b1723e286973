"""Compilers for GPUs that this machine does not have, and the figures of what they compiled.

`ocloc` compiles for Intel's GPUs, clang for AMD's, whose OpenCL compiler is a clang, too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.targets.target import Target
from oclgen.opencl import lanes
from oclgen.plan import Launch

TOOLS = "OCLGEN_TARGET_TOOLS"
"""Environment variable: a folder into which the packages were unpacked instead of installed."""
PACKAGES = {"amd": "clang-19 libclc-19 lld-19", "intel": "intel-opencl-icd"}
OPTIONS = ("-cl-mad-enable",)
"""The options of `oclgen.opencl.programs`, which opens a device and so is not imported here."""
TIMEOUT_S = 300.0


class CompileError(RuntimeError):
    """A compiler refused a program, or is not there; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a compiler says of one kernel, or the worst that it says of several.

    Attributes:
        registers: vector registers per work-item (AMD), or per hardware thread (Intel).
        scratch: bytes of memory for what registers do not hold, spilled values and arrays: per
            work-item, of values that Intel's compiler spilled per hardware thread.
        local: bytes of local memory per work-group.
        lanes: work-items that one hardware thread runs side by side.
        threads: hardware threads that one vector unit can hold at once.
    """

    registers: int
    scratch: int
    local: int
    lanes: int
    threads: int

    def worse(self, other: Figures) -> Figures:
        """Return the worse of both, figure by figure."""
        mine, theirs = asdict(self), asdict(other)
        most = {name: max(mine[name], theirs[name]) for name in ("registers", "scratch", "local")}
        least = {name: min(mine[name], theirs[name]) for name in ("lanes", "threads")}
        return Figures(**most, **least)


def missing(maker: str) -> str | None:
    """Say which tool is missing to compile for a maker's GPUs, and what brings it; None if none."""
    wanted = ("clang-19", "ld.lld-19") if maker == "amd" else ("ocloc",)
    absent = [name for name in wanted if _found(name) is None]
    if maker == "amd" and not absent and not _libclc().exists():
        absent = [str(_libclc())]
    if not absent:
        return None
    return f"{', '.join(absent)} not found; install {PACKAGES[maker]}, or unpack it and set {TOOLS}"


def compiled(launch: Launch, target: Target) -> Figures:
    """Compile a launch's program for a target and read the figures of its kernel.

    Raises:
        CompileError: the compiler refused it, or left something undefined.
    """
    with TemporaryDirectory() as folder:
        return _COMPILERS[target.maker](launch, target, Path(folder))


def instructions(launch: Launch, target: Target) -> str:
    """Return the assembly that a launch's program becomes on a target.

    Raises:
        CompileError: the compiler refused it.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        if target.maker == "amd":
            return _amd_assembly(launch, target, folder)
        _ocloc(launch, target, folder)
        # the disassembler opens a library by a name that only packages for developers have
        library = _libraries() / "libiga64.so.1"
        (folder / "libiga64.so").symlink_to(library)
        (binary,) = folder.glob("*.bin")
        _run(
            ["ocloc", "disasm", "-file", str(binary), "-device", target.name, "-dump", "."], folder
        )
        return "\n".join(path.read_text() for path in folder.glob("*.asm"))


def version(maker: str) -> str:
    """Return the version of a maker's compiler, as it names itself."""
    if maker == "amd":
        return _run(["clang-19", "--version"], Path()).splitlines()[0].strip()
    with TemporaryDirectory() as folder:
        _run(["ocloc", "query", "OCL_DRIVER_VERSION"], Path(folder))
        answer = (Path(folder) / "OCL_DRIVER_VERSION").read_text()
        return f"ocloc {answer.strip(chr(0))}"


def _amd(launch: Launch, target: Target, folder: Path) -> Figures:
    text = _amd_assembly(launch, target, folder)
    object_file = [f"--target={_TRIPLE}", f"-mcpu={target.name}", "-nogpulib", "-o", "out.co"]
    _run(["clang-19", *object_file, "-fuse-ld=lld", "out.s"], folder)  # finds what is undefined
    # the metadata that a driver reads: a list of kernels, each with its name among its entries
    entries = re.split(r"^  - \.", text, flags=re.MULTILINE)
    (entry,) = (
        one for one in entries if re.search(rf"\.name: +{launch.kernel}$", one, re.MULTILINE)
    )
    (waves,) = re.findall(
        r"^; Kernel info:.*?^; Occupancy: (\d+)",
        _behind(text, launch.kernel),
        re.MULTILINE | re.DOTALL,
    )[:1]
    return Figures(
        registers=_number(entry, ".vgpr_count"),
        scratch=_number(entry, ".private_segment_fixed_size"),
        local=_number(entry, ".group_segment_fixed_size"),
        lanes=_number(entry, ".wavefront_size"),
        threads=int(waves),
    )


_TRIPLE = "amdgcn-unknown-amdhsa"


def _amd_assembly(launch: Launch, target: Target, folder: Path) -> str:
    (folder / "in.cl").write_text(launch.source)
    library = ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(_libclc()))
    made_for = (f"--target={_TRIPLE}", f"-mcpu={target.name}", "-nogpulib", *library)
    _run(["clang-19", "-x", "cl", *made_for, "-O3", *OPTIONS, "-S", "-o", "out.s", "in.cl"], folder)
    return (folder / "out.s").read_text()


def _behind(text: str, kernel: str) -> str:
    """Return an assembly from the label of a kernel on."""
    return text[text.index(f"\n{kernel}:") :]


def _intel(launch: Launch, target: Target, folder: Path) -> Figures:
    _ocloc(launch, target, folder, "--format", "zebin")
    (binary,) = folder.glob("*.bin")
    # `.ze_info` lies in the ELF file as the YAML text that it is
    text = binary.read_bytes().decode("latin-1")
    info = text[text.rindex("\nkernels:") :].partition("\nkernels_misc_info")[0]
    (entry,) = (
        one
        for one in re.split(r"^  - name: +", info, flags=re.MULTILINE)
        if one.startswith(f"{launch.kernel}\n")
    )
    buffers = entry.partition("per_thread_memory_buffers:")[2]
    registers = _number(entry, "grf_count")
    return Figures(
        registers=registers,
        scratch=sum(map(int, re.findall(r" size: +(\d+)", buffers))),
        local=_number(entry, "slm_size"),
        lanes=_number(entry, "simd_size"),
        threads=_REGISTER_FILE // registers,
    )


_REGISTER_FILE = 1024
"""Registers of one vector engine of Intel's Xe, which its threads share out."""


def _ocloc(launch: Launch, target: Target, folder: Path, *more: str) -> None:
    (folder / "in.cl").write_text(launch.source)
    options = (*OPTIONS, *lanes.options(launch.source, target.lanes))
    asked = ("-device", target.name, "-options", " ".join(options), *more)
    _run(["ocloc", "compile", "-file", "in.cl", *asked], folder)


_COMPILERS: dict[str, Callable[[Launch, Target, Path], Figures]] = {"amd": _amd, "intel": _intel}


def _number(entry: str, name: str) -> int:
    """Return the number after a name in YAML, 0 if the name is absent."""
    found = re.search(rf"{re.escape(name)}: +(\d+)", entry)
    return int(found[1]) if found else 0


def _libclc() -> Path:
    """Return OpenCL's own functions for AMD's GPUs, which lie beside LLVM."""
    clang = _found("clang-19")
    return Path(clang or "/usr/lib/llvm-19/bin/clang").resolve().parents[2] / "clc" / _BITCODE


_BITCODE = "amdgcn--amdhsa.bc"


def _root() -> Path:
    return Path(os.environ.get(TOOLS) or "/")


def _libraries() -> Path:
    return _root() / "usr/lib/x86_64-linux-gnu"


@cache
def _found(name: str) -> str | None:
    return shutil.which(name, path=_path())


def _path() -> str:
    own = [str(_root() / "usr/bin")] if os.environ.get(TOOLS) else []
    return os.pathsep.join([*own, os.environ.get("PATH", os.defpath)])


def _run(command: list[str], folder: Path) -> str:
    """Run a tool in a folder and return what it printed.

    Raises:
        CompileError: it is absent, fails or takes too long.
    """
    tool = _found(command[0])
    if tool is None:
        raise CompileError(f"{command[0]} not found; set {TOOLS} or PATH")
    libraries = [str(_libraries()), str(folder)] if os.environ.get(TOOLS) else [str(folder)]
    known = [*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, "PATH": _path(), "LD_LIBRARY_PATH": os.pathsep.join(known)}
    try:
        done = subprocess.run(
            [tool, *command[1:]], cwd=folder, env=environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CompileError(f"{command[0]} took longer than {TIMEOUT_S:.0f} s") from error
    if done.returncode < 0:
        raise CompileError(f"{command[0]} died of signal {-done.returncode}")
    if done.returncode:
        raise CompileError(f"{command[0]}: {_reason(done.stdout + done.stderr)}")
    return done.stdout


def _reason(log: str) -> str:
    """Return the lines of a log that say what is wrong, the end of it if none does."""
    lines = [line for line in log.splitlines() if "error" in line.lower()]
    return "; ".join(lines[:3])[:400] or log[-400:]
