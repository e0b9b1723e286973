"""Fourier transforms as matrix products: complex numbers lie as pairs, and a DFT is a real matrix.

A length with small factors is split by Cooley and Tukey (1965) until the factors are products
worth a GEMM; a large prime factor goes through a convolution (Bluestein 1970).
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
from ocl_backend.runtime import capture
from ocl_backend.runtime.tables import as_table

DIRECT = 64
"""Up to this length a transform is one product."""

PRIME = 512
"""Up to this length a transform is one product even where its length has no small factor."""


def c2c(x: Tensor, dims: Sequence[int], normalization: int, forward: bool) -> Tensor:
    """Return the transform of complex x along `dims`; backward is by the conjugate roots."""
    for dim in dims:
        x = transform(x.transpose(dim, -1), -1 if forward else 1).transpose(dim, -1)
    return _scaled(x, [x.shape[dim] for dim in dims], normalization)


def r2c(x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    """Return the transform of real x along `dims`, of which the last has n // 2 + 1 if onesided."""
    *others, last = dims
    line = x.transpose(last, -1)
    size = x.shape[last]
    kept = size // 2 + 1 if onesided else size
    if _is_product(size):
        out = _product(line, _matrix(size, -1, x.dtype, x.device)[::2, : 2 * kept])
    else:
        out = transform(torch.complex(line, torch.zeros_like(line)), -1)[..., :kept]
    out = c2c(out.transpose(last, -1), others, 0, True)
    return _scaled(out, [x.shape[dim] for dim in dims], normalization)


def c2r(x: Tensor, dims: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    """Return the real backward transform along `dims` of x, half of a Hermitian spectrum."""
    *others, last = dims
    line = c2c(x, others, 0, False).transpose(last, -1)
    spectrum = torch.view_as_real(_whole(line, last_dim_size))
    out = transform(torch.view_as_complex(spectrum), 1).real.transpose(last, -1).contiguous()
    return _scaled(out, [out.shape[dim] for dim in dims], normalization)


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


def _scaled(x: Tensor, sizes: Sequence[int], normalization: int) -> Tensor:
    """Apply torch's `fft_norm_mode`: 0 none, 1 by the root of the size, 2 by the size."""
    if normalization == 0:
        return x
    size = float(np.prod(sizes))
    plain = torch.view_as_real(x) if x.is_complex() else x
    plain.mul_(1 / (sqrt(size) if normalization == 1 else size))
    return x


def transform(x: Tensor, sign: int) -> Tensor:
    """Return sum_j x[.., j] exp(sign * 2i * pi * j * k / n), a dense complex tensor."""
    size = x.shape[-1]
    real_dtype = torch.view_as_real(x.resolve_conj()).dtype
    if _is_product(size):
        pairs = torch.view_as_real(x.resolve_conj()).flatten(-2)
        return _product(pairs, _matrix(size, sign, real_dtype, x.device))
    first = _divisor(size)
    if first == 1:
        return _bluestein(x, sign)
    second = size // first
    inner = transform(x.reshape(*x.shape[:-1], first, second).transpose(-1, -2), sign)
    inner = inner * _roots(first, second, sign, real_dtype, x.device)
    outer = transform(inner.transpose(-1, -2), sign)
    return outer.transpose(-1, -2).reshape(x.shape)


def _is_product(size: int) -> bool:
    return size <= DIRECT or (size <= PRIME and _divisor(size) == 1)


def _divisor(size: int) -> int:
    """Return the largest divisor, at most `DIRECT`, whose DFT is one product."""
    return next(d for d in range(min(DIRECT, size - 1), 0, -1) if size % d == 0)


def _product(pairs: Tensor, matrix: Tensor) -> Tensor:
    """Return the complex rows of `pairs` [.., m] times `matrix` [m, 2n]: [.., n]."""
    rows = pairs.reshape(-1, pairs.shape[-1])
    out = torch.mm(rows, matrix).view(*pairs.shape[:-1], -1, 2)
    return torch.view_as_complex(out)


def _bluestein(x: Tensor, sign: int) -> Tensor:
    """Return the transform as a convolution with a chirp, of a length with small factors."""
    size = x.shape[-1]
    length = 1 << (2 * size - 1).bit_length()
    chirp, filtered = _chirp(size, length, sign, torch.view_as_real(x).dtype, x.device)
    padded = torch.zeros((*x.shape[:-1], length), dtype=x.dtype, device=x.device)
    padded[..., :size] = x * chirp
    spectrum = transform(padded, -1) * filtered
    return transform(spectrum, 1)[..., :size] * chirp


def _on_device(numbers: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return complex numbers as a tensor of pairs of `dtype`."""
    pairs = torch.from_numpy(numbers.view(np.float64).reshape(*numbers.shape, 2))
    return as_table(pairs.to(dtype).to(device))


@lru_cache(maxsize=256)
@capture.aside()
def _matrix(size: int, sign: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the [2n, 2n] matrix by which rows of pairs are multiplied."""
    steps = np.arange(size)
    roots = np.exp(sign * 2j * np.pi * (np.outer(steps, steps) % size) / size)
    rows = np.stack([roots, 1j * roots], axis=1)  # what a real and an imaginary unit become
    return _on_device(rows, dtype, device).view(2 * size, 2 * size)


@lru_cache(maxsize=256)
@capture.aside()
def _roots(first: int, second: int, sign: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the [second, first] factors between the two passes of a split transform."""
    turns = np.outer(np.arange(second), np.arange(first)) / (first * second)
    return torch.view_as_complex(_on_device(np.exp(sign * 2j * np.pi * turns), dtype, device))


@lru_cache(maxsize=64)
@capture.aside()
def _chirp(
    size: int, length: int, sign: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return exp(sign * i * pi * j * j / n), and the scaled spectrum of its conjugate around 0."""
    steps = np.arange(size)
    chirp = np.exp(sign * 1j * np.pi * (steps * steps % (2 * size)) / size)
    around = np.zeros(length, dtype=np.complex128)
    around[:size] = chirp.conj()
    around[length - size + 1 :] = chirp.conj()[:0:-1]
    spectrum = np.fft.fft(around) / length
    both = (_on_device(numbers, dtype, device) for numbers in (chirp, spectrum))
    first, second = map(torch.view_as_complex, both)
    return first, second


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
