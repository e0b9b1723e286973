"""Combining items at computed places on processors: the kernel of what `owners` shares out.

Results have one order, so this also serves torch.use_deterministic_algorithms there.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import dtype_of, encode
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import broadcast_strides
from ocl_backend.kernels.elementwise import (
    Kernel,
    Operand,
    Run,
    Scalar,
    prepare_elementwise,
)
from ocl_backend.kernels.gathered_rows import found
from ocl_backend.kernels.owners import Dim, Owners, are_possible, owners
from ocl_backend.kernels.places import PLACE, Places, parameters_of, place_of
from ocl_backend.runtime.launch import MOST_LAUNCHES
from oclgen.opencl.device import devices

BODY = """\
long found[LISTED], from[LISTED];
for (long begin = 0; begin < inner_size; begin += LISTED) {
    const long end = min(begin + LISTED, inner_size);
    int own = 0;
    for (long k = begin; k < end; ++k) {
INDICES
        const long at = PLACE + k * inner_target;
        found[own] = at;
        from[own] = FROM;
        own += TEST;
    }
    for (int k = 0; k < own; ++k) {
COMBINE
    }
}
"""
ALONE = """\
int is_wrong = 0;
long begin = target_at;
STILL
for (long k = 0; k < inner_size; ++k) {
    long at = begin + k * inner_target;
FIND
    const T before = LOAD_target(at);
    const T value = VALUE;
    STORE_target(at, (FORMULA));
}
for (long k = 0; is_wrong && k < inner_size; ++k) {
INDICES
    NOTE;
}
"""
"""One owner's single items: there is nothing to look for."""
LISTED = 256
"""Places that are listed before their items are combined. Half of an owner's branches would be
mispredicted if it combined at once; that takes five times as long (EPYC, Zen 5)."""

TEST = "(uint)(found[own] >> block) % PARTS == owner"

VECTORS = """\
        for (; c + WIDTH <= last; c += WIDTH) {
            const V before = LOADS_target(found[k] + c);
            const V value = (V)(VALUES);
            STORES_target(found[k] + c, (FORMULA));
        }
"""

COLUMNS = """\
        long c = FIRST;
        const long last = min(c + share, columns);
%s        for (; c < last; ++c) {
            const T before = LOAD_target(found[k] + c);
            const T value = VALUE;
            STORE_target(found[k] + c, (FORMULA));
        }"""

ITEM = """\
        const T before = LOAD_target(found[k]);
        const T value = VALUE;
        STORE_target(found[k], (FORMULA));"""


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
    if not are_possible(devices()[device].limits):  # a GPU's call looks nothing up
        return False
    lies = tuple(broadcast_strides(shape, t.shape, t.stride()) for t in places.indices)
    if isinstance(value, Tensor):
        dtype, moves = value.dtype, broadcast_strides(shape, value.shape, value.stride())
        number: float = value.data_ptr()
    else:
        dtype, moves = None, (0,) * len(shape)
        number = encode(dtype_of(target.dtype).value, value)
    form = Form(target.dtype, places.dtypes, dtype, formula)
    strides = (places.strides, moves, *lies)
    prepared = _prepared(device, form, tuple(shape), strides, places.steps)
    if prepared is None:
        return False
    run, numbers = prepared
    indices = (index.data_ptr() for index in places.indices)
    noted = faults.record(device).data_ptr()
    run(target.data_ptr(), *indices, *places.numbers, noted, number, *numbers)
    faults.check(device)
    return True


class Form(NamedTuple):
    """What a kernel is made for: dtypes (of the value None: a number), and what it computes."""

    target: torch.dtype
    indices: tuple[torch.dtype, ...]
    value: torch.dtype | None
    formula: str


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, form: Form, shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...],
    reach: tuple[int, ...],
) -> tuple[Run, tuple[int, ...]] | None:  # fmt: skip
    """Return a launch and its last numbers; None where owners are not worth it.

    Args:
        device: its index.
        form: of the kernel.
        shape: of the places.
        strides: of target, value and all indices over it.
        reach: how far the target moves for a step of each index.
    """
    dims = [
        Dim(size, at, moved, tuple(others))
        for size, at, moved, *others in zip(shape, *strides, strict=True)
    ]
    owned = owners(dims, reach, form.target.itemsize, devices()[device].limits)
    if owned is None:
        return None
    *outer, inner = owned.walked
    walked = [
        [int(owned.way != "apart"), *(0 for _ in outer)],
        [*(dim.target for dim in outer), 0],
        *([*(dim.indices[k] for dim in outer), 0] for k in range(len(form.indices))),
        [0 for _ in owned.walked],
    ]
    if form.value is not None:
        walked.append([*(dim.value for dim in outer), 0])
    sizes = [*(dim.size for dim in outer), 1]
    run = prepare_elementwise(device, _kernel(form, owned), sizes, walked)
    numbers = owned.block, owned.share, owned.columns
    return run, (*numbers, inner.size, inner.target, inner.value, *inner.indices)


def _kernel(form: Form, owned: Owners) -> Kernel:
    register, width = dtype_of(form.target).value, owned.width
    given: Operand | Scalar = Scalar("number", register)
    one, many, source = "number", "number", "0"
    if form.value is not None:
        given = Operand("value", form.value, "address", items=width, anywhere=True)
        one = many = "LOAD_value(from[k])"
        source = "value_at + k * inner_value"
        if owned.column_step:
            one, many = "LOAD_value(from[k] + c)", "LOADS_value(from[k] + c)"
    numbers = range(len(form.indices))
    reads = (f"LOAD_index_{k}(index_{k}_at + k * inner_index_{k})" for k in numbers)
    texts = {
        "INDICES": "\n".join(f"        const long index_{k} = {r};" for k, r in enumerate(reads)),
        "COMBINE": ITEM if owned.columns == 1 else COLUMNS % (VECTORS if width > 1 else ""),
        "TEST": TEST if owned.way == "tested" else "1",
        "FROM": source,
        "FIRST": "owner * share" if owned.way == "columns" else "0",
        "PLACE": place_of(len(form.indices)),
        "NOTE": place_of(len(form.indices)).partition(" + ")[2],
        "VALUES": many,
        "VALUE": one,
        "FORMULA": form.formula,
        "LISTED": str(LISTED),
        "WIDTH": str(width),
        "PARTS": str(owned.parts),
        "V": vectors.vector(register, width),
    }
    body = BODY
    if owned.columns == 1 and owned.way != "tested":
        inner = owned.walked[-1]
        body = found(ALONE, inner.indices, "at")
        if inner.value == 1:
            source = source.replace("k * inner_value", "k")
        texts["VALUE"] = one.replace("from[k]", source)
    for name, text in texts.items():
        body = re.sub(rf"\b{name}\b", text, body)
    along = ("size", "target", "value", *(f"index_{k}" for k in numbers))
    parameters = (
        Operand("owner", role="position"),
        Operand("target", form.target, "address", items=width, anywhere=True),
        *parameters_of(form.indices, "address"),
        given,
        *(Scalar(name, "long") for name in ("block", "share", "columns")),
        *(Scalar(f"inner_{name}", "long") for name in along),
    )
    return Kernel(
        "scatter_owned", register, parameters, body, PLACE, scalar_only=True, parts=owned.parts
    )
