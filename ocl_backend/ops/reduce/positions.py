"""First positions of the largest or smallest items on GPUs, by one reduction.

An item's key, an int of the items' order, is the upper half of a long; the lower half falls with
the position. So the largest long is the first of the best items.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.reduction_kernels import Reduction
from oclgen.opencl.device import devices

MOST_POSITIONS = 2**32
"""Positions are half of a long."""
KEY = "x == 0 ? 0 : as_int(x) ^ (as_int(x) >> 31 & 0x7fffffff)"
"""OpenCL C of an int in the order of a float x; both zeros have one."""
LEAST = "(-0x7fffffffffffffffL - 1)"


def serve(x: Tensor, axis: int) -> bool:
    """Say whether a device finds positions in x so: items of processors come in vectors instead."""
    fits = x.itemsize <= 4 and 0 < x.shape[axis] <= MOST_POSITIONS
    return fits and devices()[x.get_device()].limits.kind != "cpu"


@cache
def first_of(dtype: torch.dtype, largest: bool) -> Reduction:
    """Return what finds the first position of the largest or smallest item; a NaN wins.

    Args:
        dtype: of items of at most four bytes.
        largest: which one.
    """
    is_float = dtype.is_floating_point
    key = f"(long)({'' if largest else '~'}({KEY if is_float else '(int)x'})) << 32"
    if is_float:
        key = f"(x != x ? 0x7fffffffL << 32 : {key})"
    name = "argmax" if largest else "argmin"
    where = "0xffffffffL - (acc & 0xffffffffL)"
    return Reduction(name, "a > b ? a : b", LEAST, f"({key}) | (0xffffffffL - position)", where)


def items_at(x: Tensor, where: Tensor, axis: int) -> Tensor:
    """Return the items of x at positions along `axis`, of their shape.

    Args:
        x: of any strides.
        where: int64, of x's shape except for one along `axis`.
        axis: the dimension.
    """
    out = torch.empty(where.shape, dtype=x.dtype, device=x.device)
    walked = {"x": tuple(0 if d == axis else step for d, step in enumerate(x.stride()))}
    launch(_item_at(x.dtype), where.shape, (x, where, out, x.stride(axis)), walked)
    return out


@cache
def _item_at(dtype: torch.dtype) -> Kernel:
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("x", dtype, "address"),
        Operand("place", torch.int64, value="long"),
        Operand("out", dtype, "output"),
        Scalar("step", "long"),
    )
    body = "const T out = LOAD_x(x_at + place * step);"
    return Kernel("item_at", dtype_of(dtype).value, parameters, body, scalar_only=True)
