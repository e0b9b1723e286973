"""The allocator's figures and its limit, as torch.cuda has them. Allocation is the shim's."""

from __future__ import annotations

import ctypes
from typing import Any

from torch import accelerator

from ocl_backend.runtime import memory, shim
from ocl_backend.runtime.devices import DeviceLike, get_device_name, index_of
from ocl_backend.runtime.snapshots import (  # noqa: F401 (this module is `torch.ocl.memory`)
    _dump_snapshot,
    _record_memory_history,
    _snapshot,
    memory_snapshot,
)

MIB = 1 << 20


def empty_cache() -> None:
    """Give every cached, unused block of every device back to its driver."""
    accelerator.empty_cache()


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Return the allocator's figures, named as in torch.cuda.memory_stats, bytes and counts."""
    return dict(accelerator.memory_stats(index_of(device)))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """Return `memory_stats` as dictionaries in dictionaries, split where its names have dots."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *outer, last = name.split(".")
        part = nested
        for key in outer:
            part = part.setdefault(key, {})
        part[last] = value
    return nested


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes that tensors hold, rounded up to the allocator's size classes."""
    return accelerator.memory_allocated(index_of(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the peak of `memory_allocated` since the start or the last reset."""
    return accelerator.max_memory_allocated(index_of(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes taken from the driver: held by tensors or cached."""
    return accelerator.memory_reserved(index_of(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the peak of `memory_reserved` since the start or the last reset."""
    return accelerator.max_memory_reserved(index_of(device))


def kept_weights_bytes(device: DeviceLike = None) -> int:
    """Return the bytes of `memory_allocated` that hold what was made of weights: `keep_weights`."""
    kept = shim.library().ocl_kept_bytes
    kept.restype = ctypes.c_size_t
    count: int = kept(ctypes.c_int(index_of(device)))
    return count


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Start the peaks again from the present values."""
    accelerator.reset_peak_memory_stats(index_of(device))


reset_max_memory_allocated = reset_peak_memory_stats
"""torch.cuda's older name."""


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Start the counts of everything ever allocated and freed again from zero."""
    accelerator.reset_accumulated_memory_stats(index_of(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return (bytes this process may still reserve, bytes of the device's memory)."""
    return accelerator.get_memory_info(index_of(device))


def device_memory_used(device: DeviceLike = None) -> int:
    """Return the bytes of the device's memory that this process may not reserve."""
    free, total = mem_get_info(device)
    return total - free


def memory_summary(device: DeviceLike = None) -> str:
    """Return a table of what is held, reserved and requested: now, at its peak, and in all."""
    stats = memory_stats(device)
    free, total = mem_get_info(device)
    lines = [
        f"ocl:{index_of(device)} {get_device_name(device)}: "
        f"{free / MIB:.1f} MiB may still be reserved, {total / MIB:.1f} MiB on the device",
        f"{'MiB':<12}{'now':>12}{'peak':>12}{'allocated':>12}{'freed':>12}",
    ]
    for label, key in (
        ("in tensors", "allocated_bytes"), ("asked for", "requested_bytes"),
        ("reserved", "reserved_bytes"),
    ):  # fmt: skip
        columns = [stats[f"{key}.all.{part}"] for part in ("current", "peak", "allocated", "freed")]
        lines.append(f"{label:<12}" + "".join(f"{value / MIB:>12.1f}" for value in columns))
    lines.append(
        f"{stats['num_alloc_retries']} allocations emptied the cache first, "
        f"{stats['num_ooms']} found no memory"
    )
    return "\n".join(lines)


_fractions: dict[int, float] = {}


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Let this process reserve at most `fraction` (0 to 1) of the device's memory.

    Raises:
        ValueError: the fraction is not between 0 and 1.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction={fraction} must be between 0 and 1")
    index = index_of(device)
    memory.set_limit(index, int(fraction * memory.open_devices()[index].limits.global_bytes))
    _fractions[index] = fraction


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """Return what `set_per_process_memory_fraction` was given, 1 at first."""
    return _fractions.get(index_of(device), 1.0)
