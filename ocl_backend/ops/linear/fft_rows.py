"""Fourier transforms of rows on processors, one launch each: rows of any strides are lanes.

It serves lengths up to `LONGEST` whose prime factors are below 256; `fft` splits the others.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ocl_backend.ops.linear.fft_tables import Form, Lines, radices, roots
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen.families.parts.lane_packing import transpose_text
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

LONGEST = 1024
"""Items of a transform: a work-item keeps two arrays of them for each of its rows."""
FACTORS = 64, 256
"""Prime factors of a text are below one of these: it keeps room for them, and the square of a
factor is what its step costs."""
GROUP_ITEMS = 8192
"""Items of a work-item, at least where there are more rows."""


@lru_cache(maxsize=1024)
def is_short(n: int) -> bool:
    """Say whether one launch transforms rows of `n` numbers."""
    return 0 < n <= LONGEST and max(radices(n), default=1) < FACTORS[-1]


def launch(x: Tensor, out: Tensor, form: Form, lines: Lines, twist: Tensor | None) -> None:
    """Enqueue the transforms of lines; as `fft_short.lines`."""
    run = _prepared(x.get_device(), form, lines)
    table = roots(form.n, form.sign, form.dtype, x.device)
    more = [] if twist is None else [twist.data_ptr()]
    run(x.data_ptr(), out.data_ptr(), table.data_ptr(), *more)


def _width(device: int, dtype: torch.dtype) -> int:
    """Return how many rows are the lanes of a vector, by the dtype of a part.

    A step keeps 16 vectors. With 16 registers of 32 bytes, as AVX2 has, vectors of floats have
    these: twice as long ones leave for memory and come back.
    """
    bytes_of_vector = 64 if devices()[device].limits.has_32_vectors else 32
    return max(8, bytes_of_vector // dtype.itemsize)


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(device: int, form: Form, lines: Lines) -> KernelLaunch:
    """Return the launch of all lines."""
    outer = lines.outer
    width, real = _width(device, form.dtype), "float" if form.dtype is torch.float32 else "double"
    source, target = form.kinds
    longest = max(16, 1 << (form.n - 1).bit_length())
    text = rendered(
        "fft_rows", package="ocl_backend", real=real, width=width, source=source, target=target,
        longest=longest, twisted=form.twisted, outer=len(outer),
        radix=next(room for room in FACTORS if max(radices(form.n), default=1) < room),
        transpose=transpose_text(width) if real == "float" else "",
    )  # fmt: skip
    rows = int(np.prod([dim[0] for dim in outer])) if outer else 1
    share = width * max(1, GROUP_ITEMS // (width * form.n))
    size, number = form.dtype.itemsize, np.float32 if real == "float" else np.float64
    pairs = [size * (1 if kind == "real" else 2) for kind in form.kinds]
    pointers = [Pointer(size) for _ in pairs] + [Pointer(2 * size)] * (1 + form.twisted)
    code = sum(radix << 8 * place for place, radix in enumerate(radices(form.n)))
    numbers = (rows, share, form.n, form.kept, code, *lines.along)
    arguments: list[Argument] = [
        *pointers, *map(np.int64, numbers), number(form.sign), number(form.scale),
        *(np.int64(value) for dim in outer for value in dim),
    ]  # fmt: skip
    return prepare(device, text, "fft_rows", (ceil_div(rows, share),), arguments, (1,))
