"""Norms of the tensors of a list: two launches for up to 64 tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.tensor_lists import block_and_items, choice, ends_of, most_at_once
from ocl_backend.runtime.launch import MOST_LAUNCHES, LaunchSequence, Part, Pointer, prepare
from oclgen.render import rendered

LANES = 64
"""Work-items of a GPU that add up the sums of one tensor."""


def norms_of(
    dtype: torch.dtype, order: int, sizes: Sequence[int], places: Sequence[int], out: Tensor
) -> None:
    """Write the norms of tensors to `out`.

    Args:
        dtype: of the tensors.
        order: 1 or 2.
        sizes: items of each, none of them 0.
        places: their addresses; their items lie densely.
        out: [tensors], of any floating dtype, on their device.
    """
    device = out.get_device()
    at_once = most_at_once(device, 16, 32)
    for start in range(0, len(places), at_once):
        batch = places[start : start + at_once]
        count = min(1 << (len(batch) - 1).bit_length(), at_once)
        given = tuple(sizes[start : start + at_once])
        run = _prepared(device, dtype, out.dtype, order, count, given)
        address = out.data_ptr() + start * out.element_size()
        run(address, *batch, *[0] * (count - len(batch)))


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, dtype: torch.dtype, result: torch.dtype, order: int, count: int,
    sizes: tuple[int, ...],
) -> LaunchSequence:  # fmt: skip
    block, local_items = block_and_items(device)
    lanes = 1 if local_items == 1 else LANES
    stored, written = dtype_of(dtype), dtype_of(result)

    def found(t: int) -> list[str]:
        before = f"end_{t - 1}" if t else "0"
        start = f"first = (long)(group - {before}) * {block};"
        return [start, f"size = size_{t};", f"x = x_data_{t} + x_start_{t};"]

    text = rendered(
        "list_norms", package="ocl_backend", order=order, stored=stored, result=written,
        count=count, block=block, local_items=local_items, lanes=lanes,
        width=16 if local_items == 1 else 4, choice=tuple(choice(count, found)),
    )  # fmt: skip
    ends = ends_of(sizes, block, count)
    padded = (*sizes, *[0] * (count - len(sizes)))
    sums, item = Pointer(8 if stored.value == "double" else 4), Pointer(stored.item_bytes)
    own = [
        n for end, size in zip(ends, padded, strict=True) for n in (np.int32(end), np.int64(size))
    ]
    add = prepare(
        device, text, "list_norm", (ends[-1] * local_items,), [sums, *[item] * count, *own],
        (local_items,),
    )  # fmt: skip
    root = prepare(
        device, text, "list_root", (len(sizes) * lanes,),
        [Pointer(written.item_bytes), sums, *map(np.int32, ends)], (lanes,),
    )  # fmt: skip
    space = 1 + count
    parts = [Part(add, (space, *range(1, 1 + count))), Part(root, (0, space))]
    return LaunchSequence(device, parts, space, [ends[-1] * sums.item_bytes])
