"""Says whether an OpenCL runtime works: a child process builds and runs a kernel on its devices.

It neither finds runtimes (`oclgen.runtimes`) nor opens devices for use (`oclgen.device`). A
runtime that crashes or hangs costs a child process, never the caller.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oclgen import loader

TIMEOUT_S = 60.0
"""A first build takes two seconds at most; opening eight GPUs of a busy host takes ten."""
HEALTHY_FOR_S, BROKEN_FOR_S = 24 * 3600.0, 600.0
"""How long a verdict is believed: a broken runtime is soon asked again, since it may be mended."""

_KERNEL = """
__kernel void health(__global int *out) { out[get_global_id(0)] = 2 * (int)get_global_id(0) + 1; }
"""
_ITEMS = 64


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """One device of a runtime, and why it cannot be used (None: it works)."""

    platform: str
    platform_version: str
    name: str
    driver_version: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """A runtime's devices, and why it cannot be used at all (None: it can be loaded)."""

    devices: tuple[DeviceHealth, ...] = ()
    problem: str | None = None


def check(library: str, timeout_s: float = TIMEOUT_S, fresh: bool = False) -> Health:
    """Return the health of the runtime in `library`, remembered unless `fresh` asks again.

    Verdicts lie in the user's cache folder by library, its version and this machine's name.
    """
    target = loader.cache_folder("health") / f"{_fingerprint(library)}.json"
    known = None if fresh else _remembered(target)
    if known:
        return known
    health = _ask_child(library, timeout_s)
    loader.write_atomically(target, json.dumps(asdict(health)))
    return health


def _fingerprint(library: str) -> str:
    """Return a name for this library as it is now: an update changes its size or its date."""
    parts: list[object] = [library, platform.node(), sys.version]
    if Path(library).is_file():
        stat = Path(library).stat()
        parts += [str(Path(library).resolve()), stat.st_size, stat.st_mtime_ns]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _remembered(target: Path) -> Health | None:
    try:
        age = time.time() - target.stat().st_mtime
        health = _from_json(json.loads(target.read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    broken = health.problem or any(device.problem for device in health.devices)
    return health if age < (BROKEN_FOR_S if broken else HEALTHY_FOR_S) else None


def _from_json(values: dict[str, Any]) -> Health:
    devices = tuple(DeviceHealth(**device) for device in values["devices"])
    return Health(devices, values["problem"])


def _ask_child(library: str, timeout_s: float) -> Health:
    command = [sys.executable, "-P", "-m", "oclgen.health", library]
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "PYOPENCL_NO_CACHE": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace",
            timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Health(problem=f"it did not answer within {timeout_s:.0f} s")
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte in it
        return Health(problem=f"no process to try it in: {error}")
    try:
        return _from_json(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError, TypeError, KeyError):
        return Health(problem=_death(done.returncode, done.stderr))


def _death(code: int, stderr: str) -> str:
    """Describe a child that gave no answer."""
    end = f"it ended its process with code {code}"
    if code < 0:
        end = f"it crashed its process ({signal.Signals(-code).name})"
    last = stderr.strip().splitlines()[-1:]
    return f"{end}: {last[0][:300]}" if last else end


def _examine(library: str) -> Health:
    """Load the library and try each of its devices, in this process: the child's whole work."""
    problem = loader.load(library)
    if problem:
        return Health(problem=problem)
    folder = loader.offer([library])
    import pyopencl as cl

    loader.claim(folder)
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        return Health(problem=f"it offers no platform: {error}")
    return Health(tuple(health for p in platforms for health in _examine_platform(cl, p)))


def _examine_platform(cl: Any, found: Any) -> list[DeviceHealth]:
    try:
        devices = found.get_devices()
    except cl.Error:
        return []  # a driver without its device, such as a GPU's in a container
    return [
        DeviceHealth(
            found.name.strip(),
            found.version.strip(),
            " ".join(device.name.split()),
            device.driver_version.strip(),
            _try_device(cl, device),
        )
        for device in devices
    ]


def _try_device(cl: Any, device: Any) -> str | None:
    """Build and run a kernel; return what went wrong, or None."""
    import numpy as np

    out = np.empty(_ITEMS, np.int32)
    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context)
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, out.nbytes)
        kernel = cl.Program(context, _KERNEL).build().health
        kernel(queue, (_ITEMS,), None, buffer)
        cl.enqueue_copy(queue, out, buffer)
    except (cl.Error, OSError) as error:
        return f"it cannot build and run a kernel: {' '.join(str(error).split())[:600]}"
    if not np.array_equal(out, 2 * np.arange(_ITEMS) + 1):
        return f"its kernels give wrong results: {out[:4]} in place of [1 3 5 7]"
    return None


def main() -> None:
    """Examine the library named on the command line; the last line printed is the verdict."""
    verdict = json.dumps(asdict(_examine(sys.argv[1])))
    print("\n" + verdict, flush=True)
    os._exit(0)  # a runtime that fails while it is unloaded has answered all the same


if __name__ == "__main__":
    main()
