"""Fourier transforms of rows on processors, one launch each: rows of any strides are lanes.

It serves lengths up to `LONGEST` whose prime factors are below 256, and by a convolution those up
to `LONGEST_CHIRPED` that have a larger one; `fft` splits the others.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ocl_backend.ops.linear.fft_tables import Form, Lines, chirp, radices, roots
from ocl_backend.runtime.launch import (
    MOST_LAUNCHES,
    Argument,
    LaunchSequence,
    Part,
    Pointer,
    Prepared,
    prepare,
)
from oclgen.families.parts.lane_packing import transpose_text
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

LONGEST = 4096
"""Items of a transform: a work-item keeps two arrays of them for each of its rows, 1 MiB of the
second cache with vectors of 64 bytes. Rows that are split take five times as long from 1040 on."""
FACTORS = 64, 256
"""Prime factors of a text are below one of these: it keeps room for them, and the square of a
factor is what its step costs."""
LONGEST_CHIRPED = 2048
"""Items of a transform by a convolution of at least twice as many: a core's cache has their arrays.
"""
APART = 4
"""Vectors between two arrays: steps read and write at powers of two from each other, which else all
fall into the same lines of the first cache. 40 rows of 1024 take 271 us without, 112 so (Zen 3)."""
POWERS_OF_3 = 1, 3, 9, 27, 81, 243, 729, 2187
"""Of which lengths of convolutions are multiples; others have slower steps."""
GROUP_ITEMS = 8192
"""Items of a work-item, at least where there are more rows."""
GROUPS_PER_UNIT = 4
"""Work-items of a core whose arrays lie in memory, at most."""


@lru_cache(maxsize=1024)
def is_short(n: int) -> bool:
    """Say whether one launch transforms rows of `n` numbers."""
    return 0 < n <= (LONGEST_CHIRPED if _is_chirped(n) else LONGEST)


def _is_chirped(n: int) -> bool:
    """Whether a factor is so large that a convolution with a chirp takes less time."""
    return max(radices(n), default=1) >= FACTORS[-1]


@lru_cache(maxsize=1024)
def _convolved(n: int) -> int:
    """Return of how many numbers the convolution is: factors of 2 and 3, and the fewest steps."""
    powers = [(1 << i) * three for three in POWERS_OF_3 for i in range(13)]
    fitting = [length for length in powers if 2 * n - 1 <= length < 4 * n]
    return min(fitting, key=lambda length: length * len(radices(length)))


def launch(x: Tensor, out: Tensor, form: Form, lines: Lines, twist: Tensor | None) -> None:
    """Enqueue the transforms of lines; as `fft_short.lines`."""
    run = _prepared(x.get_device(), form, lines)
    if _is_chirped(form.n):
        length = _convolved(form.n)
        tables = chirp(form.n, length, form.sign, form.dtype, x.device)
        more = [roots(length, -1, form.dtype, x.device), *tables]
    else:
        more = [roots(form.n, form.sign, form.dtype, x.device)]
    if twist is not None:
        more.append(twist)
    run(*(tensor.data_ptr() for tensor in (x, out, *more)))


def _width(device: int, dtype: torch.dtype) -> int:
    """Return how many rows are the lanes of a vector, by the dtype of a part.

    A step keeps 16 vectors. With 16 registers of 32 bytes, as AVX2 has, vectors of floats have
    these: twice as long ones leave for memory and come back.
    """
    bytes_of_vector = 64 if devices()[device].limits.has_32_vectors else 32
    return max(8, bytes_of_vector // dtype.itemsize)


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(device: int, form: Form, lines: Lines) -> Prepared:
    """Return the launch of all lines."""
    is_chirped, outer = _is_chirped(form.n), lines.outer
    width, real = _width(device, form.dtype), "float" if form.dtype is torch.float32 else "double"
    source, target = form.kinds
    length = _convolved(form.n) if is_chirped else form.n
    longest = max(16, 1 << (length - 1).bit_length()) + APART
    text = rendered(
        "fft_rows", package="ocl_backend", real=real, width=width, source=source, target=target,
        longest=longest, twisted=form.twisted, outer=len(outer), chirped=is_chirped,
        radix=next(room for room in FACTORS if max(radices(length), default=1) < room),
        transpose=transpose_text(width) if real == "float" else "",
    )  # fmt: skip
    rows = int(np.prod([dim[0] for dim in outer])) if outer else 1
    share = _share(device, rows, width, form.n)
    size, number = form.dtype.itemsize, np.float32 if real == "float" else np.float64
    pair = Pointer(2 * size)
    own: list[Argument] = [pair, pair, Pointer(size), np.int64(length)]
    pointers = [Pointer(size), Pointer(size), pair, *own * is_chirped, *[pair] * form.twisted]
    code = sum(radix << 8 * place for place, radix in enumerate(radices(length)))
    numbers = (rows, share, form.n, form.kept, code, *lines.along)
    arguments: list[Argument] = [
        *pointers, *map(np.int64, numbers), number(-1 if is_chirped else form.sign),
        number(form.scale), *(np.int64(value) for dim in outer for value in dim),
    ]  # fmt: skip
    groups = ceil_div(rows, share)
    launch = prepare(device, text, "fft_rows", (groups,), arguments, (1,))
    if not is_chirped:
        return launch
    count = 5 + form.twisted
    places = (*range(5), count, *range(5, count))
    space = groups * 4 * longest * width * size
    return LaunchSequence(device, [Part(launch, places)], count, [space])


def _share(device: int, rows: int, width: int, n: int) -> int:
    """Return how many rows a work-item transforms; with arrays in memory it transforms many."""
    share = width * max(1, GROUP_ITEMS // (width * n))
    if not _is_chirped(n):
        return share
    busy = GROUPS_PER_UNIT * devices()[device].limits.compute_units
    return max(share, width * ceil_div(rows, width * busy))
