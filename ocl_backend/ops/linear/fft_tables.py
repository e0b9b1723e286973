"""What kernels of Fourier transforms share: forms, factors of lengths, and tables of roots."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.runtime import capture
from ocl_backend.runtime.tables import KeptTables, as_table

TABLES = KeptTables(1 << 28)
"""Matrices, factors and chirps of the last lengths; those of a prime above a million have 40 MB."""

Parts = Literal["complex", "real", "half"]
WHOLE: tuple[Parts, Parts] = "complex", "complex"


class Form(NamedTuple):
    """What is transformed, beside strides: `kinds` of source and target, `n` items to `kept`."""

    dtype: torch.dtype
    kinds: tuple[Parts, Parts]
    n: int
    kept: int
    sign: int
    scale: float
    twisted: bool


class Lines(NamedTuple):
    """Where lines lie: `outer` dimensions, each a size and strides of x, results and twist.

    `along` are the strides of x and of the results within a line.
    """

    outer: tuple[tuple[int, ...], ...]
    along: tuple[int, int]


@lru_cache(maxsize=1024)
def radices(n: int) -> tuple[int, ...]:
    """Return the factors of `n`, the largest first: primes, and fours in place of pairs of twos."""
    found, factor = [], 4
    while n > 1:
        while n % factor == 0:
            found.append(factor)
            n //= factor
        factor = 2 if factor == 4 else 3 if factor == 2 else factor + 2
    return tuple(sorted(found, reverse=True))


def on_device(numbers: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return complex numbers as a tensor of pairs of `dtype`, [.., 2]."""
    pairs = torch.from_numpy(numbers.view(np.float64).reshape(*numbers.shape, 2))
    return as_table(pairs.to(dtype).to(device))


@TABLES.of
@capture.aside()
def roots(n: int, sign: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return exp(sign * 2i * pi * t / n) for t from 0, as pairs [n, 2]."""
    return on_device(np.exp(sign * 2j * np.pi * np.arange(n) / n), dtype, device)


def convolved(size: int) -> int:
    """Return the least power of 2 of which `size` numbers are convolved with a chirp."""
    return 1 << (2 * size - 2).bit_length()


@TABLES.of
@capture.aside()
def chirp(
    size: int, length: int, sign: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return exp(sign * i * pi * j * j / n), and the scaled spectrum of its conjugate around 0.

    Args:
        size: n.
        length: of the convolution.
        sign: of the exponent.
        dtype: of a part.
        device: where they lie.
    """
    steps = np.arange(size)
    turns = np.exp(sign * 1j * np.pi * (steps * steps % (2 * size)) / size)
    around = np.zeros(length, dtype=np.complex128)
    around[:size] = turns.conj()
    around[length - size + 1 :] = turns.conj()[:0:-1]
    spectrum = np.fft.fft(around) / length
    first, second = (on_device(numbers, dtype, device) for numbers in (turns, spectrum))
    return torch.view_as_complex(first), torch.view_as_complex(second)
