"""Says whether an OpenCL runtime works: a child process builds and runs a kernel on its devices.

It neither finds runtimes (`oclgen.opencl.runtimes`) nor opens devices for use
(`oclgen.opencl.device`). A runtime that crashes or hangs costs a child process, never the caller.

An instruction that a processor or its compiler lacks also costs only a child process. The operating
system's list of flags would say what the processor has, but not what the compiler accepts; a child
that runs a kernel with the instruction shows both.
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
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from oclgen import system
from oclgen.files import write_atomically
from oclgen.opencl import loader, probe
from oclgen.plan import Launch

TIMEOUT_S = 60.0
"""A first build takes two seconds at most; opening eight GPUs of a busy host takes ten."""
HEALTHY_FOR_S, BROKEN_FOR_S = 24 * 3600.0, 600.0
"""How long a verdict is believed: a broken runtime is soon asked again, since it may be mended."""

_COMPILER_VARIABLES = ("CL_CONFIG_", "IGC_", "POCL_")
"""Beginnings of environment variables by which runtimes choose what to compile for."""

_KERNEL = """
__kernel void health(__global const ushort *ones, long offset, __global float *out, long offset_out)
{
    const int item = get_global_id(0);
    out[offset_out + item] = 2 * item + (ones[offset] == 0x3f80);
    if (item == 0) {
        uint state = 1;
        for (int i = 0; i < 5 * ones[offset]; ++i) {
            state = state * 1664525u + 1013904223u;
        }
        out[offset_out + get_global_size(0)] = state >> 8;
    }
}
"""
_ITEMS = 64
_ROUNDS = 5 * 0x3F80
"""Rounds of the kernel's loop, which no compiler can leave out. The llvmpipe of Mesa 22.3 ends all
loops of a work-item after 65,535 rounds in sum and tells no error; that of Mesa 26.1 does not."""
_LEAST_NS = 2_000
"""Nanoseconds that these rounds take at least: five rounds a cycle of a clock of 8 GHz."""
_SHORT_LOOPS = (
    f"its kernels leave a loop of {_ROUNDS} rounds too early, so that large problems get wrong "
    "results without an error"
)
_HEALTH = Launch(_KERNEL, "health", (_ITEMS,), (1,), ())


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """One device of a runtime, and why it cannot be used (None: it works).

    `fault` says what it computes wrong although it builds and runs kernels; such a device is used
    only where its user asks for it. `instructions` are those of `oclgen.opencl.probe.FATAL` that
    gave right results. Not `timed`: its events tell no times, as rusticl's of Mesa 22.3 on
    llvmpipe, and the host's clock has to serve.
    """

    platform: str
    platform_version: str
    name: str
    driver_version: str
    problem: str | None = None
    is_cpu: bool = False
    instructions: tuple[str, ...] = ()
    fault: str | None = None
    timed: bool = True


class Tried(NamedTuple):
    """The result of a trial of a device, with the fields of `DeviceHealth`."""

    problem: str | None = None
    fault: str | None = None
    timed: bool = True


@dataclass(frozen=True, slots=True)
class Health:
    """A runtime's devices, and why it cannot be used at all (None: it can be loaded)."""

    devices: tuple[DeviceHealth, ...] = ()
    problem: str | None = None

    @property
    def is_troubled(self) -> bool:
        """Whether the runtime or one of its devices does not work as it should."""
        return any((self.problem, *(d.problem or d.fault for d in self.devices)))


def check(library: str, timeout_s: float = TIMEOUT_S, fresh: bool = False) -> Health:
    """Return the health of a runtime, from memory where it was asked for before.

    Verdicts lie in the user's cache folder by library, its version and this machine's name.

    Args:
        library: path or name of the shared library.
        timeout_s: seconds after which the child that tries it is killed, and the library is
            unhealthy.
        fresh: try it again.
    """
    target = loader.cache_folder("health") / f"{_fingerprint(library)}.json"
    known = None if fresh else _remembered(target)
    if known:
        return known
    health = _with_instructions(library, _ask_child(library, "", timeout_s), timeout_s)
    with suppress(OSError):  # where a verdict cannot be kept, the library is tried each time
        write_atomically(target, json.dumps(asdict(health)))
    return health


def _fingerprint(library: str) -> str:
    """Return a name for this library as it is now: an update changes its size or its date."""
    parts: list[object] = [library, platform.node(), sys.version, probe.FATAL, processor(), _KERNEL]
    parts += compiler_variables()  # a narrower target lacks instructions of the processor
    if Path(library).is_file():
        stat = Path(library).stat()
        parts += [str(Path(library).resolve()), stat.st_size, stat.st_mtime_ns]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def compiler_variables() -> list[tuple[str, str]]:
    """Return the environment variables, sorted, by which runtimes choose what to compile for."""
    return sorted(item for item in os.environ.items() if item[0].startswith(_COMPILER_VARIABLES))


def processor() -> str:
    """Return what the operating system says of the processor: a folder may move to another."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _remembered(target: Path) -> Health | None:
    try:
        age = time.time() - target.stat().st_mtime
        health = _from_json(json.loads(target.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return health if age < (BROKEN_FOR_S if health.is_troubled else HEALTHY_FOR_S) else None


def _from_json(values: dict[str, Any]) -> Health:
    devices = tuple(
        DeviceHealth(**{**device, "instructions": tuple(device["instructions"])})
        for device in values["devices"]
    )
    return Health(devices, values["problem"])


def _with_instructions(library: str, health: Health, timeout_s: float) -> Health:
    """Return `health` with what its CPUs show, asked for in a child per instruction."""
    devices = health.devices
    for name in probe.FATAL if any(d.is_cpu and not d.problem for d in devices) else ():
        asked = _ask_child(library, name, timeout_s)
        able = [(d.platform_version, d.name) for d in asked.devices if not d.problem]
        devices = tuple(
            replace(d, instructions=(*d.instructions, name))
            if (d.platform_version, d.name) in able
            else d
            for d in devices
        )
    return replace(health, devices=devices)


def _ask_child(library: str, instruction: str, timeout_s: float) -> Health:
    command = [sys.executable, "-P", "-m", "oclgen.opencl.health", library, instruction]
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "PYOPENCL_NO_CACHE": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace",
            timeout=timeout_s, check=False,
            **system.apart(),  # Ctrl-C would end it, which says nothing of the library
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
    if not 0 <= code < 256:
        end = f"it crashed its process ({system.ended(code)})"
    last = stderr.strip().splitlines()[-1:]
    return f"{end}: {last[0][:300]}" if last else end


def _examine(library: str, instruction: str) -> Health:
    """Load the library and try each of its devices, in this process: the child's whole work.

    With an `instruction`, CPUs alone are tried, and by its kernel.
    """
    problem = loader.load(library)
    if problem:
        return Health(problem=problem)
    system.allows_tiles()
    folder = loader.offer([library])
    import pyopencl as cl

    loader.claim(folder)
    try:
        found = [device for platform in cl.get_platforms() for device in _devices(cl, platform)]
    except cl.Error as error:
        return Health(problem=f"it offers no platform: {error}")
    if instruction:
        found = [device for device in found if _is_cpu(cl, device)]
    return Health(tuple(_examine_device(cl, device, instruction) for device in found))


def _devices(cl: Any, found: Any) -> list[Any]:
    try:
        return list(found.get_devices())
    except cl.Error:
        return []  # a driver without its device, such as a GPU's in a container


def _is_cpu(cl: Any, device: Any) -> bool:
    return bool(device.type & cl.device_type.CPU)


def _examine_device(cl: Any, device: Any, instruction: str) -> DeviceHealth:
    tried = _try_device(cl, device, instruction)
    return DeviceHealth(
        device.platform.name.strip(),
        device.platform.version.strip(),
        " ".join(device.name.split()),
        device.driver_version.strip(),
        tried.problem,
        _is_cpu(cl, device),
        fault=tried.fault,
        timed=tried.timed,
    )


def _after_the_loop() -> int:
    """Return what the health kernel's loop leaves."""
    state = 1
    for _ in range(_ROUNDS):
        state = (state * 1664525 + 1013904223) % 2**32
    return state >> 8


def _try_device(cl: Any, device: Any, instruction: str) -> Tried:
    """Build and run a kernel."""
    import numpy as np

    answers = [*(2 * n + 1 for n in range(_ITEMS)), _after_the_loop()]
    launch, expected = _HEALTH, np.array(answers, np.float32)
    if instruction:
        (launch,) = probe.probe(instruction).launches
        expected = probe.ANSWERS[instruction]
    out = np.empty_like(expected)
    try:
        context = cl.Context([device])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        queue = cl.CommandQueue(context, properties=profiling)
        flags = cl.mem_flags
        ones = cl.Buffer(context, flags.COPY_HOST_PTR, hostbuf=probe.ONES)
        buffer = cl.Buffer(context, flags.READ_WRITE, out.nbytes)
        kernel = cl.Kernel(cl.Program(context, launch.source).build(), launch.kernel)
        sizes = launch.global_size, launch.local_size
        event = kernel(queue, *sizes, ones, np.int64(0), buffer, np.int64(0))
        cl.enqueue_copy(queue, out, buffer)
        timed = bool(instruction) or event.profile.end - event.profile.start >= _LEAST_NS
    except (cl.Error, OSError) as error:
        return Tried(f"it cannot build and run a kernel: {' '.join(str(error).split())[:600]}")
    if np.array_equal(out, expected):
        return Tried(timed=timed)
    if not instruction and np.array_equal(out[:_ITEMS], expected[:_ITEMS]):
        return Tried(fault=_SHORT_LOOPS, timed=timed)
    return Tried(f"its kernels give wrong results: {out[:4]} in place of {expected[:4]}")


def main() -> None:
    """Examine the library named on the command line, or ask its CPUs for an instruction.

    The last line printed is the verdict.
    """
    library, instruction = sys.argv[1:]
    if hasattr(signal, "alarm"):
        signal.alarm(2 * int(TIMEOUT_S))  # a library that hangs outlives no parent for long
    if instruction:
        system.leave_no_core_file()
    verdict = json.dumps(asdict(_examine(library, instruction)))
    print("\n" + verdict, flush=True)
    os._exit(0)  # a runtime that fails while it is unloaded has answered all the same


if __name__ == "__main__":
    main()
