"""Softmax and its logarithm along one dimension, and their gradients.

Dense rows have a kernel of their own (`softmax_rows`). Along other dimensions, largest items and
sums come from the generator of reductions, and one elementwise kernel finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.kernels import softmax_columns, softmax_rows
from ocl_backend.kernels.dimensions import axis_of
from ocl_backend.kernels.elementwise import Kernel, Operand, launch
from ocl_backend.kernels.reduction_kernels import Reduction
from ocl_backend.ops.reduce.reductions import SUM, amax, dims_of, reduce
from oclgen.opencl.device import devices

SUM_EXP = Reduction("sum_exp", "a + b", "0", "exp(x - center)")
FINITE_SUM_EXP = Reduction("finite_sum_exp", "a + b", "0", "exp(x - (isinf(center) ? 0 : center))")
"""Of infinite items it is 0 or infinite, and not NaN."""

FINISH = {
    "softmax": "exp(self - largest) / total",
    "log_softmax": "self - largest - log(total)",
    "softmax_backward": "output * (grad_output - total)",
    "log_softmax_backward": "grad_output - exp(output) * total",
    "logsumexp": "log(total) + (isinf(largest) ? (T)(0) : largest)",
}


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return exp(x) / sum(exp(x)) along `dim`."""
    return _forward("softmax", x, dim)


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return x - log(sum(exp(x))) along `dim`."""
    return _forward("log_softmax", x, dim)


def softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Return output * (grad - sum(grad * output)) along `dim`."""
    return _backward("softmax_backward", grad, output, dim)


def log_softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Return grad - exp(output) * sum(grad) along `dim`."""
    return _backward("log_softmax_backward", grad, output, dim)


def logsumexp(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    """Return log(sum(exp(x))) over `dims`, over all if there are none; of integers as floats."""
    dims = dims_of(dims, x.dim())
    if not x.numel():
        out = x.exp().sum(dims, True).log()
    elif x.is_complex():
        center = amax(x.real, dims, True)
        center = center.masked_fill(center.isinf(), 0)
        out = (x - center).exp().sum(dims, True).log() + center
    else:
        out = _logsumexp(x if x.is_floating_point() else x.to(torch.get_default_dtype()), dims)
    return out if keepdim else out.squeeze(dims)


def _logsumexp(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return it of floats, with the reduced dimensions."""
    largest = amax(x, dims, True)
    total = reduce(FINITE_SUM_EXP, x, dims, True, _wide(x.dtype), center=largest)
    out = torch.empty_like(largest)
    kernel = _kernel("logsumexp", ("largest", "total"), out, largest, total)
    launch(kernel, out.shape, (largest, total, out))
    return out


def _wide(dtype: torch.dtype) -> torch.dtype:
    if not dtype.is_floating_point:
        raise NotImplementedError(f"softmax is not implemented for {dtype}; convert to a float")
    return torch.promote_types(dtype, torch.float32)


def _forward(name: str, x: Tensor, dim: int) -> Tensor:
    dim = axis_of(dim, x.dim())
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return out
    wide = _wide(x.dtype)
    x = _in_rows(x, dim)
    if rows := softmax_rows.rows_of(x, dim):
        softmax_rows.run(rows, "fwd", name == "log_softmax", x, out)
    elif not softmax_columns.run(dim, name == "log_softmax", out, x):
        largest = amax(x, (dim,), True)
        total = reduce(SUM_EXP, x, (dim,), True, wide, center=largest)
        kernel = _kernel(name, ("self", "largest", "total"), out, x, largest, total)
        launch(kernel, x.shape, (x, largest, total, out))
    return out


def _backward(name: str, grad: Tensor, output: Tensor, dim: int) -> Tensor:
    wide, dim = _wide(grad.dtype), axis_of(dim, output.dim())
    out = torch.empty_like(output, memory_format=torch.contiguous_format)
    if not out.numel():
        return out
    logarithm = name == "log_softmax_backward"
    output = _in_rows(output, dim)
    rows = softmax_rows.rows_of(output, dim) if grad.dtype is output.dtype else None
    if rows:
        softmax_rows.run(rows, "bwd", logarithm, grad.contiguous(), output, out)
    elif not softmax_columns.run(dim, logarithm, out, output, grad):
        total = reduce(SUM, grad if logarithm else grad * output, (dim,), True, wide)
        kernel = _kernel(name, ("grad_output", "output", "total"), out, grad, output, total)
        launch(kernel, out.shape, (grad, output, total, out))
    return out


def _in_rows(x: Tensor, dim: int) -> Tensor:
    """Return x with dense rows if a processor is to walk these: they are the quickest."""
    is_cpu = devices()[x.get_device()].limits.kind == "cpu"
    return x.contiguous() if is_cpu and dim == x.dim() - 1 else x


def _kernel(name: str, names: Sequence[str], out: Tensor, *inputs: Tensor) -> Kernel:
    return Kernel(
        name,
        "double" if out.dtype is torch.float64 else "float",
        (
            *(Operand(label, given.dtype) for label, given in zip(names, inputs, strict=True)),
            Operand("out", out.dtype, "output"),
        ),
        f"const T out = {FINISH[name]};",
    )


OPERATORS: dict[str, Callable[..., Any]] = {
    "logsumexp": logsumexp,
    "logsumexp.out": into(logsumexp),
    "_softmax": softmax,
    "_softmax.out": into(softmax),
    "_log_softmax": log_softmax,
    "_log_softmax.out": into(log_softmax),
    "_softmax_backward_data": softmax_backward,
    "_softmax_backward_data.out": into(softmax_backward, "grad_input"),
    "_log_softmax_backward_data": log_softmax_backward,
    "_log_softmax_backward_data.out": into(log_softmax_backward),
}
"""Implementations by aten name."""
