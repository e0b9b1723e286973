"""Padding by a constant on processors: one launch in place of a fill and a copy.

A work-item walks rows of the result as they lie in memory. A row is a part of constants, a part
that is copied, and constants again, or constants alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, Scalar, launch
from ocl_backend.kernels.gathered_rows import BITS
from ocl_backend.kernels.owners import are_possible
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

COMPOSED = torch._C.DispatchKey.CompositeExplicitAutograd
NARROW, FEW = 128, 2**15
"""Items of a row below which, and items of the result above which, a fill and a copy are faster: to
find a row's place takes as long as to write some 50 items."""


class Dim(NamedTuple):
    """A dimension of the result: x's items, constants before and after them, and x's stride."""

    size: int
    before: int
    after: int
    stride: int

    @property
    def padded(self) -> int:
        """Items of the result."""
        return self.before + self.size + self.after


def constant_pad_nd(x: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """Return x with constants around it.

    Args:
        x: any dtype.
        pad: items before and after, of the last dimension first; negative ones cut items off.
        value: the constant.

    Raises:
        RuntimeError: torch's, of paddings that it refuses.
    """
    dims = _dims(x, pad) if _is_served(x, pad) else []
    shape = [dim.padded for dim in dims]
    if not dims or (shape[-1] < NARROW and prod(shape) > FEW):
        composed: Tensor = torch.ops.aten.constant_pad_nd.default._op_dk(COMPOSED, x, pad, value)
        return composed
    layout = suggest_memory_format(x)
    out = torch.empty(_padded(x.shape, pad), dtype=x.dtype, device=x.device, memory_format=layout)
    _fill(x, out, dims, value)
    return out


def _is_served(x: Tensor, pad: Sequence[int]) -> bool:
    """Say whether one launch pads: a processor's, of items that fit a register, cutting none."""
    fits = len(pad) % 2 == 0 and len(pad) <= 2 * x.dim() and bool(pad)
    if not fits or min(pad) < 0 or not any(pad) or not x.numel() or x.itemsize not in BITS:
        return False
    return are_possible(devices()[x.get_device()].limits)


def _pairs(rank: int, pad: Sequence[int]) -> list[tuple[int, int]]:
    """Return the constants before and after each of `rank` dimensions, the first one first."""
    pairs = [(pad[at], pad[at + 1]) for at in range(len(pad) - 2, -1, -2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs


def _padded(shape: Sequence[int], pad: Sequence[int]) -> list[int]:
    return [size + sum(pair) for size, pair in zip(shape, _pairs(len(shape), pad), strict=True)]


def _lies_in_order(x: Tensor) -> bool:
    """Say whether torch lays the result's dimensions out in their order, or channels last."""
    return suggest_memory_format(x) is torch.contiguous_format


def _dims(x: Tensor, pad: Sequence[int]) -> list[Dim]:
    """Return the dimensions as the result has them in memory, joined where they can be."""
    rank = x.dim()
    order = [*range(rank)] if _lies_in_order(x) else [0, *range(2, rank), 1]
    pairs = _pairs(rank, pad)
    return _joined([Dim(x.shape[d], pairs[d][0], pairs[d][1], x.stride(d)) for d in order])


def _joined(dims: list[Dim]) -> list[Dim]:
    """Return fewer dimensions, where neighbours of x and of the result are rows of both."""
    found = dims[:1]
    for dim in dims[1:]:
        above = found[-1]
        if dim.before == dim.after == 0 and above.stride == dim.size * dim.stride:
            before, size, after = (
                number * dim.size for number in (above.before, above.size, above.after)
            )
            found[-1] = Dim(size, before, after, dim.stride)
        else:
            found.append(dim)
    return found


def _fill(x: Tensor, out: Tensor, dims: Sequence[Dim], value: Any) -> None:
    """Write the result, whose dimensions lie in memory as they are named."""
    *outer, row = dims
    named = [at for at, dim in enumerate(outer) if dim.before or dim.after]
    sizes = [*(dim.padded for dim in outer), ceil_div(row.padded, CHUNK)]
    kernel = _kernel(len(named), BITS[x.itemsize], row.stride == 1, min(CHUNK, row.padded))
    steps: list[int] = []
    step = row.padded
    for dim in reversed(outer):
        steps.insert(0, step)
        step *= dim.padded
    strides = {
        "self": (*(dim.stride for dim in outer), 0),
        "out": (*steps, 0),
        "first": (*(0 for _ in outer), CHUNK),
        **{f"p{i}": tuple(int(at == d) for d in range(len(sizes))) for i, at in enumerate(named)},
    }
    constant = torch.empty((), dtype=x.dtype).fill_(value).view(BITS[x.itemsize]).item()
    begin = sum(dim.before * dim.stride for dim in dims)
    sides = [number for at in named for number in (outer[at].before, outer[at].size)]
    given = (x, out, constant, begin, row.before, row.size, row.padded, row.stride, *sides)
    launch(kernel, sizes, given, strides)


PART = """\
for (; c + WIDTH <= END; c += WIDTH)
    STORES_out(out_at + c, MANY)
if (c < END && c >= BEGIN + WIDTH) {  // the last vector reaches back
    c = END - WIDTH;
    STORES_out(out_at + c, MANY)
    c = END;
}
"""
SINGLE = """\
for (; c < END; ++c)
    STORE_out(out_at + c, ONE);
"""


@cache
def _kernel(sides: int, bits: torch.dtype, dense: bool, work: int) -> Kernel:
    """Return the kernel that writes rows of the result.

    Args:
        sides: dimensions outside of the row that are padded, too.
        bits: moves the items.
        dense: whether a row's items lie side by side in x.
        work: items of a row that a work-item writes.
    """
    register, width = dtype_of(bits).value, vectors.CPU_WIDTHS[0]
    inside = "".join(f" & (p{i} >= before{i}) & (p{i} < before{i} + size{i})" for i in range(sides))
    copied = "self_at - begin + c" + ("" if dense else " * from")
    constants = (f"({vectors.vector(register, width)})(({register})filler)", f"({register})filler")
    copies = (f"LOADS_self({copied})" if dense else "", f"LOAD_self({copied})")
    body = f"""\
const long last = min(first + {CHUNK}L, columns);
const int inside = 1{inside};
const long low = inside ? clamp(before, first, last) : last;
const long high = inside ? clamp(before + size, low, last) : last;
long c = first;
"""
    for begin, end, (many, one) in (
        ("first", "low", constants), ("low", "high", copies), ("high", "last", constants),
    ):  # fmt: skip
        text = (PART if many else "") + SINGLE
        for name, part in (("BEGIN", begin), ("END", end), ("WIDTH", f"{width}"), ("MANY", many)):
            text = text.replace(name, part)
        body += text.replace("ONE", one)
    numbers = ["filler", "begin", "before", "size", "columns", "from"]
    numbers += [f"{name}{i}" for i in range(sides) for name in ("before", "size")]
    parameters: tuple[Operand | Scalar, ...] = (
        *(Operand(f"p{i}", role="position") for i in range(sides)),
        Operand("first", role="position"),
        Operand("self", bits, "address", items=width if dense else 1, anywhere=True),
        Operand("out", bits, "address", items=width, anywhere=True),
        *(Scalar(name, "long") for name in numbers),
    )
    return Kernel("constant_pad", register, parameters, body, scalar_only=True, work=work)


OPERATORS = {"constant_pad_nd": constant_pad_nd, "constant_pad_nd.out": into(constant_pad_nd)}
"""Implementations by aten name."""
