"""Reading and writing items at computed places: the one kernel behind all indexing operators.

Which places an operator means is decided in `indexing`; here they are walked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import prod
from typing import Literal

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dispatch.checks import check_written
from ocl_backend.dtypes import UnsupportedDtypeError, dtype_of
from ocl_backend.kernels.added_rows import add_rows
from ocl_backend.kernels.elementwise import Kernel, Operand, Run, Scalar, found, launch
from ocl_backend.kernels.fixed_order_scatter import combine_in_order, is_wanted
from ocl_backend.kernels.gathered_columns import read_columns
from ocl_backend.kernels.gathered_rows import read_rows
from ocl_backend.kernels.moved_rows import moving
from ocl_backend.kernels.owned_scatter import combine_owned
from ocl_backend.kernels.places import PLACE, Places, parameters_of, place_of
from ocl_backend.kernels.table_sums import add_by_tables, are_possible
from oclgen.opencl.device import devices

Combine = Literal["assign", "add", "prod", "amax", "amin"]

COMBINE = {
    "add": "before + value",
    "prod": "before * value",
    "amax": "before > value || before != before ? before : value",
    "amin": "before < value || before != before ? before : value",
}

NARROW = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.bool: torch.int32,
}
"""Dtypes that are combined in wider ones: floats are rounded once, and bools stay 0 or 1."""

WIDE_ATOMICS = "cl_khr_int64_base_atomics"
"""What a device needs to combine items of 8 bytes that meet; mobile GPUs and Apple's lack it."""


Locate = Callable[[Tensor], Places]
"""Says where in a tensor an operator's places are; it may be asked for a copy of it."""


def read(source: Tensor, locate: Locate, out: Tensor) -> Tensor:
    """Write the items at places to a tensor.

    Args:
        source: of any strides.
        locate: returns the places in `source`.
        out: of the places' shape; written.

    Returns:
        `out`.

    Raises:
        IndexError, RuntimeError: an index is out of range, and errors are synchronous or there are
            no items.
    """
    source = source.contiguous() if _is_scattered(source, out.numel() // 2) else source
    places = locate(source)
    places.check()
    if read_rows(source, places, out) or read_columns(source, places, out):
        return out
    if rows := moving(source, places, out, reads=True):
        rows[0](*rows[1])
        faults.check(source.get_device())
        return out
    kernel = Kernel(
        "gather",
        dtype_of(source.dtype).value,
        (
            Operand("target", source.dtype, "address"),
            *parameters_of(places.dtypes),
            Operand("out", out.dtype, "output"),
        ),
        f"const T out = LOAD_target({place_of(len(places.indices))});",
        PLACE,
        scalar_only=True,
    )
    device = source.get_device()
    given: list[Tensor | float] = [source, *places.indices, *places.numbers]
    given += [faults.record(device), out]
    launch(kernel, places.shape, given, _walked(places))
    faults.check(device)
    return out


def _walked(places: Places) -> dict[str, tuple[int, ...]]:
    return {"target": places.strides, "faults": (0,) * len(places.shape)}


def write(target: Tensor, locate: Locate, value: Tensor | float, combine: Combine) -> None:
    """Put a value into a tensor at places, or combine it with what is there.

    Where places meet, `assign` keeps one of the values; the others combine all, in any order: sums
    of floats then differ in the last bits from run to run, unless torch's deterministic algorithms
    are asked for, or the device has no atomics for them.

    Args:
        target: written in place.
        locate: returns the places in `target`.
        value: a number, or a tensor that broadcasts to the places' shape.
        combine: how.

    Raises:
        IndexError, RuntimeError: as `read`, or several items of `target` share a place in memory.
    """
    if combine == "add" and _add_by_tables(target, locate, value):
        return
    if combine != "assign" and target.dtype in NARROW:
        _write_wide(target, locate, value, combine)
        return
    if target.dtype is torch.bool and not isinstance(value, Tensor):
        value = bool(value)  # as a uchar, 0.5 would be 0
    places = locate(target)
    places.check()
    _check_apart(places.operator, target)
    if combine != "assign" and _is_scattered(target, prod(places.shape)):
        dense = target.contiguous()
        write(dense, locate, value, combine)
        target.copy_(dense)
        return
    in_order = is_wanted(target, combine)
    formula = "value" if combine == "assign" else COMBINE[combine]
    if (in_order or combine != "assign") and combine_owned(target, places, value, formula):
        return
    if in_order or (combine != "assign" and not has_atomics(target)):
        combine_in_order(target, _items(places), value, formula)
        return
    if combine == "add" and add_rows(target, places, value):
        return
    run, values = writing(target, places, value, combine)
    run(*values)
    faults.check(target.get_device())


def _is_scattered(x: Tensor, items: int) -> bool:
    """Say whether a processor walks as many `items` as x has or more, and x has no dense rows."""
    if x.numel() > items or x.is_contiguous():
        return False
    return devices()[x.get_device()].limits.kind == "cpu"


def _add_by_tables(target: Tensor, locate: Locate, value: Tensor | float) -> bool:
    """Add where many values meet in few rows; say whether this was done."""
    if not are_possible(devices()[target.get_device()].limits):  # a processor's call finds none
        return False
    places = locate(target)
    places.check()
    _check_apart(places.operator, target)
    return add_by_tables(target, places, value)


def _check_apart(operator: str, target: Tensor) -> None:
    """Refuse a target of which several items share a place, or warn as torch does of `EXPANDED`."""
    try:
        check_written(operator, target)
    except RuntimeError:
        if operator not in EXPANDED:
            raise
        warnings.warn(
            f"Use of {operator}_ on expanded tensors is deprecated. Please clone() the tensor "
            "before performing this operation. This also applies to advanced indexing",
            stacklevel=4,
        )


EXPANDED = ("index_put", "index_fill")
"""Operators that write to expanded tensors, where one of the values remains."""

FEW = 4
"""How many times as many items as places a target has whose places alone are widened and rounded:
they are walked four times, and the whole target twice."""


def _write_wide(target: Tensor, locate: Locate, value: Tensor | float, combine: Combine) -> None:
    """Combine as `write` in a copy of a wider dtype; of few places, in a copy of these alone."""
    dtype, shape = NARROW[target.dtype], locate(target).shape
    if not 0 < prod(shape) * FEW <= target.numel():
        wide = target.to(dtype)
        write(wide, locate, value, combine)
        target.copy_(wide)
        return
    wide = torch.empty_like(target, dtype=dtype)
    _put(wide, locate, read(target, locate, wide.new_empty(shape)))
    write(wide, locate, value, combine)
    _put(target, locate, read(wide, locate, target.new_empty(shape)))


def _put(target: Tensor, locate: Locate, value: Tensor) -> None:
    """Assign where values that meet are equal; owners write whole rows of them."""
    if not combine_owned(target, locate(target), value, "value"):
        write(target, locate, value, "assign")


def writing(
    target: Tensor, places: Places, value: Tensor | float, combine: Combine
) -> tuple[Run, list[float]]:
    """Return the launch of `write`, and what it is called with.

    Those are target, indices, `Places.numbers`, the record of faults, the value, and what else the
    launch takes.

    Args:
        target: written in place.
        places: in it.
        value: as of `write`.
        combine: how.
    """
    if combine == "assign" and isinstance(value, Tensor):
        rows = moving(target, places, value, reads=False)
        if rows is not None:
            return rows
    of_floats = combine == "add" and adds_floats(target.get_device())
    kernel = _writer(target.dtype, places, value, combine, of_floats)
    given: list[Tensor | float] = [target, *places.indices, *places.numbers]
    given += [faults.record(target.get_device()), value]
    return found(kernel, places.shape, given, _walked(places))


def has_atomics(target: Tensor) -> bool:
    """Whether the device can compare and swap items of this tensor, of 4 or 8 bytes."""
    narrow = target.itemsize < 8
    return narrow or WIDE_ATOMICS in devices()[target.get_device()].limits.extensions


def require_atomics(target: Tensor) -> None:
    """Send a call whose kernel adds to items of `target` to the CPU, counted, where it must.

    Raises:
        UnsupportedDtypeError: the device cannot compare and swap items of this size.
    """
    if not has_atomics(target):
        raise UnsupportedDtypeError(f"no atomics on {target.dtype} here")


def _items(places: Places) -> Tensor:
    """Return which items the places are, counted from the tensor's first, as int64."""
    out = torch.empty(places.shape, dtype=torch.int64, device=places.indices[0].device)
    parameters = (
        Operand("target_at", role="position"), *parameters_of(places.dtypes),
        Operand("out", torch.int64, "output"),
    )  # fmt: skip
    kernel = Kernel(
        "places",
        "long",
        parameters,
        f"const long out = {place_of(len(places.indices))};",
        PLACE,
        scalar_only=True,
    )
    device = out.get_device()
    given: list[Tensor | float] = [*places.indices, *places.numbers, faults.record(device), out]
    walked = _walked(places)
    launch(kernel, places.shape, given, {**walked, "target_at": walked["target"]})
    faults.check(device)
    return out


def _writer(
    dtype: torch.dtype, places: Places, value: Tensor | float, combine: Combine, of_floats: bool
) -> Kernel:
    register = dtype_of(dtype).value
    given: Operand | Scalar = Scalar("value", register)
    if isinstance(value, Tensor):
        given = Operand("value", value.dtype)
    body = f"const long at = {place_of(len(places.indices))};\n"
    if combine == "assign":
        body += "STORE_target(at, value)"
        helpers = PLACE
    else:
        body += "update(target_data + at, value);"
        helpers = PLACE + atomic_update(register, dtype.itemsize, combine, of_floats)
    parameters = (Operand("target", dtype, "address"), *parameters_of(places.dtypes), given)
    return Kernel(f"scatter_{combine}", register, parameters, body, helpers, scalar_only=True)


UPDATE = """
%(pragma)s
// OpenCL C has no atomics on every type: compare and swap bits until no write came between
void update(volatile __global %(value)s *place, const %(value)s value)
{
    volatile __global %(bits)s *bits = (volatile __global %(bits)s *)place;
    while (true) {
        const %(bits)s seen = *bits;
        const %(value)s before = as_%(value)s(seen);
        const %(value)s after = %(combine)s;
        if (%(swap)s(bits, seen, as_%(bits)s(after)) == seen)
            return;
    }
}
"""


UPDATE_PART = """
// atomics are on words of 4 bytes: compare and swap the word that holds the item; allocations are
// whole words
void update(volatile __global %(value)s *place, const %(value)s value)
{
    const uint first = (uint)((size_t)place & 3), shift = first * 8;
    const uint others = ~(%(mask)s << shift);
    volatile __global uint *word =
        (volatile __global uint *)((volatile __global uchar *)place - first);
    while (true) {
        const uint seen = *word;
        const %(value)s before = (%(value)s)(seen >> shift);
        const %(value)s after = (%(value)s)(%(combine)s);
        const uint swapped = (seen & others) | (((uint)after << shift) & ~others);
        if (atomic_cmpxchg(word, seen, swapped) == seen)
            return;
    }
}
"""


UPDATE_AT_ONCE = """
%(pragma)s
void update(volatile __global %(value)s *place, const %(value)s value)
{
    %(add)s;
}
"""
ADDS = {
    "int": "atomic_add(place, value)",
    "long": "atom_add(place, value)",
}
PTX_ADDS = {
    value: f'__asm__ volatile("red.global.add.{item} [%0], %1;" :: "l"(place), "{letter}"(value) : '
    '"memory")'
    for value, item, letter in (("float", "f32", "f"), ("double", "f64", "d"))
}
"""Additions by one instruction, by type: where many values meet, those that compare and swap try
again and again. OpenCL C has none of floats, but NVIDIA's GPUs do."""


def adds_floats(device: int) -> bool:
    """Whether a device adds floats to memory by one instruction: one whose compiler takes PTX."""
    return "cp_async" in devices()[device].limits.instructions


def atomic_update(value: str, item_bytes: int, combine: Combine, of_floats: bool) -> str:
    """Return the function `update(place, value)`: combine with an item that others combine with.

    Args:
        value: OpenCL C's type of an item; an integer below 4 bytes.
        item_bytes: 1, 2, 4 or 8.
        combine: how.
        of_floats: what `adds_floats` says of the device.
    """
    at_once = ADDS | PTX_ADDS if of_floats else ADDS
    if combine == "add" and value in at_once and item_bytes >= 4:
        pragma = f"#pragma OPENCL EXTENSION {WIDE_ATOMICS} : enable" if value == "long" else ""
        return UPDATE_AT_ONCE % {"value": value, "pragma": pragma, "add": at_once[value]}
    if item_bytes < 4:
        mask = "0xffu" if item_bytes == 1 else "0xffffu"
        return UPDATE_PART % {"value": value, "mask": mask, "combine": COMBINE[combine]}
    wide = item_bytes == 8
    return UPDATE % {
        "value": value,
        "bits": "long" if wide else "int",
        "swap": "atom_cmpxchg" if wide else "atomic_cmpxchg",
        "pragma": f"#pragma OPENCL EXTENSION {WIDE_ATOMICS} : enable" if wide else "",
        "combine": COMBINE[combine],
    }


def alert_not_deterministic(name: str) -> None:
    """Say in torch's words that items which meet are added in any order, where that matters.

    Args:
        name: of the operator.

    Raises:
        RuntimeError: deterministic algorithms were asked for; a warning, if so wanted.
    """
    if not torch.are_deterministic_algorithms_enabled():
        return
    text = (
        f"{name} does not have a deterministic implementation, but you set "
        "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this "
        "operation, or you can use the 'warn_only=True' option."
    )
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise RuntimeError(text)
    warnings.warn(text, stacklevel=3)
