"""Fourier transforms of rows on GPUs, one launch each: a work-group has rows in local memory.

It serves any length up to `items_of`: one with a prime factor above `RADIX` is a convolution with a
chirp, whose length has to fit, too. `fft` splits the others.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ocl_backend.ops.linear.fft_tables import Form, Lines, chirp, convolved, radices, roots
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen.limits import KIB, Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

RADIX = 13
"""The largest prime factor: each result of a step sums up as many items."""
MOST_ROWS = 64
"""Rows of a work-group, whose places lie in local memory, too."""
WORK_ITEMS = 256
LOCAL_BYTES = 40 * KIB, 20 * KIB, 10 * KIB
"""What a work-group declares: two arrays, in four fifths of it, and the places of its rows."""


@lru_cache(maxsize=64)
def items_of(limits: Limits, pair_bytes: int) -> int:
    """Return the numbers of an array in local memory, 0 where the device has too little."""
    fits = (size for size in LOCAL_BYTES if size <= limits.local_bytes)
    return next(fits, 0) * 4 // 5 // (2 * pair_bytes)


def _is_chirped(n: int) -> bool:
    return max(radices(n), default=1) > RADIX


@lru_cache(maxsize=1024)
def is_short(n: int, limits: Limits, dtype: torch.dtype) -> bool:
    """Say whether one launch of a device transforms rows of `n` numbers whose parts are `dtype`."""
    most = items_of(limits, 2 * dtype.itemsize)
    return 0 < n <= most and (not _is_chirped(n) or convolved(n) <= most)


def launch(x: Tensor, out: Tensor, form: Form, lines: Lines, twist: Tensor | None) -> None:
    """Enqueue the transforms of lines; as `fft_short.lines`."""
    run = _prepared(x.get_device(), form, lines)
    more = [] if twist is None else [twist]
    if _is_chirped(form.n):
        more += chirp(form.n, convolved(form.n), form.sign, form.dtype, x.device)
        of_steps = roots(convolved(form.n), -1, form.dtype, x.device)
    else:
        of_steps = roots(form.n, form.sign, form.dtype, x.device)
    tables = (of_steps, *more)
    run(x.data_ptr(), out.data_ptr(), *(table.data_ptr() for table in tables))


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(device: int, form: Form, lines: Lines) -> KernelLaunch:
    """Return the launch of all lines."""
    limits, is_chirped = devices()[device].limits, _is_chirped(form.n)
    outer, along = lines.outer, lines.along
    real = "float" if form.dtype is torch.float32 else "double"
    source, target = form.kinds
    items = items_of(limits, 2 * form.dtype.itemsize)
    length = convolved(form.n) if is_chirped else form.n
    work_items = min(WORK_ITEMS, limits.max_work_group)
    text = rendered(
        "fft_groups", package="ocl_backend", real=real, items=items, most_rows=MOST_ROWS,
        work_items=work_items, source=source, target=target, twisted=form.twisted,
        chirped=is_chirped, rows_fastest=min(map(abs, along)) > 1, outer=len(outer),
    )  # fmt: skip
    rows = int(np.prod([dim[0] for dim in outer])) if outer else 1
    share = min(MOST_ROWS, items // length)
    size, number = form.dtype.itemsize, np.float32 if real == "float" else np.float64

    tables = 1 + form.twisted + 2 * is_chirped
    code = sum(radix << 6 * place for place, radix in enumerate(radices(length)))
    arguments: list[Argument] = [
        *(Pointer(size) for size in (size, size, *[2 * size] * tables)),
        *map(np.int32, (rows, share, form.n, form.kept, length)), np.uint64(code),
        *map(np.int64, along), number(form.sign), number(form.scale),
    ]  # fmt: skip
    for count, *strides in outer:
        arguments += [np.int32(count), *map(np.int64, strides)]
    groups = ceil_div(rows, share)
    return prepare(device, text, "fft_groups", (groups * work_items,), arguments, (work_items,))
