"""The random generators of the devices: seeds and states. `ops.tensor.random` draws from them.

A generator is a seed and an offset, the next unused counter of Philox; both are the shim's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from ocl_backend.runtime.devices import (
    DeviceLike,
    current_device,
    device_count,
    index_of,
    is_available,
)

default_generators: list[torch.Generator] = []
"""The generator each device draws from when an operator is given none."""


def open_generators(seed: int | None) -> None:
    """Fill `default_generators`, seeded if a seed is given; the devices must be open."""
    get: Callable[[int], torch.Generator] = torch.ops.ocl.default_generator
    default_generators.extend(get(index) for index in range(device_count()))
    if seed is not None:
        manual_seed_all(seed)


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
    return default_generators[index_of(device)].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all generators."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "ocl") -> None:
    """Set the state of a device's generator to what `get_rng_state` returned."""
    default_generators[index_of(device)].set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of all generators to what `get_rng_state_all` returned."""
    for generator, state in zip(default_generators, new_states, strict=True):
        generator.set_state(state)
