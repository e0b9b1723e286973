"""Copies of items that tables name along each dimension, on GPUs: neighbours of a dense result.

`axis_sums` asks the tables for each item of its results. Where these are copies, as of padding and
of resizing to the nearest item, a work-item here takes the next few, which it writes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from oclgen.plan import ceil_div

NEIGHBOURS = 4
"""Items of a work-item: one access, where they are aligned."""
AXES = "dhw"

BODY = """\
INDEX rest = first / (INDEX)size_w;
INDEX w = first - rest * (INDEX)size_w;
INDEX h = rest % (INDEX)size_h;
rest /= (INDEX)size_h;
OUTER
T moved[NEIGHBOURS];
long row = ROW;
#pragma unroll
for (int i = 0; i < NEIGHBOURS; ++i) {
    moved[i] = first + i < (INDEX)count ? LOAD_x(row + ITEM_w) : 0;
    if (++w == (INDEX)size_w) {
        w = 0;
        if (++h == (INDEX)size_h) {
            h = 0;
NEXT
        }
        row = ROW;
    }
}
if (first + NEIGHBOURS <= (INDEX)count) {
    STORES_y(y_at, (KIND)(LANES));
} else {
    for (int i = 0; first + i < (INDEX)count; ++i)
        STORE_y(y_at + i, moved[i]);
}
"""
PLANES = "const INDEX d = 0;\nINDEX c = rest % (INDEX)channels, n = rest / (INDEX)channels;"
VOLUMES = """\
INDEX d = rest % (INDEX)depth;
rest /= (INDEX)depth;
INDEX c = rest % (INDEX)channels, n = rest / (INDEX)channels;"""
NEXT_PLANE = """\
            const bool ends = ++c == (INDEX)channels;
            c = ends ? 0 : c;
            n += ends;"""
NEXT_VOLUME = """\
            if (++d == (INDEX)depth) {
                d = 0;
                const bool ends = ++c == (INDEX)channels;
                c = ends ? 0 : c;
                n += ends;
            }"""


def copy_items(x: Tensor, items: Sequence[Tensor | None], y: Tensor) -> None:
    """Write to y the items of x that tables name.

    Args:
        x: [n, c, d, h, w] of any strides; its items are moved as they are.
        items: of d, h and w: which items y takes, int32; None: each its own.
        y: [n, c, *results], contiguous and not empty; written.
    """
    _, channels, *sizes = y.shape
    aligned = y.data_ptr() % (NEIGHBOURS * y.itemsize) == 0
    named = tuple(item is not None for item in items)
    volume = sizes[0] > 1
    count = y.numel()
    given: list[Tensor | float] = [y, x, *(item for item in items if item is not None)]
    given += [channels, *sizes, count, *x.stride()]
    still = {"x": (0,)} | {f"item_{axis}": (0,) for axis in AXES}
    strides = still | dict.fromkeys(("first", "y"), (NEIGHBOURS,))
    kernel = _kernel(x.dtype, named, volume, aligned)
    launch(kernel, (ceil_div(count, NEIGHBOURS),), given, strides)


@cache
def _kernel(dtype: torch.dtype, named: tuple[bool, ...], volume: bool, aligned: bool) -> Kernel:
    """Return the kernel.

    Args:
        dtype: moves the items.
        named: for which of d, h and w there is a table.
        volume: whether y has several planes in a channel.
        aligned: whether y begins where an access of neighbours may.
    """
    register = dtype_of(dtype).value
    at = {
        axis: f"(long){f'LOAD_item_{axis}({axis})' if has else axis} * step_{axis}"
        for axis, has in zip(AXES, named, strict=True)
    }
    texts = {
        "OUTER": VOLUMES if volume else PLANES,
        "NEXT": NEXT_VOLUME if volume else NEXT_PLANE,
        "ROW": f"n * step_n + c * step_c + {at['d']} + {at['h']}",
        "ITEM_w": at["w"],
        "KIND": f"{register}{NEIGHBOURS}",
        "LANES": ", ".join(f"moved[{i}]" for i in range(NEIGHBOURS)),
        "NEIGHBOURS": str(NEIGHBOURS),
    }
    body = BODY
    for name, text in texts.items():
        body = body.replace(name, text)
    numbers = ("channels", "depth", "size_h", "size_w", "count")
    steps = (f"step_{axis}" for axis in "ncdhw")
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("first", role="position"),
        Operand("y", dtype, "address", items=NEIGHBOURS, anywhere=not aligned, aligned=aligned),
        Operand("x", dtype, "address"),
        *(
            Operand(f"item_{axis}", torch.int32, "address", "int")
            for axis, has in zip(AXES, named, strict=True)
            if has
        ),
        *(Scalar(name, "long") for name in (*numbers, *steps)),
    )
    return Kernel("copy_items", register, parameters, body, scalar_only=True, work=NEIGHBOURS)
