"""Complex operands of operators that treat both parts alike, and a few operators made of others.

To move, choose and add numbers, the real kernel is called for the real and for the imaginary part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import inf, nan
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ocl_backend.dispatch.checks import check_dtypes
from ocl_backend.ops.math import complex as arithmetic
from ocl_backend.ops.math.complex import Number, halves

ALIKE = ("gather", "index_select", "index.Tensor", "flip", "roll", "tril", "triu", "scatter.src",
         "scatter_add", "select_backward", "slice_backward")  # fmt: skip
"""Operators whose floating operands have parts; their other operands choose items of these."""
IN_PLACE = ("_index_put_impl_", "masked_fill_.Scalar", "masked_fill_.Tensor", "scatter_.src",
            "scatter_add_", "index_add_", "index_copy_", "masked_scatter_")  # fmt: skip
"""The same of operators that write to their first operand; `value` is a number, too."""


def _part(leaf: Any, imaginary: bool) -> Any:
    """Return a part of a tensor; a real one's imaginary part is 0, integers are no numbers."""
    if isinstance(leaf, complex):
        return leaf.imag if imaginary else leaf.real
    if not isinstance(leaf, Tensor) or not (leaf.is_complex() or leaf.is_floating_point()):
        return leaf
    if leaf.is_complex():
        return halves(leaf)[imaginary]
    return torch.zeros_like(leaf) if imaginary else leaf


def _alike(operator: str) -> Callable[..., Tensor]:
    call = _overload(operator)

    def run(*args: Any, **kwargs: Any) -> Tensor:
        real, imaginary = (
            call(*tree_map(partial(_part, imaginary=which), args), **kwargs)
            for which in (False, True)
        )
        return torch.complex(real, imaginary)

    return run


def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return numbers of a or b; those of real tensors have no imaginary part."""
    dtype = torch.result_type(a, b)
    chosen: Tensor = _alike("where.self")(condition, a.to(dtype), b.to(dtype))
    return chosen


def _in_place(operator: str) -> Callable[..., Tensor]:
    call = _overload(operator)
    names = [argument.name for argument in call._schema.arguments]

    def run(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        given = dict(zip(names[1:], args, strict=False)) | kwargs
        if isinstance(value := given.get("value"), Tensor):
            given["value"] = value.to(x.dtype)
        elif value is not None:
            given["value"] = complex(value)
        if (alpha := given.pop("alpha", 1)) != 1:
            given["source"] = given["source"] * alpha
        for written in ("values", "source"):
            if isinstance(source := given.get(written), Tensor):
                check_dtypes(operator, x, source)
        for which, half in enumerate(torch.view_as_real(x).unbind(-1)):
            part = partial(_part, imaginary=bool(which))
            call(half, **{name: tree_map(part, value) for name, value in given.items()})
        return x

    return run


def _overload(operator: str) -> Any:
    name, _, label = operator.partition(".")
    return getattr(getattr(torch.ops.aten, name), label or "default")


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Return tensors joined along `dim`; real ones among them become complex."""
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    both = zip(*(halves(tensor.to(dtype)) for tensor in tensors), strict=True)
    real, imaginary = (torch.cat(list(one), dim) for one in both)
    return torch.complex(real, imaginary)


def cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the sums of all numbers up to each."""
    real, imaginary = halves(x if dtype is None else x.to(dtype))
    return torch.complex(real.cumsum(dim), imaginary.cumsum(dim))


def affine(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return beta * x + alpha * product(a, b)."""

    def run(x: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        found = product(a, b) * alpha
        return found + x * beta if beta else found

    return run


def addmv_out(
    x: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor
) -> Tensor:
    """Write beta * x + alpha * a · b [rows] to `out`."""
    found = (a @ b.unsqueeze(1)).squeeze(1) * alpha
    return out.resize_(found.shape).copy_(found + x * beta if beta else found)


def vector_norm(
    x: Tensor, order: Number = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Return the norm of absolute values; `dtype` is the one to compute with."""
    wide = x if dtype is None else x.to(dtype)
    found: Tensor = torch.linalg.vector_norm(wide.abs(), order, dim, keepdim)
    return found


def power(x: Tensor, exponent: Number) -> Tensor:
    """Return x to a power; small whole ones are products."""
    if exponent in (0, 1):
        return x.clone() if exponent else torch.ones_like(x)
    if exponent in (2, 3):
        return reduce(torch.mul, [x] * int(exponent.real))
    found = (x.log() * exponent).exp()
    at_zero = 0j if exponent.real > 0 else complex(inf if exponent.real < 0 else nan, nan)
    parts = (torch.full_like(x.real, part) for part in (at_zero.real, at_zero.imag))
    return torch.where(x == 0, torch.complex(*parts), found)


def log(x: Tensor) -> Tensor:
    """Return the logarithm whose imaginary part is the angle."""
    return torch.complex(x.abs().log(), x.angle())


def normal_(x: Tensor, mean: float = 0, std: float = 1, *, generator: Any = None) -> Tensor:
    """Fill x with numbers of this mean, whose parts have half of the variance each."""
    torch.view_as_real(x).normal_(0, std / 2**0.5, generator=generator)
    return x.add_(mean) if mean else x


RESCUES: dict[str, Callable[..., Any]] = {
    **arithmetic.RESCUES,
    **{operator: _alike(operator) for operator in ALIKE},
    **{operator: _in_place(operator) for operator in IN_PLACE},
    "cat": cat,
    "where.self": where,
    "cumsum": cumsum,
    "addmm": affine(torch.mm),
    "baddbmm": affine(torch.bmm),
    "index_add": lambda x, *args, **kwargs: x.clone().index_add_(*args, **kwargs),
    "addmv.out": addmv_out,
    "addcmul": lambda x, a, b, *, value=1: x + a * b * value,
    "addcdiv": lambda x, a, b, *, value=1: x + a / b * value,
    "lerp.Scalar": lambda a, b, weight: a + (b - a) * weight,
    "linalg_vector_norm": vector_norm,
    "isnan": lambda x: x.real.isnan() | x.imag.isnan(),
    "pow.Tensor_Scalar": power,
    "log": log,
    "normal_": normal_,
}
"""Serves an operator's complex operands if its kernel knows only real ones."""
