"""The module `torch.ocl`: devices, memory figures, random numbers and fallbacks, as torch.cuda has.

It forwards to torch.accelerator and the shim, which hold all state.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import accelerator

from ocl_backend import memory, tunable
from ocl_backend.fallback import fallbacks, reset_fallbacks
from ocl_backend.tuned import explain, reload_tuned
from oclgen.device import Device as OpenCLDevice

__all__ = [
    "current_device",
    "default_generators",
    "device",
    "device_count",
    "empty_cache",
    "explain",
    "fallbacks",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reload_tuned",
    "reset_fallbacks",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "synchronize",
    "tunable",
]

DeviceLike = torch.device | str | int | None

_forked = False


def _mark_forked() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_mark_forked)


def _is_in_bad_fork() -> bool:
    return _forked


def _index(device: DeviceLike) -> int:
    """Return the index `device` means: an int, a torch.device, a string, or None for current.

    Raises:
        ValueError: it is a device of another type.
        RuntimeError: there is no such device.
    """
    if device is None:
        return current_device()
    if isinstance(device, int):
        index: int | None = device
    else:
        wanted = torch.device(device)
        if wanted.type != "ocl":
            raise ValueError(f"expected an ocl device, got {wanted}")
        index = wanted.index
    if index is None:
        return current_device()
    if not 0 <= index < device_count():
        raise RuntimeError(f"there is no device ocl:{index}; {device_count()} were found")
    return index


def is_available() -> bool:
    """Return whether there is an OpenCL device to run on."""
    return device_count() > 0


def is_initialized() -> bool:
    """Return True: importing `ocl_backend` opens the devices."""
    return True


def device_count() -> int:
    """Return the number of OpenCL devices, GPUs first; their indices are global."""
    return len(memory.open_devices())


def current_device() -> int:
    """Return the index of the device new tensors on `"ocl"` go to in this thread."""
    return accelerator.current_device_index()


def set_device(device: DeviceLike) -> None:
    """Make `device` the current one in this thread."""
    accelerator.set_device_index(_index(device))


class device:  # noqa: N801  (torch.cuda.device set the name)
    """Context manager that makes a device the current one; None and negative change nothing."""

    def __init__(self, device: DeviceLike) -> None:
        unchanged = device is None or (isinstance(device, int) and device < 0)
        self.index = None if unchanged else _index(device)

    def __enter__(self) -> None:
        """Switch to the device and remember the one before."""
        self.before = current_device()
        if self.index is not None:
            set_device(self.index)

    def __exit__(self, *exception: object) -> None:
        """Switch back."""
        set_device(self.before)


def synchronize(device: DeviceLike = None) -> None:
    """Wait until everything enqueued on `device` has run.

    Raises:
        RuntimeError: an earlier command failed; the message names the last kernel launched.
    """
    # not accelerator.synchronize, which returns at once under torch 2.11 with CUDA
    accelerator.current_stream(_index(device)).synchronize()


def get_device_properties(device: DeviceLike = None) -> OpenCLDevice:
    """Return the opened OpenCL device: name, info (driver, runtime), limits (memory, groups)."""
    return memory.open_devices()[_index(device)]


def get_device_name(device: DeviceLike = None) -> str:
    """Return the device's own name."""
    return get_device_properties(device).name


def empty_cache() -> None:
    """Give every cached, unused block of every device back to its driver."""
    accelerator.empty_cache()


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Return the allocator's figures, named as in torch.cuda.memory_stats, bytes and counts."""
    return dict(accelerator.memory_stats(_index(device)))


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes that tensors hold, rounded up to the allocator's size classes."""
    return accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the peak of `memory_allocated` since the start or the last reset."""
    return accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes taken from the driver: held by tensors or cached."""
    return accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the peak of `memory_reserved` since the start or the last reset."""
    return accelerator.max_memory_reserved(_index(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Start the peaks again from the present values."""
    accelerator.reset_peak_memory_stats(_index(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return (bytes this process may still reserve, bytes of the device's memory)."""
    return accelerator.get_memory_info(_index(device))


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Let this process reserve at most `fraction` (0 to 1) of the device's memory.

    Raises:
        ValueError: the fraction is not between 0 and 1.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction={fraction} must be between 0 and 1")
    index = _index(device)
    memory.set_limit(index, int(fraction * memory.open_devices()[index].limits.global_bytes))


default_generators: tuple[torch.Generator, ...] = ()
"""The generator each device draws from when an operator is given none."""


def open_generators() -> None:
    """Fill `default_generators`; the devices must be open."""
    global default_generators
    get: Callable[[int], torch.Generator] = torch.ops.ocl.default_generator
    default_generators = tuple(get(index) for index in range(device_count()))


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    if is_available():
        default_generators[current_device()].manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for generator in default_generators:
        generator.manual_seed(seed)


def seed() -> int:
    """Seed the current device's generator at random and return the seed."""
    return default_generators[current_device()].seed()


def seed_all() -> int:
    """Seed the generators of all devices with the same random number and return it."""
    number = seed()
    manual_seed_all(number)
    return number


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return default_generators[current_device()].initial_seed()


def get_rng_state(device: DeviceLike = "ocl") -> torch.Tensor:
    """Return the state of a device's generator: 16 bytes on the CPU, seed and offset."""
    return default_generators[_index(device)].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all generators."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "ocl") -> None:
    """Set the state of a device's generator to what `get_rng_state` returned."""
    default_generators[_index(device)].set_state(new_state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes `torch.autocast("ocl")` may choose."""
    return [torch.float16, torch.bfloat16]
