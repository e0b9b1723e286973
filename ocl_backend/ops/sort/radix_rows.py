"""Sorting stretches of rows on processors by the digits of their items' bits.

A work-item sorts a stretch: it counts all digits in one reading, then moves items to where their
digit's turn is, the last digit first, so that each pass keeps the order of the passes before
(radix sort; Knuth, The Art of Computer Programming 3, 5.2.5). A digit that all items share needs no
pass. Items move as keys: unsigned integers that rise as the items do.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.gathered_rows import BITS
from ocl_backend.kernels.ordered_keys import UNSIGNED, key_of
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

LEAST = 128
"""Items from which digits are worth being counted: there are 256 counts of each."""
STRETCH = 4096
"""Items of a stretch that is worth a work-item of its own, and a merge."""

BODY = """\
const long first = part * length;
const uint many = (uint)(min(first + length, size) - first);
__global const KEY *items = (__global const KEY *)x_data + x_at + first;
__global KEY *from = (__global KEY *)one_data + one_at + first;
__global KEY *to = (__global KEY *)other_data + other_at + first;
__global uint *from_order = (__global uint *)places_data + places_at + first;
__global uint *to_order = (__global uint *)moved_data + moved_at + first;
uint begins[BYTES][256];
for (int digit = 0; digit < BYTES; ++digit)
    for (int value = 0; value < 256; ++value)
        begins[digit][value] = 0;
for (uint i = 0; i < many; ++i) {
    const KEY key = ORDERED(items[i]);
    from[i] = key;
    from_order[i] = i;
    for (int digit = 0; digit < BYTES; ++digit)
        ++begins[digit][key >> 8 * digit & 255];
}
for (int digit = 0; digit < BYTES; ++digit) {
    if (begins[digit][from[0] >> 8 * digit & 255] == many)
        continue;
    uint before = 0;
    for (int value = 0; value < 256; ++value) {
        const uint count = begins[digit][value];
        begins[digit][value] = before;
        before += count;
    }
    for (uint i = 0; i < many; ++i) {
        const KEY key = from[i];
        const uint place = begins[digit][key >> 8 * digit & 255]++;
        to[place] = key;
        to_order[place] = from_order[i];
    }
    __global KEY *keys = from;
    __global uint *order = from_order;
    from = to;
    from_order = to_order;
    to = keys;
    to_order = order;
}
__global KEY *sorted = (__global KEY *)keys_data + keys_at + first;
for (uint i = 0; i < many; ++i) {
    sorted[i] = items[from_order[i]];
    order_data[order_at + first + i] = first + from_order[i];
}
"""


def serves(device: int, size: int) -> bool:
    """Say whether rows of `size` items are sorted by their digits."""
    return devices()[device].limits.kind == "cpu" and LEAST <= size < 2**31


def stretch(device: int, rows: int, size: int) -> int:
    """Return the items of a stretch: where rows are few, their stretches keep all cores busy."""
    parts = ceil_div(devices()[device].limits.compute_units, rows)
    return min(size, max(STRETCH, ceil_div(size, parts)))


def sort_stretches(
    rows: Tensor, keys: Tensor, order: Tensor, length: int, descending: bool
) -> None:
    """Sort each stretch of dense rows; it is stable, and a NaN counts as the largest.

    Args:
        rows: [n, size], dense, of any dtype that sorts.
        keys: the same; written.
        order: [n, size] int64, where in its row an item was; written.
        length: items of a stretch.
        descending: the largest come first.
    """
    count, size = rows.shape
    spare = torch.empty((2, count, size), dtype=BITS[rows.element_size()], device=rows.device)
    places = torch.empty((2, count, size), dtype=torch.int32, device=rows.device)
    tensors = {
        "x": rows, "one": spare[0], "other": spare[1], "places": places[0], "moved": places[1],
        "keys": keys, "order": order,
    }  # fmt: skip
    walked = {name: (tensor.stride(0), 0) for name, tensor in tensors.items()}
    launch(
        _kernel(rows.dtype, descending), (count, ceil_div(size, length)),
        [*tensors.values(), length, size], {"part": (0, 1), **walked},
    )  # fmt: skip


@cache
def _kernel(dtype: torch.dtype, descending: bool) -> Kernel:
    key, words = UNSIGNED[dtype.itemsize], BITS[dtype.itemsize]
    helpers = (
        f"#define BYTES {dtype.itemsize}\n#define KEY {key}\n"
        f"#define ORDERED(item) (KEY){'~' if descending else ''}key_of(item)\n{key_of(dtype, key)}"
    )
    return Kernel(
        "sort_stretches",
        dtype_of(dtype).value,
        (
            Operand("part", role="position"),
            Operand("x", dtype, "address"),
            *(Operand(name, words, "address") for name in ("one", "other")),
            *(Operand(name, torch.int32, "address") for name in ("places", "moved")),
            Operand("keys", dtype, "address"),
            Operand("order", torch.int64, "address", "long"),
            *(Scalar(number, "long") for number in ("length", "size")),
        ),
        BODY,
        helpers,
        scalar_only=True,
        work=4096,
    )
