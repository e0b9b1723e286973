"""Adding rows of floats at computed places by vectors, on GPUs that add four floats at once.

`scatter` finds a place for each item and adds it by itself. Atomic additions take a GPU as long for
four neighbours as for one, if an instruction takes all four.
"""

from __future__ import annotations

from functools import cache
from math import prod

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import FLOATS_16, dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, launch
from ocl_backend.kernels.places import PLACE, Places, parameters_of, place_of
from oclgen.limits import Limits
from oclgen.opencl.device import devices

WIDTH = 4
"""Floats that are added at once; they lie at a multiple of as many."""
MOST_MEETING = 4096
"""Values of a row, at most, on average: more that meet are added faster in tables."""
MOST_ITEMS = 2**20
"""Floats that are added one by one, at most, sooner than in tables, whose sums take more launches.
"""
ADD = """\
void add_vector(__global float *place, const float4 value)
{
    __asm__ volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                     :: "l"(place), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
                     : "memory");
}
"""


def are_possible(limits: Limits) -> bool:
    """Say whether a device adds vectors of floats to memory."""
    return "add_vectors" in limits.instructions


def add_rows(target: Tensor, places: Places, value: Tensor | float) -> bool:
    """Add values to `target` at places whose rows are whole vectors, in any order.

    Args:
        target: written in place.
        places: in it.
        value: a number, or a tensor that broadcasts to the places' shape.

    Returns:
        False where nothing was done: items lie apart, or the device adds no vectors.
    """
    shape, device = places.shape, target.get_device()
    if not are_possible(devices()[device].limits) or target.dtype is not torch.float32:
        return False
    if not isinstance(value, Tensor) or not _are_rows(target, places, value):
        return False
    walked = (*shape[:-1], shape[-1] // WIDTH)
    value = value.expand(shape)
    wide = {
        "target": _of_vectors(places.strides), "value": _of_vectors(value.stride()),
        "faults": (0,) * len(shape),
    }  # fmt: skip
    for k, index in enumerate(places.indices):
        wide[f"index_{k}"] = _of_vectors(index.expand(shape).stride())
    given: list[Tensor | float] = [target, *places.indices, *places.numbers]
    given += [faults.record(device), value]
    launch(_kernel(places.dtypes, value.dtype), walked, given, wide)
    faults.check(device)
    return True


def are_faster(target: Tensor, places: Places, value: Tensor | float) -> bool:
    """Say whether atomic additions are faster than tables (`table_sums`) where many values meet.

    Args:
        target: as of `add_rows`, or of a dtype that is added in fp32.
        places: in it.
        value: what is added.
    """
    if not are_possible(devices()[target.get_device()].limits) or len(places.indices) != 1:
        return False
    if places.indices[0].numel() > MOST_MEETING * places.sizes[0]:
        return False
    if target.dtype is torch.float32 and prod(places.shape) <= MOST_ITEMS:
        return True
    in_floats = target.dtype in (torch.float32, *FLOATS_16)
    return in_floats and isinstance(value, Tensor) and _are_rows(None, places, value)


def _are_rows(target: Tensor | None, places: Places, value: Tensor) -> bool:
    """Say whether target and value are neighbours along the last dimension, and begin vectors.

    None is a copy of the target, whose rows lie one behind the other.
    """
    shape = places.shape
    if not shape or 0 in shape or shape[-1] % WIDTH or places.strides[-1] != 1:
        return False
    moved = value.expand(shape).stride()
    still = all(index.dim() == 0 or index.shape[-1] == 1 for index in places.indices)
    if not still or moved[-1] != 1:
        return False
    steps = moved[:-1]
    if target is not None:
        if target.data_ptr() % (WIDTH * target.itemsize):
            return False
        steps = (*places.strides[:-1], *places.steps, *steps)
    begins = value.data_ptr() % (WIDTH * value.itemsize) == 0
    return begins and not any(step % WIDTH for step in steps)


def _of_vectors(strides: tuple[int, ...]) -> tuple[int, ...]:
    return (*strides[:-1], strides[-1] * WIDTH)


@cache
def _kernel(indices: tuple[torch.dtype, ...], value: torch.dtype) -> Kernel:
    body = f"add_vector(target_data + {place_of(len(indices))}, LOADS_value(value_at));"
    parameters = (
        Operand("target", torch.float32, "address"),
        *parameters_of(indices),
        Operand("value", value, "address", dtype_of(torch.float32).value, items=WIDTH),
    )
    return Kernel("add_rows", "float", parameters, body, PLACE + ADD, scalar_only=True)
