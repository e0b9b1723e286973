"""The one door to OpenCL: open devices, read their limits, build, launch and time plans.

What is worth launching is decided elsewhere; nothing here knows a kernel family.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oclgen import profiles
from oclgen.limits import DeviceInfo, Limits, first_broken
from oclgen.opencl import cooperative, declared, probe, runtimes
from oclgen.plan import COUNTER_BYTES, COUNTERS, Buffer, Launch, Offset, Plan

runtimes.prepare()

import pyopencl as cl  # noqa: E402  (the loader reads its environment)

runtimes.claim_loader()

from oclgen.opencl import filling, preload  # noqa: E402 (these import pyopencl)
from oclgen.opencl.ahead import Ahead  # noqa: E402
from oclgen.opencl.programs import BuildError as BuildError  # noqa: E402
from oclgen.opencl.programs import Programs  # noqa: E402
from oclgen.opencl.shown import info_of, kind_of, limits_of  # noqa: E402

SCALAR_TYPES: dict[str, Any] = {"int": np.int32, "long": np.int64, "float": np.float32}


class DeviceError(RuntimeError):
    """No such device, or a device that does not answer."""


class LaunchError(RuntimeError):
    """The runtime refused a launch or its execution failed."""


@dataclass(eq=False)
class Device:
    """An opened OpenCL device with one in-order queue; `index` is global over all platforms.

    `enforced` are the limits of a profile's device, which is refused what exceeds them; None where
    the runtime refuses by itself.
    """

    index: int
    handle: Any
    info: DeviceInfo
    limits: Limits
    enforced: Limits | None = None
    context: Any = field(init=False)
    queue: Any = field(init=False)
    programs: Programs = field(init=False)
    ahead: Ahead = field(init=False)

    def __post_init__(self) -> None:
        """Create the context and a queue that records event times."""
        self.context = cl.Context([self.handle])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(self.context, properties=profiling)
        self.programs = Programs(self.context, self.handle, self.info, enforced=self.enforced)
        self.ahead = Ahead(self.programs, self.index, self.limits)

    @cached_property
    def timed(self) -> bool:
        """Whether its events tell times."""
        return runtimes.is_timed(self.handle.platform.version, self.handle.name)

    @property
    def name(self) -> str:
        """The device's own name."""
        return self.info.name

    def expect(self) -> None:
        """Get ready for a script that is about to run here: load its programs, or start builders.

        Both go on beside the caller.
        """
        preload.begin(self.programs)
        self.ahead.expect()

    def build(self, source: str) -> Any:
        """Return the built `pyopencl.Program` of `source`, from memory or disk if it was built.

        Raises:
            BuildError: the compiler refused it; the message ends with its log.
        """
        found = self.ahead.find(source)
        return self.ahead.wait(found) if isinstance(found, Future) else found

    def kernel(self, launch: Launch) -> Any:
        """Return a fresh `pyopencl.Kernel` for `launch` (arguments are state of the kernel)."""
        return cl.Kernel(self.build(launch.source), launch.kernel)

    def prepare(
        self,
        plan: Plan,
        buffers: Mapping[str, Any],
        offsets: Mapping[str, int] | None = None,
        scalars: Mapping[str, int | float] | None = None,
    ) -> PreparedPlan:
        """Build `plan` and set every argument.

        Args:
            plan: its workspaces and counters that are not among `buffers` are made.
            buffers: `pyopencl.Buffer`s by role.
            offsets: elements that are skipped, by role; 0 by default.
            scalars: replace named scalars.

        Raises:
            BuildError: the compiler refused a program.
            LaunchError: there is no room for a workspace, an argument does not fit, or a profile's
                device refuses the launch.
        """
        if self.enforced and (reason := first_broken(plan, self.enforced)):
            raise LaunchError(f"{self.name}: {reason}")
        for launch in plan.launches:
            self.check_launch(launch.kernel, launch.global_size, launch.local_size)
        try:
            spaces = {
                role: self.empty(size) for role, size in plan.workspaces if role not in buffers
            }
            if plan.counters and COUNTERS not in buffers:
                spaces[COUNTERS] = self.empty(size := COUNTER_BYTES * plan.counters)
                self.fill(spaces[COUNTERS], 0, size)
            steps = []
            for launch in plan.launches:
                kernel = self.kernel(launch)
                _set_args(kernel, launch, {**buffers, **spaces}, offsets or {}, scalars or {})
                steps.append((kernel, launch))
        except cl.Error as error:
            raise LaunchError(f"{self.name}: {error}") from error
        return PreparedPlan(self, tuple(steps), (*buffers.values(), *spaces.values()))

    def check_launch(
        self, kernel: str, global_size: Sequence[int], local_size: Sequence[int] | None
    ) -> None:
        """Refuse what a profile's device would, since the one underneath may take it.

        Args:
            kernel: its name.
            global_size: work-items.
            local_size: of a work-group; None: the runtime chooses.

        Raises:
            LaunchError: the work-group is too large, or does not divide the work-items.
        """
        if self.enforced and local_size is not None:
            reason = profiles.why_no_launch(kernel, global_size, local_size, self.enforced)
            if reason is not None:
                raise LaunchError(f"{self.name}: {reason}")

    def empty(self, size: int) -> Any:
        """Return an uninitialised read-write buffer of `size` bytes.

        Raises:
            LaunchError: it is larger than a profile's device allocates at once.
        """
        if self.enforced and size > (most := self.enforced.max_alloc_bytes):
            raise LaunchError(f"{self.name} allocates at most {most} B at once; asked are {size} B")
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(size, 1))

    def fill(self, buffer: Any, byte: int, size: int, begin: int = 0) -> None:
        """Set `size` bytes of `buffer` from `begin` on; later commands see them.

        Args:
            buffer: a `pyopencl.Buffer` of at least `begin` + `size` bytes.
            byte: 0 to 255.
            size: bytes to set.
            begin: first byte.

        Raises:
            LaunchError: there is no room for the buffer.
        """
        try:
            filling.fill(self.queue, buffer, byte, size, begin)
        except cl.Error as error:
            raise LaunchError(f"{self.name}: {error}") from error

    def write(self, buffer: Any, array: NDArray[Any]) -> None:
        """Copy `array` to the beginning of `buffer`."""
        cl.enqueue_copy(self.queue, buffer, np.ascontiguousarray(array), is_blocking=True)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the largest cache that the device tells of; 0 if of none."""
        return int(self.handle.global_mem_cache_size)

    def upload(self, array: NDArray[Any]) -> Any:
        """Return a new buffer that holds a copy of `array`."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=np.ascontiguousarray(array))

    def download(self, buffer: Any, like: NDArray[Any], begin: int = 0) -> NDArray[Any]:
        """Return bytes of `buffer` from `begin` on as a new array shaped and typed as `like`.

        Args:
            buffer: a `pyopencl.Buffer`.
            like: gives shape and dtype; its items are not read.
            begin: first byte to copy.
        """
        out = np.empty_like(like)
        cl.enqueue_copy(self.queue, out, buffer, src_offset=begin, is_blocking=True)
        return out


@dataclass(frozen=True)
class PreparedPlan:
    """A plan with built kernels and set arguments, ready to be launched again and again.

    It holds on to its buffers: OpenCL does not retain what is only a kernel's argument.
    """

    device: Device
    steps: tuple[tuple[Any, Launch], ...]
    buffers: tuple[Any, ...]

    def enqueue(self) -> list[Any]:
        """Launch every step on the device's queue and return the events.

        Raises:
            LaunchError: the runtime refused a launch; the message names kernel and sizes.
        """
        events = []
        for kernel, launch in self.steps:
            try:
                events.append(
                    cl.enqueue_nd_range_kernel(
                        self.device.queue, kernel, launch.global_size, launch.local_size
                    )
                )
            except cl.Error as error:
                raise LaunchError(
                    f"{self.device.name}: kernel {launch.kernel} with global size "
                    f"{launch.global_size}, local size {launch.local_size}: {error}"
                ) from error
        return events

    def run(self) -> float:
        """Launch, wait, and return the milliseconds on the device: the sum over its kernels.

        Where the device's events tell no times, they are those of the host from the launch on.

        Raises:
            LaunchError: the device refused a launch, or a kernel failed.
        """
        begin = time.perf_counter()
        events = self.enqueue()
        try:
            events[-1].wait()
            if not self.device.timed:
                return 1e3 * (time.perf_counter() - begin)
            return float(sum(e.profile.end - e.profile.start for e in events)) * 1e-6
        except cl.Error as error:
            raise LaunchError(f"{self.device.name}: {error}") from error


def _set_args(
    kernel: Any,
    launch: Launch,
    buffers: Mapping[str, Any],
    offsets: Mapping[str, int],
    scalars: Mapping[str, int | float],
) -> None:
    for index, arg in enumerate(launch.args):
        if isinstance(arg, Buffer):
            kernel.set_arg(index, buffers[arg.role])
        elif isinstance(arg, Offset):
            kernel.set_arg(index, np.int64(offsets.get(arg.role, 0)))
        else:
            kernel.set_arg(index, SCALAR_TYPES[arg.type](scalars.get(arg.name, arg.value)))


@cache
def devices() -> tuple[Device, ...]:
    """Return every usable device, GPUs first, with a global index; broken ones are left out."""
    found: list[Device] = []
    for handle in _ranked():
        try:
            device = opened_as(len(found), handle)
        except cl.Error:
            continue  # `oclgen doctor` reports it; here a broken device must not stop the rest
        if (profile := profiles.chosen()) is None:
            device.limits = replace(
                device.limits,
                instructions=_instructions(device),
                declared_local_bytes=_declared_local_bytes(device),
            )
        elif profile.instructions:
            under = Device(len(found), handle, info_of(handle), limits_of(handle))
            shown = replace(under.limits, instructions=_instructions(under))
            device.limits = profile.laid_over(shown)
        found.append(device)
    return tuple(found)


def opened(index: int) -> Device:
    """Open one device alone, to build for it: its instructions are not asked for.

    Where a device before it cannot be opened, `index` means another one here than in `devices`.
    """
    return opened_as(index, _ranked()[index])


def opened_as(index: int, handle: Any) -> Device:
    """Open a device, a `pyopencl.Device`, with the limits of the profile that is laid over it."""
    info, limits, profile = info_of(handle), limits_of(handle), profiles.chosen()
    if profile is None:
        return Device(index, handle, info, limits)
    laid = profile.laid_over(limits)
    return Device(index, handle, profile.info(info), laid, laid if profile.is_enforced else None)


def _ranked() -> list[Any]:
    handles = [handle for platform in _platforms() for handle in _handles(platform)]
    order = {"gpu": 0, "other": 1, "cpu": 2}
    return sorted(handles, key=lambda h: (order[kind_of(h)], h.platform.name))


def _instructions(device: Device) -> frozenset[str]:
    """Return the names of the instructions that `device` builds, runs and gets right."""
    plans = probe.probes(device.limits.extensions, device.limits.kind)
    unlisted = cooperative.unlisted(device.handle, Path(cl._cl.__file__))
    asked = frozenset(
        name
        for name, plan in plans.items()
        if name not in unlisted and _answers(device, plan, probe.ANSWERS[name])
    )
    return asked | runtimes.instructions(device.info.runtime_version, device.info.name)


def _declared_local_bytes(device: Device) -> int:
    """Return what a kernel may declare beyond what the device reports, 0 if it may not."""
    size = declared.worth_asking(device.info)
    if size <= device.limits.local_bytes:
        return 0
    return size if _answers(device, declared.probe(size), declared.answer(size)) else 0


def _answers(device: Device, plan: Plan, expected: NDArray[np.float32]) -> bool:
    try:
        out = device.upload(np.zeros_like(expected))
        device.prepare(plan, {"ones": device.upload(probe.ONES), "out": out}).run()
        return bool((device.download(out, expected) == expected).all())
    except (BuildError, LaunchError):
        return False


def select(which: int | str) -> Device:
    """Return a device by global index or by a part of its name or runtime, case ignored.

    Raises:
        DeviceError: no device, or more than one, fits; the message lists what there is.
    """
    known = devices()
    if not known:
        raise DeviceError(
            "no OpenCL device found. Install a GPU driver with OpenCL, or the CPU runtime: "
            "pip install 'oclgen[cpu]'. `oclgen doctor` says what was tried."
        )
    listing = "; ".join(f"{d.index}: {d.name} ({d.info.runtime})" for d in known)
    text = str(which).strip()
    if text.isdecimal():
        if int(text) < len(known):
            return known[int(text)]
        raise DeviceError(f"there is no device {text}; known are {listing}")
    fits = [d for d in known if text.lower() in f"{d.name} {d.info.runtime}".lower()]
    if len(fits) == 1:
        return fits[0]
    found = "no device matches" if not fits else f"{len(fits)} devices match"
    raise DeviceError(f"{found} {text!r}; known are {listing}")


def _platforms() -> list[Any]:
    try:
        return list(cl.get_platforms())
    except cl.Error:
        return []


def _handles(platform: Any) -> list[Any]:
    try:
        return [d for d in platform.get_devices() if _works(platform, d)]
    except cl.Error:
        return []


def _works(platform: Any, handle: Any) -> bool:
    if not (handle.available and handle.compiler_available):
        return False
    return not runtimes.is_broken(platform.version, handle.name)
