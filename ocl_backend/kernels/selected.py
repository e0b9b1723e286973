"""Positions of items that are not zero, and items at such positions.

What follows is for processors; groups of GPUs select in `selected_groups`.

Stretches of the items are counted, the counts are added up, and each work-item lists its stretch's
positions and writes what stands there: items are read twice, and no number is kept of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import selected_groups
from ocl_backend.kernels.dimensions import contiguous_strides
from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, Scalar, launch
from ocl_backend.kernels.gathered_rows import BITS
from ocl_backend.kernels.owners import are_possible
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

COUNT = """\
long total = 0;
for (long k = first; k < min(first + CHUNK, count); ++k)
    total += LOAD_mask(k) != 0;
STORE_total(total_at, total);
"""
LISTED = 256
"""Positions that are listed before they are written: the list needs no branch."""
STRETCH = """\
long to = first ? LOAD_before(before_at - 1) : 0;
const long last = min(first + CHUNK, count);
"""
"""Of a work-item that selects a stretch."""
SELECT = """\
for (long begin = first; begin < last; begin += LISTED) {
    long kept[LISTED + 1];
    int many = 0;
    for (long k = begin; k < min(begin + LISTED, last); ++k) {
        kept[many] = k;
        many += LOAD_mask(k) != 0;
    }
WRITE
    to += many;
}
"""
SCATTER = """\
    if (to + many > given)
        note_fault(faults_data, operator, given, given, 0);
    for (int k = 0; k < many; ++k)
        STORE_x(kept[k], LOAD_source(min(to + k, given - 1)));
"""
"""Where the source has too few items, its last one is taken again."""
EACH = """\
    for (int k = 0; k < many; ++k)
        STORE_out({place} + to + k, {value});
"""


def are_selected(x: Tensor) -> bool:
    """Whether these kernels serve a tensor: its items compare with 0 and are moved as bits."""
    limits = devices()[x.get_device()].limits
    is_simple = not x.is_complex() and x.itemsize in BITS
    return is_simple and (are_possible(limits) or selected_groups.serve(limits))


def _have_groups(x: Tensor) -> bool:
    return selected_groups.serve(devices()[x.get_device()].limits)


def positions(mask: Tensor, shape: Sequence[int]) -> Tensor:
    """Return where `mask` is not zero, a column of numbers for each dimension of `shape`.

    Args:
        mask: of any shape, whose items are taken in row-major order.
        shape: by which a position is taken apart, [mask.numel()] of a single dimension.

    Returns:
        [len(shape), count] int64; waits for the count.
    """
    if _have_groups(mask):
        found = selected_groups.select(mask, "nonzero", shape=tuple(shape)).positions
        assert found is not None  # no items are copied
        return found
    flat = mask.reshape(-1).contiguous()
    before, many = _counted(flat)
    out = torch.empty((len(shape), many), dtype=torch.int64, device=mask.device)
    if out.numel():
        numbers = _steps(shape)
        wide = flat.numel() >= 2**31
        given: list[Tensor | float] = [flat, before, out, flat.numel(), many, *numbers]
        _launch(_positions(mask.dtype, len(shape), wide), flat.numel(), given)
    return out


def items(x: Tensor, mask: Tensor) -> Tensor:
    """Return the items of x where `mask`, of its shape, is not zero."""
    if (
        _have_groups(mask)
        and (kept := selected_groups.select(mask, "nonzero", x).items) is not None
    ):
        return kept
    x = x.contiguous()
    flat = mask.reshape(-1).contiguous()
    before, many = _counted(flat)
    out = torch.empty(many, dtype=x.dtype, device=x.device)
    if many:
        _launch(_items(mask.dtype, x.dtype), flat.numel(), (flat, before, x, out, flat.numel()))
    return out


def _steps(shape: Sequence[int]) -> list[int]:
    """Return the distance of neighbours along each dimension of `shape`, and its size."""
    return [n for pair in zip(contiguous_strides(shape), shape, strict=True) for n in pair]


def scatter(x: Tensor, mask: Tensor, source: Tensor) -> bool:
    """Write the first items of `source` to x where `mask`, of its shape, is not zero.

    Args:
        x: written.
        mask: of x's shape.
        source: of x's dtype, not empty.

    Returns:
        False where nothing was done: the device is neither a processor nor a GPU with groups.
    """
    if not are_selected(x):
        return False
    memory = x.untyped_storage().data_ptr()
    mask, source = (  # what is read must not be what another group has written
        given.clone() if given.untyped_storage().data_ptr() == memory else given
        for given in (mask, source)
    )
    source = source.reshape(-1).contiguous()
    if _have_groups(mask):
        selected_groups.scatter(x, mask, source)
    elif mask.numel():
        rows = x.contiguous()
        _scattered(rows, mask.reshape(-1).contiguous(), source)
        if rows is not x:
            x.copy_(rows)
    return True


def _scattered(x: Tensor, mask: Tensor, source: Tensor) -> None:
    """Write to x, dense, where `mask`, [x.numel()], is not zero; never waits."""
    device = x.get_device()
    given = mask, _totals(mask).cumsum(0), x, source, faults.record(device)
    numbers = mask.numel(), source.numel(), faults.NUMBERS["masked_scatter"]
    _launch(_scatter(mask.dtype, x.dtype), mask.numel(), (*given, *numbers))
    faults.check(device)


def _counted(flat: Tensor) -> tuple[Tensor, int]:
    """Return how many items are not zero up to the end of each stretch, and in all; waits."""
    before = _totals(flat).cumsum(0)
    return before, int(before[-1]) if flat.numel() else 0


def _totals(flat: Tensor) -> Tensor:
    """Return how many items of each stretch are not zero."""
    totals = torch.empty(ceil_div(flat.numel(), CHUNK), dtype=torch.int64, device=flat.device)
    if flat.numel():
        _launch(_counts(flat.dtype), flat.numel(), (flat, totals, flat.numel()))
    return totals


def _launch(kernel: Kernel, count: int, given: Sequence[Tensor | float]) -> None:
    still = dict.fromkeys(("mask", "out", "x", "source", "faults"), (0,))
    along = {"first": (CHUNK,), "before": (1,), "total": (1,)}
    walked = {operand.name: (still | along)[operand.name] for operand in kernel.operands}
    launch(kernel, (ceil_div(count, CHUNK),), given, walked)


def _kernel(
    name: str, mask: torch.dtype, operands: Sequence[Operand], numbers: Sequence[str], body: str,
    helpers: str = "",
) -> Kernel:  # fmt: skip
    value = dtype_of(mask).value
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("first", role="position"),
        Operand("mask", mask, "address"),
        *operands,
        *(Scalar(label, "long") for label in ("count", *numbers)),
    )
    body = body.replace("CHUNK", str(CHUNK)).replace("LISTED", str(LISTED))
    return Kernel(name, value, parameters, body, helpers, scalar_only=True, work=CHUNK)


BEFORE = Operand("before", torch.int64, "address", "long")


@cache
def _counts(mask: torch.dtype) -> Kernel:
    total = Operand("total", torch.int64, "address", "long")
    return _kernel("count_selected", mask, (total,), (), COUNT)


@cache
def _positions(mask: torch.dtype, rank: int, wide: bool) -> Kernel:
    number = "ulong" if wide else "uint"
    write = ""
    for d in range(rank):
        value = f"({number})kept[k] / ({number})step_{d}" if d < rank - 1 else "kept[k]"
        value += f" % ({number})size_{d}" if d else ""
        value = value.replace("kept[k] %", f"({number})kept[k] %")
        place = f"{d} * many_in_all" if d else "0"
        write += EACH.format(place=place, value=f"(long)({value})")
    numbers = tuple(f"{label}_{d}" for d in range(rank) for label in ("step", "size"))
    operands = (BEFORE, Operand("out", torch.int64, "address", "long"))
    body = STRETCH + SELECT.replace("WRITE\n", write)
    return _kernel("select_positions", mask, operands, ("many_in_all", *numbers), body)


@cache
def _items(mask: torch.dtype, x: torch.dtype) -> Kernel:
    bits = BITS.get(x.itemsize, x)
    value = dtype_of(bits).value
    operands = (
        BEFORE,
        Operand("x", bits, "address", value),
        Operand("out", bits, "address", value),
    )
    body = STRETCH + SELECT.replace("WRITE\n", EACH.format(place="0", value="LOAD_x(kept[k])"))
    return _kernel("select_items", mask, operands, (), body)


@cache
def _scatter(mask: torch.dtype, x: torch.dtype) -> Kernel:
    bits = BITS.get(x.itemsize, x)
    value = dtype_of(bits).value
    operands = (
        BEFORE,
        Operand("x", bits, "address", value),
        Operand("source", bits, "address", value),
        Operand("faults", torch.int64, "address", "long"),
    )
    body = STRETCH + SELECT.replace("WRITE\n", SCATTER)
    return _kernel("scatter_selected", mask, operands, ("given", "operator"), body, faults.NOTE)
