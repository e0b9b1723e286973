"""Kinds of operators that compute: pointwise, sums, scans, sorts, norms and small matrices."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.tasks.operators.case import Kind, Made
from benchmarks.tasks.operators.drawing import (
    Drawn,
    Sizes,
    along,
    one_of,
    over,
    plain,
    rows,
    sizes,
    square,
)

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "tanh gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
    "erf": torch.erf,
    "softplus": functional.softplus,
    "hardswish": functional.hardswish,
    "mish": functional.mish,
    "leaky_relu": functional.leaky_relu,
    "sin": torch.sin,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "pow": lambda x: x.abs() ** 1.7,
    "log1p": lambda x: torch.log1p(x.abs()),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "sub": torch.sub,
    "div": torch.div,
    "maximum": torch.maximum,
    "atan2": torch.atan2,
    "remainder": torch.remainder,
}
REDUCTIONS: dict[str, Callable[[Tensor, Sizes], Tensor]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "var": lambda x, dims: torch.var(x, dims),
    "norm": lambda x, dims: torch.linalg.vector_norm(x, 2.0, dims),
    "logsumexp": torch.logsumexp,
    "any": lambda x, dims: torch.any(x > 0, dims),
    "count_nonzero": torch.count_nonzero,
}
CHOICES: dict[str, Callable[[Tensor, int], Any]] = {
    "argmax": torch.argmax,
    "max with places": lambda x, dim: torch.max(x, dim)[0],
    "prod": torch.prod,
    "median": lambda x, dim: torch.median(x, dim)[0],
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
}
SCANS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cummax": lambda x, dim: torch.cummax(x, dim)[0],
    "logcumsumexp": torch.logcumsumexp,
}
SORTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sort": lambda x, dim: torch.sort(x, dim)[0],
    "stable argsort": lambda x, dim: torch.argsort(x, dim=dim, stable=True),
    "topk": lambda x, dim: torch.topk(x, min(10, x.shape[dim]), dim)[0],
    "kthvalue": lambda x, dim: torch.kthvalue(x, -(-x.shape[dim] // 2), dim)[0],
}
MATRICES: dict[str, Callable[[Tensor], Any]] = {
    "inverse": torch.linalg.inv,
    "cholesky": torch.linalg.cholesky,
    "determinant": torch.linalg.det,
    "solve": lambda x: torch.linalg.solve(x, x),
    "matrix_exp": torch.linalg.matrix_exp,
    "triangular product": lambda x: torch.tril(x) @ x,
}
INTEGERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum of integers": lambda x, y: x.sum(-1),
    "add integers": torch.add,
    "bitwise": lambda x, y: (x & y) ^ 5,
    "floor_divide": lambda x, y: x // (y.abs() + 1),
    "cumsum of integers": lambda x, y: x.cumsum(-1),
    "sort integers": lambda x, y: x.sort(-1)[0],
    "compare integers": torch.eq,
}


def _broadcast(random: Random, elements: int) -> Drawn:
    shape = sizes(random, elements, random.randint(2, 5))
    other = tuple(1 if random.random() < 0.5 else each for each in shape)
    return shape, {"other": other}


def _alike(random: Random, elements: int) -> Drawn:
    shape, _ = plain(random, elements)
    return shape, {"other": shape}


def _two(x: Tensor, op: str, other: Sizes) -> Made:
    y = torch.randn(other, device=x.device).to(x.dtype) + 3
    return Made(lambda: BINARY[op](x, y))


def _where(x: Tensor) -> Made:
    mask = torch.randn(x.shape, device=x.device) > 0
    return Made(lambda: torch.where(mask, x, 0.0))


def _lerp(x: Tensor) -> Made:
    end, weight = torch.randn_like(x), torch.rand_like(x)
    return Made(lambda: torch.lerp(x, end, weight))


def _integers(x: Tensor, op: str) -> Made:
    numbers = (x.detach() * 1000).to(torch.int64)
    return Made(lambda: INTEGERS[op](numbers, numbers))


def _convert(x: Tensor) -> Made:
    to = torch.bfloat16 if x.dtype is torch.float32 else torch.float32
    return Made(lambda: x.to(to))


def _definite(x: Tensor, op: str) -> Made:
    """Make an operator on positive definite matrices."""
    matrices = x.detach() @ x.detach().mT + x.shape[-1] * torch.eye(x.shape[-1], device=x.device)
    return Made(lambda: MATRICES[op](matrices))


def _layer_norm(x: Tensor) -> Made:
    norm = torch.nn.LayerNorm(x.shape[-1], device=x.device, dtype=x.dtype)
    return Made(lambda: norm(x), tuple(norm.parameters()))


def _rms_norm(x: Tensor) -> Made:
    norm = torch.nn.RMSNorm(x.shape[-1], device=x.device, dtype=x.dtype)
    return Made(lambda: norm(x), tuple(norm.parameters()))


def _searched(x: Tensor) -> Made:
    edges = torch.linspace(-3, 3, 1001, device=x.device)
    return Made(lambda: torch.searchsorted(edges, x))


def _fft(x: Tensor) -> Made:
    return Made(lambda: torch.fft.rfft(x))


KINDS = {
    "unary": Kind(
        "pointwise", one_of(UNARY, plain), lambda x, op: Made(lambda: UNARY[op](x)), True
    ),
    "binary": Kind("pointwise", one_of(BINARY, _alike), _two, True),
    "broadcast": Kind("pointwise", one_of(BINARY, _broadcast), _two, True),
    "where": Kind("pointwise", plain, _where, True),
    "compare": Kind("pointwise", plain, lambda x: Made(lambda: x > 0)),
    "lerp": Kind("pointwise", plain, _lerp),
    "copy": Kind(
        "pointwise",
        plain,
        lambda x: Made(lambda: torch.clone(x, memory_format=torch.contiguous_format)),
    ),
    "convert": Kind("pointwise", plain, _convert),
    "integers": Kind("pointwise", one_of(INTEGERS, plain), _integers, dtypes=("fp32",), part=0.25),
    "reduction": Kind(
        "sums", one_of(REDUCTIONS, over), lambda x, op, dims: Made(lambda: REDUCTIONS[op](x, dims))
    ),
    "gradient of a sum": Kind(
        "sums", over, lambda x, dims: Made(lambda: torch.logsumexp(x, dims)), True
    ),
    "along": Kind(
        "sums", one_of(CHOICES, along), lambda x, op, dim: Made(lambda: CHOICES[op](x, dim))
    ),
    "softmax": Kind("sums", along, lambda x, dim: Made(lambda: torch.softmax(x, dim)), True),
    "scan": Kind("scans", one_of(SCANS, along), lambda x, op, dim: Made(lambda: SCANS[op](x, dim))),
    "sort": Kind(
        "sorts", one_of(SORTS, along), lambda x, op, dim: Made(lambda: SORTS[op](x, dim)), part=0.25
    ),
    "unique": Kind(
        "sorts", plain, lambda x: Made(lambda: torch.unique(x.round())), dtypes=("fp32",), part=0.25
    ),
    "searchsorted": Kind("sorts", plain, _searched, dtypes=("fp32",), part=0.25),
    "layer_norm": Kind("norms", rows, _layer_norm, True),
    "rms_norm": Kind("norms", rows, _rms_norm, True),
    "matrices": Kind("matrices", one_of(MATRICES, square), _definite, dtypes=("fp32",), part=0.03),
    "fft": Kind("matrices", rows, _fft, dtypes=("fp32",), part=0.25),
}
