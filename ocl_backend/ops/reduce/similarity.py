"""Which calls of torch's `cosine_similarity` are one launch, above autograd.

torch composes it of norms, bounds, quotients and a sum. Where nothing is recorded, the three sums
of a row are made in one reading of both.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import row_passes
from ocl_backend.kernels.dimensions import broadcast_shapes
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar
from ocl_backend.kernels.row_passes import RowPass
from oclgen.opencl.device import devices

SERVED = torch.float32, torch.float16, torch.bfloat16, torch.float64
COMPOSED = torch._C.DispatchKey.CompositeImplicitAutograd

FINISH = """\
const T a = sqrt(total_0), b = sqrt(total_1);
STORE_out(row, total_2 / (a < eps ? eps : a) / (b < eps ? eps : b));
"""

_libraries: list[Any] = []


def register() -> None:
    """Let `cosine_similarity` serve torch's operator on the device, with autograd or without."""
    library: Any = torch.library.Library  # torch types neither the class nor its methods
    _libraries.append(library("aten", "IMPL"))
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        _libraries[0].impl("cosine_similarity", cosine_similarity, key)


def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosines of the angles between rows of `a` and `b` along `dim`.

    Args:
        a: floats.
        b: of a shape that broadcasts with a's.
        dim: goes.
        eps: the least that a row's norm counts.
    """
    if _is_served(a, b):
        shape = broadcast_shapes(a.shape, b.shape)
        if shape and -len(shape) <= dim < len(shape):
            x, y = (each.expand(shape).movedim(dim, -1) for each in (a, b))
            if _are_dense(x, y):
                return _of_rows(x, y, eps)
    composed: Tensor = torch.ops.aten.cosine_similarity.default._op_dk(COMPOSED, a, b, dim, eps)
    return composed


def _is_served(a: Tensor, b: Tensor) -> bool:
    """Say whether a kernel may compute a call: nothing is recorded, and both are alike."""
    if any(type(t) not in (Tensor, Parameter) or t.is_nested for t in (a, b)):
        return False
    if torch._C._functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        return False
    if a.dtype not in SERVED or b.dtype is not a.dtype or a.device != b.device:
        return False
    return not (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad))


def _are_dense(a: Tensor, b: Tensor) -> bool:
    items, limits = a.shape[-1], devices()[a.get_device()].limits
    is_served = bool(a.numel()) and row_passes.serves(items, limits)
    return is_served and all(items == 1 or x.stride(-1) == 1 for x in (a, b))


def _of_rows(a: Tensor, b: Tensor, eps: float) -> Tensor:
    out = torch.empty(a.shape[:-1], dtype=a.dtype, device=a.device)
    row_passes.launch(_cosine(a.dtype), a.shape, (a, b, out, eps))
    return out


@cache
def _cosine(dtype: torch.dtype) -> RowPass:
    value = dtype_of(dtype).value
    operands = Operand("x", dtype), Operand("y", dtype), Operand("out", dtype, "address")
    kernel = Kernel("cosine", value, (*operands, Scalar("eps", value)), FINISH)
    return RowPass(kernel, ("x * x", "y * y", "x * y"), finish=FINISH)
