"""Reading columns that one row of indices names, on GPUs: neighbours are written at once.

`scatter.read` finds a place for each item. Here a work-item finds the places of a few neighbouring
columns, and then moves their items in one row after the other, as bits.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import prod

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.dimensions import merge
from ocl_backend.kernels.elementwise import Kernel, Operand, Run, Scalar, prepare_elementwise
from ocl_backend.kernels.gathered_rows import BITS
from ocl_backend.kernels.places import PLACE, Places, parameters_of
from ocl_backend.kernels.vectors import busy_items
from ocl_backend.runtime.launch import MOST_LAUNCHES
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

WIDTHS = (8, 4, 2)
"""Columns of a work-item, at most 16 bytes of a row of the result."""
MOST_ROWS = 8
"""Rows of a work-item."""

BODY = """\
long from[WIDTH];
#pragma unroll
for (int i = 0; i < WIDTH; ++i) {
    const long index_0 = LOAD_index_0(index_0_at + i * index_step);
    const long found = place(index_0, size_of_0, dim_of_0, wraps, operator, faults_data);
    from[i] = target_at + found * step_of_0;
}
const long last = min(ROWS, rows - row);
for (long r = 0; r < last; ++r)
    STORES_out(out_at + r * columns, VECTOR(ITEMS))
"""


def read_columns(source: Tensor, places: Places, out: Tensor) -> bool:
    """Write the items at places to `out`.

    Args:
        source: of any strides.
        places: in it.
        out: of the places' shape; written.

    Returns:
        False where nothing was done: no columns are named, or not by a GPU's index.
    """
    shape = places.shape
    if devices()[source.get_device()].limits.kind == "cpu" or len(shape) < 2 or 0 in shape:
        return False
    if len(places.indices) != 1 or places.strides[-1] or not out.is_contiguous():
        return False
    (index,) = places.indices
    is_row = index.numel() == index.shape[-1] == shape[-1] if index.dim() else False
    dims = merge([d for d in zip(shape[:-1], places.strides[:-1], strict=True) if d[0] != 1])
    alike = source.dtype is out.dtype and source.itemsize in WIDTHS[1:]
    if not is_row or len(dims) != 1 or not alike:
        return False
    columns = shape[-1]
    width = next(
        (n for n in WIDTHS if n * source.itemsize <= 16 and columns % n == 0
         and out.data_ptr() % (n * source.itemsize) == 0), 1,
    )  # fmt: skip
    if width == 1:
        return False
    rows, step = prod(shape[:-1]), dims[0][1]
    device = source.get_device()
    run = _prepared(device, BITS[source.itemsize], index.dtype, (rows, columns, width), step)
    noted = faults.record(device).data_ptr()
    given = source.data_ptr(), index.data_ptr(), *places.numbers, noted, out.data_ptr()
    run(*given, columns, rows, index.stride(-1), step)
    faults.check(device)
    return True


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, dtype: torch.dtype, index: torch.dtype, sizes: tuple[int, int, int], step: int
) -> Run:
    """Return a launch for (rows, columns, columns of a work-item) that are `step` items apart."""
    rows, columns, width = sizes
    enough = busy_items(devices()[device].limits)
    each = max(1, min(MOST_ROWS, rows * (columns // width) // enough))
    walked = [
        (each, 0),  # row
        (each * step, 0),  # source
        (0, width),  # index
        (0, 0),  # faults
        (each * columns, width),  # out
    ]
    shape = ceil_div(rows, each), columns // width
    return prepare_elementwise(device, _kernel(dtype, index, width, each), shape, walked)


@cache
def _kernel(dtype: torch.dtype, index: torch.dtype, width: int, rows: int) -> Kernel:
    register = dtype_of(dtype).value
    items = ", ".join(f"LOAD_target(from[{i}] + r * row_step)" for i in range(width))
    texts = {"WIDTH": width, "ROWS": f"{rows}L", "VECTOR": f"({register}{width})", "ITEMS": items}
    body = BODY
    for name, text in texts.items():
        body = body.replace(name, str(text))
    parameters = (
        Operand("row", role="position"),
        Operand("target", dtype, "address"),
        *parameters_of((index,), "address"),
        Operand("out", dtype, "address", items=width),
        *(Scalar(name, "long") for name in ("columns", "rows", "index_step", "row_step")),
    )
    return Kernel("gather_columns", register, parameters, body, PLACE, scalar_only=True)
