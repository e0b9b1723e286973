"""Moving whole rows from or to computed places on GPUs, as bits, by accesses of up to 16 bytes.

`scatter` finds a place for each item. Here a work-item finds the place of a row, and moves several
pieces of it, which are as wide as rows and addresses allow.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import gcd, prod
from typing import NamedTuple

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import Sizes, broadcast_strides, contiguous_strides
from ocl_backend.kernels.elementwise import Kernel, Operand, Run, Scalar, prepare_elementwise
from ocl_backend.kernels.places import PLACE, Places, parameters_of, place_of
from ocl_backend.runtime.launch import MOST_LAUNCHES
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div, round_up

PIECES = {
    16: (torch.int32, 4), 8: (torch.int32, 2), 4: (torch.int32, 1), 2: (torch.int16, 1),
    1: (torch.uint8, 1),
}  # fmt: skip
"""How bytes are moved at once: a dtype, and how many items of it."""
MOST_PIECES = 4
"""Pieces of a work-item, at most: loads that wait for memory together."""
SEGMENT = 128
"""Bytes that neighbours move at once, at least, where a work-item has several pieces."""
GROUP = 256
"""Work-items of a work-group, at most."""

BODY = """\
const long from = PLACE;
KIND moved[PIECES];
#pragma unroll
for (int k = 0; k < PIECES; ++k)
    IF moved[k] = LOAD_SOURCE + k * apart);
#pragma unroll
for (int k = 0; k < PIECES; ++k)
    IF STORE_TARGET + k * apart, moved[k]);
"""


class Walk(NamedTuple):
    """Rows of `columns` pieces of some bytes, and the dimensions outside of them.

    Each of those has a size and the strides of the placed tensor, of the dense one and of all
    indices: of tensors in bytes, of indices in items.
    """

    outer: tuple[tuple[int, ...], ...]
    columns: int
    piece: int


def moving(
    placed: Tensor, places: Places, dense: Tensor, *, reads: bool
) -> tuple[Run, list[float]] | None:
    """Return a launch that moves rows and its values; None: no rows are moved, or not by a GPU.

    Args:
        placed: has the places; of any strides.
        places: in it.
        dense: of the places' shape, or broadcast to it.
        reads: whether `dense` is written, else `placed`.

    Returns:
        Values that begin as those of `scatter.writing`: placed tensor, indices, `Places.numbers`
        with the steps of what is moved, the record of faults, and the dense tensor.
    """
    device, shape, item_bytes = placed.get_device(), places.shape, placed.itemsize
    if devices()[device].limits.kind == "cpu" or placed.dtype is not dense.dtype or 0 in shape:
        return None
    tensors = (dense, *places.indices)
    strides = (
        tuple(places.strides), *(broadcast_strides(shape, t.shape, t.stride()) for t in tensors),
    )  # fmt: skip
    addresses = gcd(placed.data_ptr(), dense.data_ptr(), vectors.ACCESS_BYTES)
    walk = _rows(tuple(shape), strides, tuple(places.steps), item_bytes, addresses)
    if walk is None:
        return None
    run, shared = _prepared(device, walk, places.dtypes, reads)
    numbers, count = list(places.numbers), len(places.indices)
    item = PIECES[walk.piece][0].itemsize
    numbers[count : 2 * count] = [step * item_bytes // item for step in places.steps]
    indices = [index.data_ptr() for index in places.indices]
    ends = faults.record(device).data_ptr(), dense.data_ptr()
    return run, [placed.data_ptr(), *indices, *numbers, *ends, *shared]


@lru_cache(maxsize=MOST_LAUNCHES)
def _rows(
    shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...], steps: tuple[int, ...],
    item_bytes: int, alignment: int,
) -> Walk | None:  # fmt: skip
    """Return the rows that share a place and are dense in both tensors; None: single items.

    Args:
        shape: of the places.
        strides: of the placed tensor, the dense one and all indices over it, in items.
        steps: of the placed tensor for each index, in items.
        item_bytes: of both tensors.
        alignment: bytes of which both addresses are multiples.
    """
    outer = [dim for dim in zip(shape, *strides, strict=True) if dim[0] != 1]
    items = 1
    while row := next((dim for dim in outer if _continues(dim, items)), None):
        items *= row[0]
        outer.remove(row)
    if items == 1:
        return None
    begins = [step for dim in outer for step in dim[1:3]]
    piece = gcd(alignment, *(n * item_bytes for n in (items, *begins, *steps)))
    outer.sort(key=lambda dim: -dim[2])
    in_bytes = tuple((n, at * item_bytes, to * item_bytes, *rest) for n, at, to, *rest in outer)
    return Walk(in_bytes, items * item_bytes // piece, piece)


def _continues(dim: tuple[int, ...], items: int) -> bool:
    """Whether a row of `items` goes on along a dimension in both tensors."""
    return dim[1] == dim[2] == items and not any(dim[3:])


def _pieces(walk: Walk, limits: Limits) -> int:
    """Return the pieces of a work-item that leave the fewest idle: the most of those."""
    rows = prod(dim[0] for dim in walk.outer)

    def busy(pieces: int) -> float:
        across = ceil_div(walk.columns, pieces)
        side = vectors.work_items_across(across, GROUP)
        return round(walk.columns / (pieces * round_up(across, side)), 1)

    def is_enough(pieces: int) -> bool:
        across = ceil_div(walk.columns, pieces)
        return across * walk.piece >= SEGMENT and rows * across >= 2 * vectors.busy_items(limits)

    given = [1, *filter(is_enough, range(2, MOST_PIECES + 1))]
    return max(given, key=lambda pieces: (busy(pieces), pieces))


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, walk: Walk, indices: tuple[torch.dtype, ...], reads: bool
) -> tuple[Run, tuple[int, int]]:
    """Return a launch and its last numbers: items from piece to piece, and those of a row."""
    dtype, items = PIECES[walk.piece]
    pieces = _pieces(walk, devices()[device].limits)
    across = ceil_div(walk.columns, pieces)
    is_whole = across * pieces == walk.columns
    shape = (*(dim[0] for dim in walk.outer), across)
    still = (0,) * len(shape)

    def walked(which: int, unit: int, last: int) -> Sizes:
        return (*(dim[which] // unit for dim in walk.outer), last)

    moved = [walked(which, dtype.itemsize, items) for which in (1, 2)]
    order, column = contiguous_strides(shape), (*still[1:], items)
    found = [walked(3 + k, 1, 0) for k in range(len(indices))]
    strides = [order, column, moved[0], *found, still, moved[1]]
    kernel = _kernel(walk.piece, indices, reads, pieces, is_whole)
    run = prepare_elementwise(device, kernel, shape, strides)
    return run, (across * items, walk.columns * items)


@cache
def _kernel(
    piece: int, indices: tuple[torch.dtype, ...], reads: bool, pieces: int, is_whole: bool
) -> Kernel:
    """Return the kernel of a work-item with some pieces; `is_whole`: they end no row."""
    dtype, items = PIECES[piece]
    register = dtype_of(dtype).value
    many = "S" if items > 1 else ""
    ends = f"{many}_target(from", f"{many}_dense(dense_at"
    texts = {
        "PLACE": place_of(len(indices)),
        "KIND": vectors.vector(register, items),
        "PIECES": str(pieces),
        "IF": "" if is_whole else "if (k == 0 || column + k * apart < columns)",
        "LOAD_SOURCE": f"LOAD{ends[0 if reads else 1]}",
        "STORE_TARGET": f"STORE{ends[1 if reads else 0]}",
    }
    body = BODY
    for name, text in texts.items():
        body = body.replace(name, text)
    parameters = (
        Operand("order", role="position"),  # rows one behind the other, neighbours side by side
        Operand("column", role="position"),
        Operand("target", dtype, "address", items=items, aligned=True),
        *parameters_of(indices),
        Operand("dense", dtype, "address", items=items, aligned=True),
        *(Scalar(name, "long") for name in ("apart", "columns")),
    )
    name = "gather_rows" if reads else "scatter_rows"
    return Kernel(name, register, parameters, body, PLACE, scalar_only=True)
