"""Finds the OpenCL runtimes of this machine and points pyopencl's ICD loader at those that work.

It opens no device; `oclgen.opencl.device` does, after `prepare()`. Whether a runtime works is tried
out by `oclgen.opencl.health`, in another process.

A runtime from a Python package (`intel-opencl-rt`) lies in the environment's `lib` folder, where
no loader looks, with an `.icd` file that names a path of its build machine. `OCL_ICD_VENDORS`
replaces the loader's default folder, so the folder written here lists the system's files too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata, util
from pathlib import Path

from oclgen import system
from oclgen.opencl import health, loader, probe
from oclgen.opencl.health import DeviceHealth, Health

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
PACKAGED = {"intel-opencl-rt": ("libintelocl.so", "intelocl64.dll")}
"""Runtimes from PyPI: distribution and the library in it, on Linux and on Windows."""
CHOICE = "OCLGEN_RUNTIMES"
"""Environment variable: use only runtimes whose library contains one of these parts (commas)."""
TARGET, NEWEST_XEON = "CL_CONFIG_CPU_TARGET_ARCH", "sapphirerapids"
"""Environment variable that tells Intel's runtime for which processor it compiles, and the first of
Intel's with all of `XEON_FLAGS`. The runtime takes newer ones that it does not know for Skylake,
and ends the process that asks its compiler for `vdpbf16ps`."""
XEON_FLAGS = frozenset(("amx_bf16", "avx512_bf16", "avx512_fp16"))
FAULTY = "OCLGEN_FAULTY"
"""Environment variable: `1` uses devices that compute wrong in a way that is known, as tests do."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """An OpenCL runtime: its library, where it was found, its health; `skipped` says why not."""

    library: str
    origin: str
    health: Health
    skipped: str | None = None

    @property
    def usable(self) -> bool:
        """Whether the ICD loader gets to know it."""
        return self.health.problem is None and self.skipped is None


def find() -> dict[str, str]:
    """Return library -> origin of every runtime of this machine, in the loader's order.

    `.icd` files go first (`OCL_ICD_VENDORS`, a folder or one file, replaces the system's folder),
    then what PyPI packages brought. Libraries that `OCLGEN_RUNTIMES` does not name are left out.
    Windows has no `.icd` files.
    """
    wanted = [part for part in os.environ.get(CHOICE, "").split(",") if part]
    found: dict[str, str] = {}
    listed = () if sys.platform == "win32" else _listed()
    for library, origin in (*listed, *_packaged()):
        if not wanted or any(part in library for part in wanted):
            found.setdefault(library, origin)
    return found


def _listed() -> Iterator[tuple[str, str]]:
    chosen = Path(os.environ.get("OCL_ICD_VENDORS") or SYSTEM_VENDORS)
    files = sorted(chosen.glob("*.icd")) if chosen.is_dir() else [chosen]
    for icd in (*files, *_bundled()):
        if icd.is_file() and (library := icd.read_text(errors="replace").strip()):
            beside = icd.parent / library  # pip's icd files name a library beside them
            yield str(beside) if beside.is_file() else library, str(icd)


def _bundled() -> list[Path]:
    """Return the `.icd` files that packages put into pyopencl's own folder."""
    spec = util.find_spec("pyopencl")
    return (
        sorted((Path(spec.origin).parent / ".libs").glob("*.icd")) if spec and spec.origin else []
    )


def _packaged() -> Iterator[tuple[str, str]]:
    for package, names in PACKAGED.items():
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name in names:
                yield os.path.normpath(str(file.locate())), f"package {package}"


def examine(fresh: bool = False) -> tuple[Runtime, ...]:
    """Return every runtime with its health; of those with one file name the first that works.

    `fresh` asks each runtime again, as `oclgen doctor` does.
    """
    runtimes: list[Runtime] = []
    for library, origin in find().items():
        name = Path(library).name
        twin = next((r for r in runtimes if r.usable and Path(r.library).name == name), None)
        if twin:
            skipped = f"the same library from {twin.origin} is used"
            runtimes.append(Runtime(library, origin, Health(), skipped))
        else:
            runtimes.append(Runtime(library, origin, health.check(library, fresh=fresh)))
    return tuple(runtimes)


@cache
def prepare() -> tuple[Runtime, ...]:
    """Point the ICD loader at every runtime that works; call before pyopencl is imported.

    Returns all runtimes found, broken ones included. On Windows the loader finds what is in the
    registry by itself; packages' runtimes are not there. macOS has one OpenCL, which is there.
    """
    if sys.platform == "darwin":
        return ()
    _keep_workers_apart()
    _keep_programs_apart()
    system.allows_tiles()
    runtimes = _examine_named()
    for runtime in runtimes:
        if runtime.usable:
            loader.preload(runtime.library)
    loader.offer([r.library for r in runtimes if r.usable])
    return runtimes


def _examine_named() -> tuple[Runtime, ...]:
    """Return every runtime; Intel's compiles for the processor that is there, if it can."""
    if TARGET in os.environ or not XEON_FLAGS.issubset(health.processor().split()):
        return examine()
    os.environ[TARGET] = NEWEST_XEON
    runtimes = examine()
    if any("intelocl" in r.library and r.health.is_troubled for r in runtimes):
        del os.environ[TARGET]
        return examine()
    return runtimes


def _keep_workers_apart() -> None:
    """Ask PoCL to bind each of its threads to a core, unless the user has said what to do.

    Linux may leave two of them on one core for tenths of a second, and kernels run at half speed.
    PoCL counts cores from the first on, so this process has to be allowed all of them.
    """
    if system.has_all_cores():
        os.environ.setdefault("POCL_AFFINITY", "1")


def _keep_programs_apart() -> None:
    """Ask PoCL for a folder per program, unless the user has said what to do.

    PoCL 3.1 keeps programs on disk for all processes, by their text, and reads there what another
    process still writes: a build fails, or the process ends. `programs` keeps binaries itself.
    """
    os.environ.setdefault("POCL_KERNEL_CACHE", "0")


def claim_loader() -> None:
    """Keep the loader to what `prepare` offered; call once pyopencl is imported."""
    if sys.platform == "linux":
        loader.claim(Path(os.environ["OCL_ICD_VENDORS"]))


def is_broken(platform_version: str, device: str) -> bool:
    """Say whether a device was found unable to build or run a kernel, or to run it right."""
    found = _health_of(platform_version, device)
    return any(d.problem is not None or (d.fault and not faulty_allowed()) for d in found)


def fault(platform_version: str, device: str) -> str | None:
    """Return what a device computes wrong although it works, or None."""
    return next((d.fault for d in _health_of(platform_version, device) if d.fault), None)


def is_timed(platform_version: str, device: str) -> bool:
    """Say whether a device's events tell times."""
    return all(found.timed for found in _health_of(platform_version, device))


def faulty_allowed() -> bool:
    """Say whether devices with a known fault are used."""
    return os.environ.get(FAULTY, "0") not in ("", "0")


def instructions(platform_version: str, device: str) -> frozenset[str]:
    """Return the instructions of `oclgen.opencl.probe.FATAL` that a device has shown.

    A child has shown them; tiles are among them only where this process may use them, too.
    """
    found = _health_of(platform_version, device)
    refused = frozenset() if system.allows_tiles() else frozenset(probe.TILE_PRODUCTS)
    return frozenset(name for health in found for name in health.instructions) - refused


def _health_of(platform_version: str, device: str) -> list[DeviceHealth]:
    return [
        d
        for runtime in prepare()
        for d in runtime.health.devices
        if (d.platform_version, d.name) == (platform_version.strip(), " ".join(device.split()))
    ]
