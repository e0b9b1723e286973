"""Measures the highest rates of a device, to say how near a kernel comes; takes 0.3 s.

A peak is no figure of the vendor and no promise: it is the best that simple generated kernels
reach here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from oclgen.limits import KIB, Limits
from oclgen.opencl import ptx
from oclgen.opencl.device import BuildError, Device, LaunchError, PreparedPlan
from oclgen.opencl.fragments import UNITS
from oclgen.opencl.probe import BYTE_DOTS, FATAL, HALF_TILES
from oclgen.plan import Launch, Plan, Scalar, buffer
from oclgen.render import render

CHAINS = {"cpu": ((16, 12), (8, 12)), "gpu": ((1, 16), (4, 4)), "other": ((4, 4),)}
"""(vector width, chains) worth trying, by kind of device. A CPU with 32 vector registers holds 12
chains and two constants twice over; a GPU's scalar lanes want few registers per work-item."""
TARGET_MS = 10.0
REPEATS = 8
MOST_STEPS = 60_000
"""Rounds of a work-item's loop; a launch that needs more time has more work-items. Mesa
22.3's llvmpipe ends loops after 65,535 rounds, so that more of them take no more time."""
MOST_TIMES = 1024
"""A launch with 1024 times the work-items that still takes no time is not timed at all."""
COPY_BYTES = {"cpu": 64 * KIB * KIB, "gpu": 256 * KIB * KIB, "other": 64 * KIB * KIB}
"""Bytes copied: well above the caches that such devices have."""


MATRIX_DTYPES = ("tf32", "fp16", "bf16")
NARROW = dict.fromkeys(("mma", "wgmma"), MATRIX_DTYPES) | {
    "cp_async": (),
    "tma": (),
    **dict.fromkeys(FATAL, ("bf16",)),
    **dict.fromkeys(BYTE_DOTS, ()),
    HALF_TILES: ("fp16",),
    **{name: unit.dtypes for name, unit in UNITS.items()},
}
"""Dtypes that an instruction computes faster than fp32 is computed; others: fp16 and bf16."""
GROUPS_PER_UNIT = 48
"""Work-groups of the matrix kernels per compute unit: several rounds of what fits at a time."""


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """A kernel of matrix instructions: of which kind, of what size, and how many in a step."""

    instruction: Literal["mma", "wgmma"]
    m: int
    n: int
    chains: int
    group: int

    def source(self, dtype: str) -> str:
        """Return the kernel for a dtype."""
        unit = self.instruction
        text = render("peak_matrix", unit=unit, dtype=dtype, n=self.n, chains=self.chains)
        return ptx.with_target(text, "sm_90a") if unit == "wgmma" else text

    def launch(self, limits: Limits, dtype: str) -> tuple[Launch, int]:
        """Return the launch that fills a device, and the operations of one step."""
        groups = GROUPS_PER_UNIT * limits.compute_units
        k = 8 if dtype == "tf32" else 16
        flops = 2 * self.m * self.n * k * self.chains * groups
        items = groups * self.group
        return _launch("peak_matrix", self.source(dtype), items, self.group), flops


MATRIX_UNITS = (
    MatrixUnit("mma", m=16, n=8, chains=8, group=32),
    MatrixUnit("wgmma", m=64, n=128, chains=8, group=128),
    MatrixUnit("wgmma", m=64, n=256, chains=8, group=128),
)


@dataclass(frozen=True, slots=True)
class Peak:
    """Measured fp32 multiply-add rate in GFLOP/s and copy bandwidth in GB/s (read and write)."""

    gflops: float
    gbytes: float


LOADED = 0.8
"""A device that reaches less than this part of its known peak has other work to do."""


@dataclass(frozen=True, slots=True)
class Level:
    """What a device reached just now, beside the best that is known of it (None: nothing yet)."""

    now: Peak
    known: Peak | None = None

    @property
    def best(self) -> Peak:
        """The larger of both, rate and bandwidth each."""
        known = self.known or self.now
        return Peak(max(self.now.gflops, known.gflops), max(self.now.gbytes, known.gbytes))

    @property
    def notice(self) -> str:
        """A sentence for the user if other work runs on the device, "" if none is noticed."""
        if self.now.gflops >= LOADED * self.best.gflops:
            return ""
        return (
            f"The measured peak of {self.now.gflops:.0f} GFLOP/s is below {LOADED} of the "
            f"{self.best.gflops:.0f} GFLOP/s known of this device: other work runs on it, and "
            "times taken meanwhile are too long. End that work and tune again."
        )


@cache
def measure(device: Device) -> Peak:
    """Measure a device once per process.

    Raises:
        BuildError: the compiler refused a kernel.
        LaunchError: a launch failed.
    """
    candidates = CHAINS[device.limits.kind]
    return Peak(max(_gflops(device, vec, chains) for vec, chains in candidates), _gbytes(device))


@cache
def matrix_gflops(device: Device) -> dict[str, float]:
    """Measure the matrix units once per process: GFLOP/s by dtype, empty for a device without.

    `wgmma` or `mma.sync`, whichever is faster, with sums in fp32. A kernel that the compiler
    refuses is passed over.
    """
    rates = {
        dtype: max(_matrix_gflops(device, unit, dtype) for unit in MATRIX_UNITS)
        for dtype in MATRIX_DTYPES
    }
    return {dtype: rate for dtype, rate in rates.items() if rate}


def by_dtype(device: Device, fp32: float, known: Collection[str] = ()) -> dict[str, float]:
    """Return GFLOP/s of dtypes other than fp32.

    A dtype that no instruction of the device is for is computed in fp32 and has its rate. One whose
    instructions are not measured here, those of processors and of other vendors, is left out.

    Args:
        device: that is measured, once per process.
        fp32: its GFLOP/s in fp32.
        known: dtypes whose rates are known; matrix units that are among them are not measured.
    """
    faster = {d for one in device.limits.instructions for d in NARROW.get(one, ("fp16", "bf16"))}
    matrix = {} if faster.issubset(known) else matrix_gflops(device)
    slow = [dtype for dtype in MATRIX_DTYPES if dtype not in faster]
    return dict.fromkeys(slow, fp32) | matrix


def _matrix_gflops(device: Device, unit: MatrixUnit, dtype: str) -> float:
    if unit.instruction not in device.limits.instructions:
        return 0.0
    try:
        return _rate(device, *unit.launch(device.limits, dtype))
    except (BuildError, LaunchError):
        return 0.0


def _gflops(device: Device, vec: int, chains: int) -> float:
    items, group = _items(device.limits)
    source = render("peak_fma", vec=vec, chains=chains)
    return _rate(device, _launch("peak_fma", source, items, group), 2 * items * vec * chains)


def _launch(kernel: str, source: str, items: int, group: int) -> Launch:
    args = (*buffer("out"), Scalar(0, name="steps"))
    return Launch(source, kernel, (items,), (group,), args)


def _rate(device: Device, launch: Launch, flops: int) -> float:
    """Return the GFLOP/s of a kernel that makes `flops` operations per step, and few besides."""

    def prepared(steps: int, times: int) -> PreparedPlan:
        many = replace(launch, global_size=(times * launch.global_size[0],))
        out = device.empty(4 * many.global_size[0])
        return device.prepare(Plan((many,)), {"out": out}, scalars={"steps": steps})

    steps, times, spent = 1024, 1, _best(prepared(1024, 1), 1)
    while spent < TARGET_MS / 4:
        if steps < MOST_STEPS:
            steps = min(2 * steps, MOST_STEPS)
        elif times < MOST_TIMES:
            times *= 2
        else:
            raise LaunchError(f"{device.name}: {launch.kernel} takes no time, whatever it does")
        spent = _best(prepared(steps, times), 1)
    steps = min(int(steps * TARGET_MS / spent), MOST_STEPS)
    return 1e-6 * flops * times * steps / _best(prepared(steps, times), REPEATS)


def _gbytes(device: Device) -> float:
    vec = 16 if device.limits.kind == "cpu" else 4
    group = min(256, device.limits.max_work_group)
    room = min(device.limits.max_alloc_bytes, device.limits.global_bytes // 4)
    items = min(COPY_BYTES[device.limits.kind], room) // (4 * vec * group) * group
    size = 4 * vec * items
    launch = Launch(
        text=render("peak_copy", vec=vec),
        kernel="peak_copy",
        global_size=(items,),
        local_size=(group,),
        args=(*buffer("in"), *buffer("out")),
    )
    buffers = {"in": device.empty(size), "out": device.empty(size)}
    return 2e-6 * size / _best(device.prepare(Plan((launch,)), buffers), REPEATS)


READ_VECTORS = {"cpu": 64, "gpu": 8, "other": 8}
"""Vectors that a work-item reads: rows of pages for processors, few loads in flight for GPUs."""


def reading(device: Device, size: int) -> tuple[PreparedPlan, int]:
    """Return a launch that reads about `size` bytes, and how many it reads.

    It is prepared and not run, so that it can be timed in turns with what it is compared to.

    Args:
        device: whose memory is read.
        size: bytes, those of what it is compared to: caches give more than memory.

    Raises:
        BuildError: the compiler refused the kernel.
    """
    kind = device.limits.kind
    vec, group = (16, 1) if kind == "cpu" else (4, min(256, device.limits.max_work_group))
    count = READ_VECTORS[kind]
    groups = max(1, size // (4 * vec * count * group))
    launch = Launch(
        text=render("peak_read", vec=vec, count=count, group=group),
        kernel="peak_read",
        global_size=(groups * group,),
        local_size=(group,),
        args=(*buffer("in"), *buffer("out")),
    )
    read = groups * group * count * 4 * vec
    buffers = {"in": device.empty(read), "out": device.empty(4 * groups * group)}
    device.fill(buffers["in"], 1, read)
    return device.prepare(Plan((launch,)), buffers), read


def _items(limits: Limits) -> tuple[int, int]:
    """Return work-items and work-group size that fill a device several times over."""
    if limits.kind == "cpu":
        return 32 * limits.compute_units, 1
    group = min(256, limits.max_work_group)
    return 16 * group * limits.compute_units, group


def _best(prepared: PreparedPlan, repeats: int) -> float:
    """Return the least event time in milliseconds; the first run, which pays for pages, is out."""
    prepared.run()
    return min(prepared.run() for _ in range(repeats))
