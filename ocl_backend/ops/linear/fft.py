"""Fourier transforms of any length: of short rows at once, of others in parts.

Short rows are one launch (`fft_short`). A length with short factors is split by Cooley and Tukey
(1965); a large prime goes through a convolution (Bluestein 1970). What no kernel of rows serves, as
halves and devices with little local memory, is split until a factor is a product: a DFT is a real
matrix, and complex numbers lie as pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import stored
from ocl_backend.ops.linear import fft_short
from ocl_backend.ops.linear.fft_tables import (
    TABLES,
    WHOLE,
    Form,
    Parts,
    chirp,
    convolved,
    on_device,
)
from ocl_backend.runtime import capture

DIRECT = 64
"""Up to this length a transform is one product."""

PRIME = 512
"""Up to this length a transform is one product even where its length has no small factor."""


def c2c(x: Tensor, dims: Sequence[int], normalization: int, forward: bool) -> Tensor:
    """Return the transform of complex x along `dims`, a copy along none."""
    return _along(x, dims, normalization, forward) if dims else x.resolve_conj().clone()


def _along(x: Tensor, dims: Sequence[int], normalization: int, forward: bool) -> Tensor:
    """Return as `c2c`, along no dimension x itself; backward is by the conjugate roots."""
    sign, scale = -1 if forward else 1, _factor([x.shape[dim] for dim in dims], normalization)
    for place, dim in enumerate(dims):
        if fft_short.serves(x, x.shape[dim]):
            last = place == len(dims) - 1
            x = _short(x, dim, WHOLE, sign, scale=scale if last else 1.0)
            scale = 1.0 if last else scale
        else:
            x = transform(x.transpose(dim, -1), sign).transpose(dim, -1)
    return _scaled(x, scale)


def r2c(x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    """Return the transform of real x along `dims`, of which the last has n // 2 + 1 if onesided."""
    *others, last = dims
    line = x.transpose(last, -1)
    size = x.shape[last]
    kept = size // 2 + 1 if onesided else size
    scale = _factor([x.shape[dim] for dim in dims], normalization)
    if fft_short.serves(x, size, ("real", "complex")):
        out = _short(x, last, ("real", "complex"), -1, kept=kept, scale=scale)
        return _along(out, others, 0, True)
    if _is_product(size):
        out = _product(line, _matrix(size, -1, x.dtype, x.device)[::2, : 2 * kept])
    else:
        out = transform(line, -1, ("real", "complex"))[..., :kept]
    return _scaled(_along(out.transpose(last, -1), others, 0, True), scale)


def c2r(x: Tensor, dims: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    """Return the real backward transform along `dims` of x, half of a Hermitian spectrum."""
    *others, last = dims
    line = _along(x, others, 0, False)
    scale = _factor([*(x.shape[dim] for dim in others), last_dim_size], normalization)
    if fft_short.serves(x, last_dim_size, ("half", "real"), 1):
        return _short(line, last, ("half", "real"), 1, kept=last_dim_size, scale=scale)
    spectrum = _whole(line.transpose(last, -1), last_dim_size)
    out = transform(spectrum, 1, ("complex", "real"))
    return _scaled(out.transpose(last, -1).contiguous(), scale)


def _short(
    x: Tensor, dim: int, kinds: tuple[Parts, Parts], sign: int, kept: int = 0, scale: float = 1.0
) -> Tensor:
    """Return the transform along `dim` by one launch; `kept`: its results, 0: as many as x has.

    What is kept of a real result are all of its items.
    """
    x = x.resolve_conj()
    real = x.dtype if kinds[0] == "real" else x.dtype.to_real()
    size = kept if kinds[0] == "half" else x.shape[dim]
    shape = [*x.shape[: dim % x.dim()], kept or size, *x.shape[dim % x.dim() + 1 :]]
    dtype = real if kinds[1] == "real" else real.to_complex()
    out = torch.empty(shape, dtype=dtype, device=x.device)
    form = Form(real, kinds, size, kept or size, sign, scale, False)
    return fft_short.lines(x, out, dim % x.dim(), form)


def _whole(half: Tensor, size: int) -> Tensor:
    """Return all `size` numbers of a Hermitian spectrum of which the first half is given."""
    real, imaginary = torch.view_as_real(half.resolve_conj()).unbind(-1)
    kept = size // 2 + 1
    tail = torch.arange(size - kept, 0, -1, device=half.device)
    signs = torch.ones(kept, dtype=real.dtype, device=half.device)
    signs[0] = 0  # these are real, whatever was given
    if size % 2 == 0:
        signs[-1] = 0
    real, imaginary = real[..., :kept], imaginary[..., :kept] * signs
    return torch.complex(
        torch.cat([real, real.index_select(-1, tail)], -1),
        torch.cat([imaginary, -imaginary.index_select(-1, tail)], -1),
    )


def _factor(sizes: Sequence[int], normalization: int) -> float:
    """Return what torch's `fft_norm_mode` multiplies by.

    It is 0 for 1, 1 for the root of the size in the denominator, 2 for the size.
    """
    size = float(np.prod(sizes))
    return 1.0 if normalization == 0 else 1 / (sqrt(size) if normalization == 1 else size)


def _scaled(x: Tensor, scale: float) -> Tensor:
    """Multiply x in place."""
    if scale != 1:
        (torch.view_as_real(x) if x.is_complex() else x).mul_(scale)
    return x


def transform(x: Tensor, sign: int, kinds: tuple[Parts, Parts] = WHOLE) -> Tensor:
    """Return sum_j x[.., j] exp(sign * 2i * pi * j * k / n), or its real part, dense.

    Args:
        x: any strides.
        sign: of the exponent.
        kinds: whether x and the result are complex.
    """
    size = x.shape[-1]
    if fft_short.serves(x, size, kinds, sign):
        return _short(x, -1, kinds, sign, kept=size)
    if fft_short.serves(x, 1):
        return _of_lines(x.resolve_conj(), sign, kinds)
    x = torch.complex(x, torch.zeros_like(x)) if kinds[0] == "real" else x.resolve_conj()
    out = _of_products(x, sign)
    return out if kinds[1] == "complex" else out.real


def _of_lines(x: Tensor, sign: int, kinds: tuple[Parts, Parts]) -> Tensor:
    """Return a long transform by two launches of rows, or more."""
    size = x.shape[-1]
    first = fft_short.divisor(size, x)
    if first == 1:
        out = _bluestein(x, sign)
        return out if kinds[1] == "complex" else out.real
    second = size // first
    split = x.reshape(*x.shape[:-1], first, second)
    real = x.dtype.to_real() if x.is_complex() else x.dtype
    form = Form(real, (kinds[0], "complex"), first, first, sign, 1.0, True)
    inner = torch.empty(split.shape, dtype=real.to_complex(), device=x.device)
    roots = _roots(first, second, sign, real, x.device)
    fft_short.lines(split, inner, split.dim() - 2, form, roots.mT)
    kinds = ("complex", kinds[1])
    if not fft_short.is_short(second, x, kinds, sign):
        return transform(inner, sign, kinds).transpose(-1, -2).reshape(x.shape)
    dtype = real.to_complex() if kinds[1] == "complex" else real
    outer = torch.empty((*x.shape[:-1], second, first), dtype=dtype, device=x.device)
    form = form._replace(kinds=kinds, n=second, kept=second, twisted=False)
    fft_short.lines(inner, outer.mT, split.dim() - 1, form)
    return outer.view(x.shape)


def _of_products(x: Tensor, sign: int) -> Tensor:
    """Return a transform by products with the matrices of its factors."""
    size, real = x.shape[-1], x.dtype.to_real()
    if _is_product(size):
        pairs = torch.view_as_real(x).flatten(-2)
        return _product(pairs, _matrix(size, sign, real, x.device))
    first = _divisor(size)
    if first == 1:
        return _bluestein(x, sign)
    second = size // first
    inner = transform(x.reshape(*x.shape[:-1], first, second).transpose(-1, -2), sign)
    inner = inner * _roots(first, second, sign, real, x.device)
    outer = transform(inner.transpose(-1, -2), sign)
    return outer.transpose(-1, -2).reshape(x.shape)


def _is_product(size: int) -> bool:
    return size <= DIRECT or (size <= PRIME and _divisor(size) == 1)


@lru_cache(maxsize=1024)
def _divisor(size: int) -> int:
    """Return the largest divisor whose DFT is one product."""
    return next(d for d in range(min(DIRECT, size - 1), 0, -1) if size % d == 0)


def _product(pairs: Tensor, matrix: Tensor) -> Tensor:
    """Return the complex rows of `pairs` [.., m] times `matrix` [m, 2n]: [.., n]."""
    rows = pairs.reshape(-1, pairs.shape[-1])
    out = torch.mm(rows, matrix).view(*pairs.shape[:-1], -1, 2)
    return torch.view_as_complex(out)


def _bluestein(x: Tensor, sign: int) -> Tensor:
    """Return the transform as a convolution with a chirp, of a length with small factors."""
    size = x.shape[-1]
    real = x.dtype.to_real() if x.is_complex() else x.dtype
    turns, filtered = chirp(size, convolved(size), sign, real, x.device)
    padded = torch.zeros((*x.shape[:-1], len(filtered)), dtype=turns.dtype, device=x.device)
    padded[..., :size] = x * turns
    spectrum = transform(padded, -1) * filtered
    return transform(spectrum, 1)[..., :size] * turns


@TABLES.of
@capture.aside()
def _matrix(size: int, sign: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the [2n, 2n] matrix by which rows of pairs are multiplied."""
    steps = np.arange(size)
    roots = np.exp(sign * 2j * np.pi * (np.outer(steps, steps) % size) / size)
    rows = np.stack([roots, 1j * roots], axis=1)  # what a real and an imaginary unit become
    return on_device(rows, dtype, device).view(2 * size, 2 * size)


@TABLES.of
@capture.aside()
def _roots(first: int, second: int, sign: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the [second, first] factors between the two passes of a split transform."""
    turns = np.outer(np.arange(second), np.arange(first)) / (first * second)
    return torch.view_as_complex(on_device(np.exp(sign * 2j * np.pi * turns), dtype, device))


def _into(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*args: Any, out: Tensor) -> Tensor:
        return stored(function(*args), out)

    return run


OPERATORS: dict[str, Callable[..., Any]] = {
    "_fft_c2c": c2c,
    "_fft_c2c.out": _into(c2c),
    "_fft_r2c": r2c,
    "_fft_r2c.out": _into(r2c),
    "_fft_c2r": c2r,
    "_fft_c2r.out": _into(c2r),
}
"""Implementations by aten name."""
