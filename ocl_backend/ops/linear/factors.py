"""How the factors of a product lie: what kernels read in place, and what is copied before."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from oclgen.opencl.device import devices

FEW_ROWS, LONG_K = 8, 128
"""Rows of A at most, and steps of k at least, of which a processor turns a transposed A if B lies
along k: inner products then read both as they lie, else B is gathered lane by lane. In bf16 and
fp32 this took 0.11 to 0.44 of the time with 3 rows, 0.19 and 0.7 with 8, the same with 16."""


class Matrix(NamedTuple):
    """How a [batch, rows, columns] tensor is read: `ld` and `step` in elements."""

    transposed: bool
    ld: int
    step: int


@lru_cache(maxsize=1024)
def layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> Matrix | None:
    """Return how a batch of matrices of these strides is read in place, or None if it cannot be."""
    (*batch, rows, columns), (*steps, by_row, by_column) = shape, strides
    step = steps[0] if batch and batch[0] > 1 else 0
    if (by_column == 1 or columns == 1) and (by_row >= columns or rows == 1):
        return Matrix(False, by_row if rows > 1 else columns, step)
    if (by_row == 1 or rows == 1) and (by_column >= rows or columns == 1):
        return Matrix(True, by_column if columns > 1 else rows, step)
    return None


def readable(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return both factors, copied where strides fit no kernel, or few rows of A lie across k."""
    if layout(a.shape, a.stride()) is None or _is_turned(a, b):
        a = a.contiguous()
    return a, b if layout(b.shape, b.stride()) is not None else b.contiguous()


def _is_turned(a: Tensor, b: Tensor) -> bool:
    """Say whether a transposed A is to lie along k, as B does."""
    rows, k = a.shape[-2:]
    return (
        1 < rows <= FEW_ROWS
        and k >= LONG_K
        and a.stride(-1) != 1
        and b.stride(-1) != 1
        and devices()[a.get_device()].limits.kind == "cpu"
    )
