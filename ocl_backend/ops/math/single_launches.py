"""Short operators that torch composes of many, by one launch each.

`log_sigmoid` and its gradient, that of `glu`, cross products of three numbers, and the positions of
triangles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.dimensions import axis_of, broadcast_shapes
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.owners import are_possible
from oclgen.opencl.device import devices

LOG_SIGMOID = "const T out = fmin(x, (T)0) - log1p(exp(-fabs(x)));"
LOG_SIGMOID_BACKWARD = """\
const T small = exp(-fabs(x)), turned = small / ((T)1 + small);
const T out = grad * (x < (T)0 ? (T)1 - turned : turned);
"""


@cache
def _log_sigmoid(dtype: torch.dtype, backward: bool) -> Kernel:
    grad = [Operand("grad", dtype)] if backward else []
    operands = *grad, Operand("x", dtype), Operand("out", dtype, "output")
    body = LOG_SIGMOID_BACKWARD if backward else LOG_SIGMOID
    return Kernel("log_sigmoid", dtype_of(dtype).value, operands, body)


def log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return log(sigmoid(x)), and nothing that the gradient would need."""
    out = torch.empty_like(x)
    launch(_log_sigmoid(x.dtype, False), x.shape, (x, out))
    return out, x.new_empty(0)


def log_sigmoid_backward(grad: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """Return the gradient of x."""
    del buffer  # the CPU keeps exp(-|x|) there
    shape = broadcast_shapes(grad.shape, x.shape)  # `vmap` gives several gradients of an x
    out = torch.empty_like(x) if x.shape == shape else x.new_empty(shape)
    launch(_log_sigmoid(x.dtype, True), shape, (grad, x, out))
    return out


GLU_BACKWARD = """\
const T gate = (T)1 / ((T)1 + exp(-second));
const T to_first = grad * gate;
const T to_second = to_first * ((T)1 - gate) * first;
"""


@cache
def _glu_backward(dtype: torch.dtype) -> Kernel:
    given = [Operand(name, dtype) for name in ("grad", "first", "second")]
    made = [Operand(name, dtype, "output") for name in ("to_first", "to_second")]
    return Kernel("glu_backward", dtype_of(dtype).value, (*given, *made), GLU_BACKWARD)


def glu_backward(grad: Tensor, x: Tensor, dim: int) -> Tensor:
    """Return the gradient of x, whose first half along `dim` is multiplied by the other's sigmoid.

    Raises:
        RuntimeError: x has no halves along `dim`, or the gradient has not their shape.
    """
    axis = axis_of(dim, x.dim())
    if not x.dim() or x.shape[axis] % 2:
        raise RuntimeError(f"glu_backward of {[*x.shape]} along {dim}: its size must be even")
    out = torch.empty_like(x)
    halves = (*x.chunk(2, axis), *out.chunk(2, axis))
    if grad.shape != halves[0].shape:
        raise RuntimeError(f"glu_backward of {[*grad.shape]} for {[*x.shape]} along {dim}")
    launch(_glu_backward(x.dtype), grad.shape, (grad, *halves))
    return out


CROSS = """\
const T p = LOAD_a(a_at), q = LOAD_a(a_at + a_step), r = LOAD_a(a_at + 2 * a_step);
const T s = LOAD_b(b_at), t = LOAD_b(b_at + b_step), u = LOAD_b(b_at + 2 * b_step);
STORE_out(out_at, q * u - r * t);
STORE_out(out_at + out_step, r * s - p * u);
STORE_out(out_at + 2 * out_step, p * t - q * s);
"""


@cache
def _cross(dtype: torch.dtype) -> Kernel:
    operands: tuple[Operand | Scalar, ...] = (
        *(Operand(name, dtype, "address") for name in ("a", "b", "out")),
        *(Scalar(f"{name}_step", "long") for name in ("a", "b", "out")),
    )  # fmt: skip
    return Kernel("cross", dtype_of(dtype).value, operands, CROSS, scalar_only=True)


def linalg_cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    """Return the cross products of vectors of three numbers along `dim`.

    Raises:
        RuntimeError: dimensions or dtypes differ, or vectors have another length.
    """
    axis = axis_of(dim, a.dim())
    if a.dim() != b.dim() or not a.dim() or a.shape[axis] != 3 or b.shape[axis] != 3:
        raise RuntimeError(f"linalg.cross of {[*a.shape]} and {[*b.shape]} along {dim}")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"linalg.cross of {a.dtype} and {b.dtype}. Convert one")
    shape = broadcast_shapes(a.shape, b.shape)
    if a.dtype is torch.bool or a.is_complex():
        made: Tensor = torch._decomp.decomposition_table[torch.ops.aten.linalg_cross.default](
            a, b, dim=dim
        )
        return made
    a, b = a.expand(shape), b.expand(shape)
    out = torch.empty(shape, dtype=a.dtype, device=a.device)
    tensors = {"a": a, "b": b, "out": out}
    strides = {
        name: tuple(0 if d == axis else step for d, step in enumerate(x.stride()))
        for name, x in tensors.items()
    }
    walked = [1 if d == axis else size for d, size in enumerate(shape)]
    steps = (x.stride(axis) for x in tensors.values())
    launch(_cross(a.dtype), walked, (*tensors.values(), *steps), strides)
    return out


POSITIONS = """\
// rows before `row` of a lower triangle have `below(row + shift) - below(shift)` items
NUMBER low = 0, high = rows - 1;
while (low < high) {
    const NUMBER row = (low + high + 1) / 2;
    if (BEFORE(row) <= k)
        low = row;
    else
        high = row - 1;
}
STORE_out(k, low);
STORE_out(k + many, k - BEFORE(low) + FIRST);
"""
POSITIONS_OF_ROW = """\
const NUMBER low = place;
const NUMBER end = BEFORE(low + 1);
NUMBER k = BEFORE(low);
const NUMBER shift = FIRST - k;
for (; k + 8 <= end; k += 8) {
    STORES_out(k, (long8)(low));
    STORES_out(k + many, (long8)(k + shift) + (long8)(0, 1, 2, 3, 4, 5, 6, 7));
}
for (; k < end; ++k) {
    STORE_out(k, low);
    STORE_out(k + many, k + shift);
}
"""
"""On processors, of the row `place`: no item searches for its row."""
ROW_WORK = 64
"""Usual items' worth of time that a row takes there."""
BELOW = """\
NUMBER below(const NUMBER n, const NUMBER columns)
{
    return n <= 0 ? 0 : n <= columns + 1 ? n * (n - 1) / 2
        : columns * (columns + 1) / 2 + (n - columns - 1) * columns;
}
#define LOWER(row) (below((row) + offset + 1, columns) - below(offset + 1, columns))
#define UPPER(row) ((row) * columns - below((row) + offset, columns) + below(offset, columns))
"""


@cache
def _positions(dtype: torch.dtype, upper: bool, wide: bool, by_row: bool) -> Kernel:
    number = "long" if wide else "int"
    body = POSITIONS_OF_ROW if by_row else POSITIONS
    body = body.replace("BEFORE", "UPPER" if upper else "LOWER")
    body = body.replace("FIRST", "clamp(low + offset, (NUMBER)0, columns)" if upper else "0")
    body, helpers = (text.replace("NUMBER", number) for text in (body, BELOW))
    operands: tuple[Operand | Scalar, ...] = (
        Operand("place" if by_row else "k", role="position"),
        Operand("out", dtype, "address", "long", items=8 if by_row else 1),
        *(Scalar(name, number) for name in ("rows", "columns", "offset", "many")),
    )  # fmt: skip
    work = ROW_WORK if by_row else 1
    return Kernel("triangle_places", "long", operands, body, helpers, scalar_only=True, work=work)


def _below(n: int, columns: int) -> int:
    """Return the sum of 0 to n - 1, each `columns` at most."""
    few = max(0, min(n, columns + 1))
    return few * (few - 1) // 2 + max(0, n - columns - 1) * columns


def _triangle_indices(upper: bool) -> Callable[..., Tensor]:
    def indices(
        row: int, col: int, offset: int = 0, *, dtype: torch.dtype | None = None,
        layout: torch.layout | None = None, device: torch.device | None = None,
        pin_memory: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """Return rows and columns of a triangle's items: [2, count].

        Raises:
            RuntimeError: a size is negative, or the dtype has no whole numbers of 32 or 64 bits.
        """
        del layout, pin_memory
        dtype = dtype or torch.int64
        if row < 0 or col < 0 or dtype not in (torch.int32, torch.int64):
            raise RuntimeError(f"positions of a triangle of {row} x {col} in {dtype}")
        start, end = offset + 1 - upper, row + offset + 1 - upper
        many = _below(end, col) - _below(start, col)
        many = row * col - many if upper else many
        out = torch.empty((2, many), dtype=dtype, device=device)
        given = (out, row, col, offset, many)
        reach = max(row, col) + abs(offset) + 2  # its square is more than any number is
        by_row = are_possible(devices()[out.get_device()].limits)
        kernel = _positions(dtype, upper, reach**2 >= 2**31, by_row)
        walked = {"place" if by_row else "k": (1,), "out": (0,)}
        filled = min(row, col - offset) if upper else row
        launch(kernel, (filled if by_row and many else many,), given, walked)
        return out

    return indices


OPERATORS: dict[str, Callable[..., Any]] = {
    "log_sigmoid_forward": log_sigmoid_forward,
    "log_sigmoid_forward.output": into(log_sigmoid_forward, "output", "buffer"),
    "log_sigmoid_backward": log_sigmoid_backward,
    "log_sigmoid_backward.grad_input": into(log_sigmoid_backward, "grad_input"),
    "glu_backward": glu_backward,
    "glu_backward.grad_input": into(glu_backward, "grad_input"),
    "linalg_cross": linalg_cross,
    "linalg_cross.out": into(linalg_cross),
    "tril_indices": _triangle_indices(False),
    "triu_indices": _triangle_indices(True),
}
"""Implementations by aten name."""
