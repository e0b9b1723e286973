"""Measures what a device can do at most, to say how near a kernel comes; takes 0.3 s.

It is no vendor's figure and no promise: the best that simple generated fp32 kernels reach here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from oclgen.device import Device, PreparedPlan
from oclgen.limits import KIB, Limits
from oclgen.plan import Launch, Plan, Scalar, buffer
from oclgen.render import render

CHAINS = {"cpu": ((16, 12), (8, 12)), "gpu": ((1, 16), (4, 4)), "other": ((4, 4),)}
"""(vector width, chains) worth trying, by kind of device. A CPU with 32 vector registers holds 12
chains and two constants twice over; a GPU's scalar lanes want few registers per work-item."""
TARGET_MS = 10.0
REPEATS = 8
COPY_BYTES = {"cpu": 64 * KIB * KIB, "gpu": 256 * KIB * KIB, "other": 64 * KIB * KIB}
"""Bytes copied: well above the caches that such devices have."""


@dataclass(frozen=True, slots=True)
class Peak:
    """Measured fp32 multiply-add rate in GFLOP/s and copy bandwidth in GB/s (read and write)."""

    gflops: float
    gbytes: float


@cache
def measure(device: Device) -> Peak:
    """Measure a device once per process.

    Raises:
        BuildError: the compiler refused a kernel.
        LaunchError: a launch failed.
    """
    candidates = CHAINS[device.limits.kind]
    return Peak(max(_gflops(device, vec, chains) for vec, chains in candidates), _gbytes(device))


def _gflops(device: Device, vec: int, chains: int) -> float:
    items, group = _items(device.limits)
    launch = Launch(
        source=render("peak_fma", vec=vec, chains=chains),
        kernel="peak_fma",
        global_size=(items,),
        local_size=(group,),
        args=(*buffer("out"), Scalar(0, name="steps")),
    )
    out = device.empty(4 * items)

    def prepared(steps: int) -> PreparedPlan:
        return device.prepare(Plan((launch,)), {"out": out}, scalars={"steps": steps})

    steps, spent = 512, 0.0
    while spent < TARGET_MS / 4:
        steps *= 2
        spent = _best(prepared(steps), 1)
    steps = int(steps * TARGET_MS / spent)
    return 2e-6 * items * vec * chains * steps / _best(prepared(steps), REPEATS)


def _gbytes(device: Device) -> float:
    vec = 16 if device.limits.kind == "cpu" else 4
    group = min(256, device.limits.max_work_group)
    room = min(device.limits.max_alloc_bytes, device.limits.global_bytes // 4)
    items = min(COPY_BYTES[device.limits.kind], room) // (4 * vec * group) * group
    size = 4 * vec * items
    launch = Launch(
        source=render("peak_copy", vec=vec),
        kernel="peak_copy",
        global_size=(items,),
        local_size=(group,),
        args=(*buffer("in"), *buffer("out")),
    )
    buffers = {"in": device.empty(size), "out": device.empty(size)}
    return 2e-6 * size / _best(device.prepare(Plan((launch,)), buffers), REPEATS)


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
