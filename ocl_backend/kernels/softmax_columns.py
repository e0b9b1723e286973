"""Softmax along a dimension whose items lie apart.

GPUs have a work-item for each short column, processors a lane for a column of any length.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ocl_backend.kernels import line_lanes
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.line_lanes import LineKernel
from oclgen.opencl.device import devices

MOST_ITEMS = 64
"""Of a column: it is read three times, the last two from a cache."""

FORWARD = """\
T largest = -INFINITY, total = 0;
for (long k = 0; k < size; ++k)
    largest = fmax(largest, LOAD_x(x_at + k * x_step));
for (long k = 0; k < size; ++k)
    total += exp(LOAD_x(x_at + k * x_step) - largest);
const T last = LOGARITHM ? log(total) : 1 / total;
for (long k = 0; k < size; ++k) {
    const T x = LOAD_x(x_at + k * x_step) - largest;
    STORE_out(out_at + k * out_step, LOGARITHM ? x - last : exp(x) * last);
}
"""
BACKWARD = """\
T total = 0;
for (long k = 0; k < size; ++k) {
    const T grad = LOAD_grad(grad_at + k * grad_step);
    total += LOGARITHM ? grad : grad * LOAD_x(x_at + k * x_step);
}
for (long k = 0; k < size; ++k) {
    const T grad = LOAD_grad(grad_at + k * grad_step), y = LOAD_x(x_at + k * x_step);
    STORE_out(out_at + k * out_step, LOGARITHM ? grad - exp(y) * total : y * (grad - total));
}
"""


LINES_FORWARD = """\
V largest[MANY], total[MANY], last[MANY];
EACH(v) {
    largest[v] = -INFINITY;
    total[v] = 0;
}
for (long k = 0; k < size; ++k)
    EACH(v)
        largest[v] = fmax(largest[v], LOAD_x(k, v));
for (long k = 0; k < size; ++k)
    EACH(v)
        total[v] += exp(LOAD_x(k, v) - largest[v]);
EACH(v)
    last[v] = LOGARITHM ? log(total[v]) : 1 / total[v];
for (long k = 0; k < size; ++k)
    EACH(v) {
        const V x = LOAD_x(k, v) - largest[v];
        STORE_out(k, v, LOGARITHM ? x - last[v] : exp(x) * last[v]);
    }
"""
LINES_BACKWARD = """\
V total[MANY];
EACH(v)
    total[v] = 0;
for (long k = 0; k < size; ++k)
    EACH(v) {
        const V grad = LOAD_grad(k, v);
        total[v] += LOGARITHM ? grad : grad * LOAD_x(k, v);
    }
for (long k = 0; k < size; ++k)
    EACH(v) {
        const V grad = LOAD_grad(k, v), y = LOAD_x(k, v);
        STORE_out(k, v, LOGARITHM ? grad - exp(y) * total[v] : y * (grad - total[v]));
    }
"""


def run(dim: int, logarithm: bool, out: Tensor, x: Tensor, grad: Tensor | None = None) -> bool:
    """Write the softmax of x, or the gradient of its argument.

    Args:
        dim: along which.
        logarithm: whether the softmax's logarithm is meant.
        out: of x's shape; written.
        x: the argument; of a gradient the result.
        grad: of the result; None: the forward pass is meant.

    Returns:
        False where nothing was done: columns are too long, or of a processor too few.
    """
    limits = devices()[x.get_device()].limits
    if line_lanes.serve(x, dim):
        given = (x, out) if grad is None else (grad, x, out)
        line_lanes.run(_lines(logarithm, grad is not None), dim, given)
        return True
    if limits.kind == "cpu" or x.dim() < 2 or x.shape[dim] > MOST_ITEMS:
        return False
    tensors = {"x": x, "out": out} if grad is None else {"grad": grad, "x": x, "out": out}
    shape = [1 if d == dim else size for d, size in enumerate(x.shape)]
    walked = {
        name: tuple(0 if d == dim else step for d, step in enumerate(tensor.stride()))
        for name, tensor in tensors.items()
    }
    steps = (tensor.stride(dim) for tensor in tensors.values())
    kernel = _kernel(tuple((name, t.dtype) for name, t in tensors.items()), logarithm)
    launch(kernel, shape, (*tensors.values(), x.shape[dim], *steps), walked)
    return True


@cache
def _lines(logarithm: bool, is_gradient: bool) -> LineKernel:
    operands = (*([("grad", False)] if is_gradient else []), ("x", False), ("out", True))
    body = LINES_BACKWARD if is_gradient else LINES_FORWARD
    text = body.replace("LOGARITHM ?", "1 ?" if logarithm else "0 ?")
    return LineKernel("softmax_lines", operands, text, limited=True)


@cache
def _kernel(tensors: tuple[tuple[str, torch.dtype], ...], logarithm: bool) -> Kernel:
    body = FORWARD if len(tensors) == 2 else BACKWARD
    value = "double" if any(dtype is torch.float64 for _, dtype in tensors) else "float"
    parameters: tuple[Operand | Scalar, ...] = (
        *(Operand(name, dtype, "address", value) for name, dtype in tensors),
        *(Scalar(name, "long") for name in ("size", *(f"{name}_step" for name, _ in tensors))),
    )
    text = body.replace("LOGARITHM", str(int(logarithm)))
    return Kernel("softmax_columns", value, parameters, text, scalar_only=True)
