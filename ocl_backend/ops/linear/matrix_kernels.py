"""Launches that factor small matrices and solve systems of them: a work-group for each matrix."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import CallForTheCpuError
from ocl_backend.runtime.launch import (
    MOST_LAUNCHES,
    Argument,
    KernelLaunch,
    Pointer,
    Varying,
    prepare,
)  # fmt: skip
from oclgen.limits import KIB
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

MOST_ROWS = {"cpu": 16, "gpu": 256, "other": 256}
"""Rows and columns of a matrix, at most: larger ones are left to LAPACK on the host, whose blocks
stay in caches, and a processor's work-item has no vectors for them."""
LANES, FEW_LANES, FEW_ITEMS = 256, 32, 1024
"""Work-items of a group, and of one whose matrix has no more than `FEW_ITEMS`."""
DOWN = 16
"""Work-items along the rows of a matrix."""
MOST_LOCAL = 32 * KIB
"""Local memory of a group: more of it would keep other groups away."""
REAL = {torch.float32: "float", torch.float64: "double"}

Factors = Literal["lu", "cholesky"]
Swaps = Literal["", "before", "after"]
Triangle = tuple[bool, bool, bool]
"""A triangle: whether it is the upper one, has a diagonal of ones, and is read across."""


def check_served(a: Tensor, *sides: Tensor) -> None:
    """Leave to the CPU what has no kernel.

    Args:
        a: matrices [.., m, n].
        sides: right sides.

    Raises:
        CallForTheCpuError: the dtype is not one of `REAL`, or matrices are larger than `MOST_ROWS`.
    """
    most = MOST_ROWS[devices()[a.get_device()].limits.kind]
    if a.dtype not in REAL or any(side.dtype is not a.dtype for side in sides):
        raise CallForTheCpuError(f"no factors of {a.dtype}")
    if a.dim() > 1 and max(a.shape[-2:]) > most:
        raise CallForTheCpuError(f"matrices {[*a.shape]} have more than {most} rows")


def by_columns(x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return a copy of x, or of x expanded to `shape`, whose matrices lie column by column."""
    *batch, rows, columns = shape or x.shape
    return x.new_empty((*batch, columns, rows)).mT.copy_(x)


def factor(kind: Factors, matrices: Tensor, pivots: Tensor, info: Tensor) -> None:
    """Factor matrices in place.

    Args:
        kind: of the factors; of Cholesky's the lower triangle is read, and written with zeros
            above.
        matrices: [.., rows, columns] that lie column by column, densely.
        pivots: int32 [.., the less of rows and columns]; what each row was exchanged with, from 1.
        info: int32 [..]; 0, or the first pivot that is 0 or not positive, from 1.
    """
    rows, columns = matrices.shape[-2:]
    if not info.numel():
        return
    if not rows * columns:
        info.zero_()
        return
    run = _factor(matrices.get_device(), kind, matrices.dtype, info.numel(), rows, columns)
    run(matrices.data_ptr(), pivots.data_ptr(), info.data_ptr())


@lru_cache(maxsize=MOST_LAUNCHES)
def _factor(
    device: int, kind: Factors, dtype: torch.dtype, count: int, rows: int, columns: int
) -> KernelLaunch:
    items = rows * columns
    lanes, down = _lanes(device, items)
    room = 1 << (items - 1).bit_length()
    inside = room if lanes > 1 and room * dtype.itemsize <= MOST_LOCAL else 0
    text = rendered(
        "matrix_factors", package="ocl_backend", kind=kind, real=REAL[dtype], lanes=lanes,
        down=down, inside=inside,
    )  # fmt: skip
    pointers = Pointer(dtype.itemsize), Pointer(4), Pointer(4)
    arguments: list[Argument] = [*pointers, np.int32(rows), np.int32(columns)]
    return prepare(device, text, "factor", (count * lanes,), arguments, (lanes,))


def solve(
    triangle: Tensor, x: Tensor, steps: tuple[Triangle, ...], pivots: Tensor | None = None,
    swaps: Swaps = "",
) -> None:  # fmt: skip
    """Solve systems in place: with each triangle of `steps`, one after the other.

    Args:
        triangle: [.., n, n], any strides; its batch is x's, or lies along one stride.
        x: [.., n, columns], any strides: right sides, and then solutions.
        steps: the parts of `triangle`.
        pivots: as `factor` makes them, if there are `swaps`.
        swaps: when rows of x are exchanged: before all steps in order, after them in reverse.
    """
    if not x.numel():
        return
    n, columns = x.shape[-2:]
    count = prod(x.shape[:-2])
    batches = _batch_stride(triangle), _batch_stride(x)
    run = _solve(x.get_device(), x.dtype, count, n, columns, steps, swaps)
    exchanged = triangle if pivots is None else pivots
    run(
        triangle.data_ptr(), exchanged.data_ptr(), x.data_ptr(),
        batches[0], *triangle.stride()[-2:], batches[1], *x.stride()[-2:],
    )  # fmt: skip


def _batch_stride(x: Tensor) -> int:
    """Return by how many items matrices of one batch lie apart; that of a single matrix is any.

    It is the last dimension's of several items: where a size is 1, a dense tensor has any stride.
    """
    batch = zip(x.shape[:-2], x.stride()[:-2], strict=True)
    return next((step for size, step in reversed([*batch]) if size > 1), 0)


@lru_cache(maxsize=MOST_LAUNCHES)
def _solve(
    device: int, dtype: torch.dtype, count: int, n: int, columns: int, steps: tuple[Triangle, ...],
    swaps: Swaps,
) -> KernelLaunch:  # fmt: skip
    lanes, down = _lanes(device, n * columns)
    share = max(1, lanes // down) if lanes > 1 else columns
    text = rendered(
        "matrix_solve", package="ocl_backend", real=REAL[dtype], lanes=lanes, down=down,
        swaps=swaps, steps=steps,
    )  # fmt: skip
    item = Pointer(dtype.itemsize)
    numbers = map(np.int32, (n, columns, share))
    arguments: list[Argument] = [item, Pointer(4), item, *numbers, *[Varying("long")] * 6]
    shape = count * lanes, ceil_div(columns, share)
    return prepare(device, text, "solve", shape, arguments, (lanes, 1))


def _lanes(device: int, items: int) -> tuple[int, int]:
    """Return how many work-items a group has, and how many of them are along rows."""
    limits = devices()[device].limits
    if limits.kind == "cpu":
        return 1, 1
    lanes = min(FEW_LANES if items <= FEW_ITEMS else LANES, limits.max_work_group)
    return lanes, min(DOWN, lanes)
