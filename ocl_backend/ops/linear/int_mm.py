"""`torch._int_mm`, products of int8 matrices in int32, on the tuned GEMM families.

Other products of integers are `ocl_backend.ops.linear.matmul`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.checks import check_written
from ocl_backend.dispatch.outputs import resized
from ocl_backend.ops.linear.matmul import product


def int_mm(a: Tensor, b: Tensor) -> Tensor:
    """Return the int32 product of int8 matrices [m, k] and [k, n]; a may be uint8."""
    return int_mm_out(a, b, out=torch.empty((0,), dtype=torch.int32, device=a.device))


def int_mm_out(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    """Write the int32 product of int8 matrices [m, k] and [k, n] to `out`; a may be uint8."""
    fits = a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0]
    if not fits or a.dtype not in (torch.int8, torch.uint8) or b.dtype is not torch.int8:
        raise RuntimeError(f"{a.dtype} {[*a.shape]} and {b.dtype} {[*b.shape]} have no product")
    if out.dtype is not torch.int32 or not a.device == b.device == out.device:
        raise RuntimeError(
            f"_int_mm of matrices on {a.device} and {b.device} into {out.dtype} on {out.device}; "
            "it takes torch.int32 on the same device"
        )
    resized(out, (a.shape[0], b.shape[1]))
    check_written("out", out)
    if a.dtype is torch.int8:
        return product("_int_mm", a, b, out)
    # a byte of 0 to 255 is 128 more than the signed byte whose highest bit is the other one
    product("_int_mm", torch.bitwise_xor(a, 128).view(torch.int8), b, out)
    return out.add_(b.sum(0, dtype=torch.int32), alpha=128)


OPERATORS: dict[str, Callable[..., Any]] = {
    "_int_mm": int_mm,
    "_int_mm.out": int_mm_out,
}
"""Implementations by aten name."""
