"""Sums of rows that indices name, by bag, in one launch: each bag's columns are one work-item's.

A sum is rounded once, and no row is written anywhere before it is added.
"""

from __future__ import annotations

import textwrap
from functools import cache

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dispatch.checks import check_index
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, Scalar, launch
from ocl_backend.kernels.owners import are_possible
from ocl_backend.kernels.places import PLACE, Places, parameters_of
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

APART = 8
"""Items whose copy takes a processor less time than to add one that lies apart from its row's."""
MOST_IN_BAG = 64
"""Indices of a bag, on average, that a GPU's work-item adds one after the other."""

OFFSETS = f"""\
const long first_offset = LOAD_offsets(0), last_offset = LOAD_offsets(starts - 1);
if (first_offset != 0)
    note_fault(faults_data, {faults.NUMBERS["embedding_bag first"]}, first_offset, count, 0);
if (last_offset > count)
    note_fault(faults_data, {faults.NUMBERS["embedding_bag last"]}, last_offset, count, 0);
"""
"""Notes offsets that torch refuses."""
BODY = f"""\
if (bag == 0 && first == 0) {{
{textwrap.indent(OFFSETS, "    ")}\
}}
const long begin = clamp(LOAD_offsets(bag), 0L, count);
const long end = bag + 1 < starts ? clamp(LOAD_offsets(bag + 1), begin, count) : count;
const long last = min(first + PIECE, columns);
long c = first;
"""
NOTED = """\
if (c == 0) {
    const long last_index = bag + 1 < bags ? end : count;  // what is behind all bags is of the last
    for (long j = begin; j < last_index; ++j)
        STORE_numbers(j, bag);
}
"""
"""What the gradient needs: the bag of each index. `COUNTED` stores how many of a bag count."""
COUNTED = """\
    if (c == 0)
        STORE_sizes(bag, counted);
"""
PASS = """\
for (; c + {items} <= last; c += {items}) {{
    {kind} sum[{parts}];
    long counted = 0;
    for (int k = 0; k < {parts}; ++k)
        sum[k] = 0;
    for (long j = begin; j < end; ++j) {{
        const long index_0 = LOAD_index_0(j);
        const long row = place(index_0, size_of_0, dim_of_0, wraps, operator, faults_data);
        if (index_0 == padding)
            continue;
        counted += 1;
        #pragma unroll
        for (int k = 0; k < {parts}; ++k)
            sum[k] += {load}(row * step_of_0 + (c + k * {width}) * column_step){factor};
    }}
    #pragma unroll
    for (int k = 0; k < {parts}; ++k) {{
        const {kind} value = sum[k]{mean};
        {store}(bag * columns + c + k * {width}, value){end}
    }}
{counted}}}
"""


def are_worth_it(weight: Tensor, indices: Tensor, bags: int) -> bool:
    """Whether no work-item has a bag so long that others wait for it.

    Args:
        weight: [places, features].
        indices: of all bags, any shape.
        bags: how many there are.
    """
    is_cpu = are_possible(devices()[weight.get_device()].limits)
    return is_cpu or indices.numel() <= MOST_IN_BAG * bags


def sum_bags(
    weight: Tensor, indices: Tensor, offsets: Tensor, bags: int, mean: bool,
    factors: Tensor | None, padding: int, noted: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """Return the sums, or means, of the rows of each bag: [bags, features].

    Args:
        weight: [rows, features] of floats.
        indices: of rows, all bags' one behind the other.
        offsets: where each bag begins; where there is one more, it is the last bag's end.
        bags: how many.
        mean: whether sums are divided by how many rows a bag has without padding.
        factors: of each index, in the dtype of `weight`.
        padding: the index that counts for nothing; -1: none.
        noted: take the bag of each index, and how many of each bag count; where there are sums.
    """
    check_index("embedding_bag", indices)
    columns = weight.shape[1]
    out = weight.new_empty(bags, columns)
    if not out.numel():
        return out
    on_cpu = are_possible(devices()[weight.get_device()].limits)
    if on_cpu and weight.stride(1) != 1 and len(weight) <= APART * indices.numel():
        weight = weight.contiguous()
    places = Places(
        (), (), (indices,), (len(weight),), (weight.stride(0),), (0,), "embedding_bag"
    )  # fmt: skip
    if indices.numel():
        places.check()
    device = weight.get_device()
    width = 16 if on_cpu and weight.stride(1) == 1 else 1
    piece = CHUNK if width > 1 else 1
    kept = [] if factors is None else [factors.contiguous()]
    given: list[Tensor | float] = [
        weight, indices.contiguous(), *places.numbers, faults.record(device),
        offsets.contiguous(), *kept, out, columns, indices.numel(), len(offsets), padding,
        weight.stride(1), *(noted or ()), *([bags] if noted else []),
    ]  # fmt: skip
    names = "weight", "index_0", "faults", "offsets", "factors", "out", "numbers", "sizes"
    still = dict.fromkeys(names, (0, 0))
    dtypes = weight.dtype, indices.dtype, offsets.dtype
    work = min(CHUNK, 1 << (min(columns, piece) * ceil_div(indices.numel(), bags)).bit_length())
    kernel = _kernel(dtypes, factors is not None, mean, width, piece, work, noted is not None)
    shape = bags, ceil_div(columns, piece)
    launch(kernel, shape, given, {**still, "bag": (1, 0), "first": (0, piece)})
    faults.check(device)
    return out


def check_offsets(offsets: Tensor, count: int) -> None:
    """Refuse offsets that do not begin with 0, or end behind the indices.

    Args:
        offsets: at least one.
        count: of the indices.
    """
    device = offsets.get_device()
    given = offsets.contiguous(), faults.record(device), count, len(offsets)
    launch(_checking(offsets.dtype), (1,), given, {"offsets": (0,), "faults": (0,)})
    faults.check(device)


@cache
def _checking(offset: torch.dtype) -> Kernel:
    parameters = (
        Operand("offsets", offset, "address", "long"),
        Operand("faults", torch.int64, "address", "long"),
        Scalar("count", "long"),
        Scalar("starts", "long"),
    )
    return Kernel("bag_offsets", "long", parameters, OFFSETS, faults.NOTE, scalar_only=True)


@cache
def _kernel(
    dtypes: tuple[torch.dtype, ...], has_factors: bool, mean: bool, width: int, piece: int,
    work: int, notes: bool,
) -> Kernel:  # fmt: skip
    weight, index, offset = dtypes
    register = dtype_of(weight).value
    body = BODY.replace("PIECE", str(piece)) + (NOTED if notes else "")
    for parts, wide in ((4, width), (1, width), (1, 1)) if width > 1 else ((1, 1),):
        many = "S" if wide > 1 else ""
        body += PASS.format(
            parts=parts, width=wide, items=parts * wide, kind=vectors.vector(register, wide),
            load=f"LOAD{many}_weight", store=f"STORE{many}_out", end="" if many else ";",
            factor=" * LOAD_factors(j)" if has_factors else "",
            mean=f" / ({register})max(counted, 1L)" if mean else "",
            counted=COUNTED if notes else "",
        )  # fmt: skip
    kept = [Operand("factors", weight, "address")] if has_factors else []
    written = (("numbers", offset), ("sizes", torch.int64)) if notes else ()
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("bag", role="position"),
        Operand("first", role="position"),
        Operand("weight", weight, "address", items=width, anywhere=True),
        *parameters_of((index,), "address"),
        Operand("offsets", offset, "address", "long"),
        *kept,
        Operand("out", weight, "address", items=width, anywhere=True),
        *(Scalar(name, "long") for name in ("columns", "count", "starts", "padding")),
        Scalar("column_step", "long"),
        *(Operand(name, dtype, "address", "long") for name, dtype in written),
        *([Scalar("bags", "long")] if notes else []),
    )
    return Kernel("bag_sums", register, parameters, body, PLACE, scalar_only=True, work=work)
