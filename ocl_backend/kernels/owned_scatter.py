"""Combining items at computed places on processors: the kernel of what `owners` shares out.

Results have one order, so this also serves torch.use_deterministic_algorithms there.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import broadcast_strides
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.owners import Dim, Owners, owners
from ocl_backend.kernels.places import PLACE, Places, parameters_of, place_of
from oclgen.opencl.device import devices

TESTED = """\
if ((uint)(at >> block) % PARTS != owner)
    continue;
"""

COLUMNS = """\
long c = owner * share;
const long last = min(c + share, columns);
for (; c + WIDTH <= last; c += WIDTH) {
    const V before = LOADS_target(at + c);
    const V value = (V)(VALUES);
    STORES_target(at + c, (FORMULA));
}
for (; c < last; ++c) {
    const T before = LOAD_target(at + c);
    const T value = VALUE;
    STORE_target(at + c, (FORMULA));
}
"""

ITEM = """\
const T before = LOAD_target(at);
const T value = VALUE;
STORE_target(at, (FORMULA));
"""


def combine_owned(target: Tensor, places: Places, value: Tensor | float, formula: str) -> bool:
    """Let each item of `target` become `formula` of `before` and `value`, value by value.

    Values that meet take their turns by their positions.

    Args:
        target: written in place.
        places: in it.
        value: a number, or a tensor that broadcasts to the places' shape.
        formula: C of `before`, the item, and `value`; vectors, too.

    Returns:
        False where nothing was done, because owners are not worth it on this device.
    """
    device, shape = target.get_device(), places.shape
    moves = [value] if isinstance(value, Tensor) else []
    strides = [broadcast_strides(shape, t.shape, t.stride()) for t in (*moves, *places.indices)]
    if not moves:
        strides.insert(0, (0,) * len(shape))
    dims = [
        Dim(size, at, moved, tuple(others))
        for size, at, moved, *others in zip(shape, places.strides, *strides, strict=True)
    ]
    limits = devices()[device].limits
    owned = owners(dims, places.steps, target.itemsize, limits)
    if owned is None:
        return False
    along = owned.walked
    walked = {
        "owner": (int(owned.way != "apart"), *(0 for _ in along[1:])),
        "target": tuple(dim.target for dim in along),
        "value": tuple(dim.value for dim in along),
        "faults": tuple(0 for _ in along),
    }
    for k in range(len(places.indices)):
        walked[f"index_{k}"] = tuple(dim.indices[k] for dim in along)
    given = [target, *places.indices, *places.numbers, faults.record(device), value]
    given += [owned.block, owned.share, owned.columns]
    kernel = _kernel(target.dtype, places, value, formula, owned)
    launch(kernel, [dim.size for dim in along], given, walked)
    faults.check(device)
    return True


def _kernel(
    dtype: torch.dtype, places: Places, value: Tensor | float, formula: str, owned: Owners
) -> Kernel:
    register, width = dtype_of(dtype).value, owned.width
    given: Operand | Scalar = Scalar("number", register)
    one = many = "number"
    if isinstance(value, Tensor):
        given = Operand("value", value.dtype, "address", items=width)
        one = many = "LOAD_value(value_at)"
        if owned.column_step:
            one, many = "LOAD_value(value_at + c)", "LOADS_value(value_at + c)"
    texts = {
        "VALUES": many,
        "VALUE": one,
        "FORMULA": formula,
        "WIDTH": str(width),
        "PARTS": str(owned.parts),
        "V": vectors.vector(register, width),
    }
    body = f"const long at = {place_of(places)};\n"
    body += TESTED if owned.way == "tested" else ""
    body += COLUMNS if width > 1 else ITEM
    for name, text in texts.items():
        body = re.sub(rf"\b{name}\b", text, body)
    parameters = (
        Operand("owner", role="position"),
        Operand("target", dtype, "address", items=width),
        *parameters_of(places),
        given,
        *(Scalar(name, "long") for name in ("block", "share", "columns")),
    )
    return Kernel(
        "scatter_owned", register, parameters, body, PLACE, scalar_only=True, parts=owned.parts
    )
