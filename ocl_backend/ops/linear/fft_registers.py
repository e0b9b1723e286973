"""Fourier transforms of lines on GPUs, one launch each: work-items keep the numbers in registers.

The text has the length in it, so that its butterflies are as long as the registers allow; lines,
strides, direction and scale are arguments. A length with a prime factor above `fft_plans.PRIMES` is
a convolution with a chirp.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.ops.linear import fft_butterflies, fft_plans
from ocl_backend.ops.linear.fft_plans import Split
from ocl_backend.ops.linear.fft_tables import (
    TABLES,
    Form,
    Lines,
    Parts,
    chirp,
    on_device,
    roots,
)  # fmt: skip
from ocl_backend.runtime import capture
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

STAGED = 8
"""Fewer work-items of a line read less than 64 bytes side by side: the group reads all lines."""


HALVED = (("real", "complex"), -1), (("half", "real"), 1)
"""Kinds and sign of what is transformed as half as many complex numbers, where n is even."""
MOST_LENGTHS = 128
"""Lengths that have texts of their own in a process; each takes a compiler 0.2 s and more."""
_lengths: set[int] = set()


class Core(NamedTuple):
    """What is transformed of a line: `numbers` complex ones, half as many as real ones if halved.

    `back` is the second transform of a convolution with a chirp.
    """

    numbers: int
    is_halved: bool
    one: Split
    back: Split | None


class Groups(NamedTuple):
    """How a work-group is used: lines, parts that local memory has at a time, and ways of lines."""

    lines: int
    parts: int
    reads_across: bool
    writes_across: bool
    reads_staged: bool
    writes_staged: bool


@lru_cache(maxsize=1024)
def core_of(
    n: int, kinds: tuple[Parts, Parts], sign: int, limits: Limits, part_bytes: int
) -> Core | None:
    """Return what one launch transforms of lines of `n` numbers, None where it cannot."""
    if n < 1:
        return None
    if n % 2 == 0 and (kinds, sign) in HALVED:
        core = _core(n // 2, True, limits, part_bytes)
        both = core.one.pitch * 2 * part_bytes if core else 0
        if core and (kinds[1] == "real" or both <= limits.most_local_bytes):
            return core
    return _core(n, False, limits, part_bytes)


def _core(numbers: int, is_halved: bool, limits: Limits, part_bytes: int) -> Core | None:
    one = fft_plans.whole(numbers, limits, part_bytes)
    if one is not None:
        return Core(numbers, is_halved, one, None)
    one = fft_plans.convolution(numbers, limits, part_bytes)
    if one is None:
        return None
    radices = tuple(step.radix for step in reversed(one.passes))
    return Core(numbers, is_halved, one, fft_plans.split(radices, limits.max_work_group))


@lru_cache(maxsize=1024)
def groups_of(core: Core, form: Form, along: tuple[int, int], limits: Limits) -> Groups:
    """Return how work-groups transform lines whose numbers are `along` apart."""
    size, one = form.dtype.itemsize, core.one
    reads_across, writes_across = (abs(step) > 1 for step in along)
    is_thin = one.work_items < STAGED and core.back is None
    reads_staged = is_thin and not reads_across and one.length > 1
    is_split = core.is_halved and form.kinds[0] == "real"
    writes_staged = is_split or (is_thin and not writes_across and one.length > 1)
    across = reads_across or writes_across
    wanted = one.pitch * 2 * size * (fft_plans.FEWEST_BESIDE if across else 1)
    both = wanted <= fft_plans.room_of_lines(limits)
    parts = 2 if both or reads_staged or writes_staged else 1
    lines = fft_plans.lines_of_group(one, parts * size, limits, across)
    return Groups(lines, parts, reads_across, writes_across, reads_staged, writes_staged)


def has_text(n: int) -> bool:
    """Say whether lines of `n` numbers have a text of their own: the first lengths that ask."""
    if len(_lengths) < MOST_LENGTHS:
        _lengths.add(n)
    return n in _lengths


def launch(x: Tensor, out: Tensor, form: Form, lines: Lines, twist: Tensor | None) -> None:
    """Enqueue the transforms of lines; as `fft_short.lines`."""
    run, core = _prepared(x.get_device(), form, lines)
    tables = [_factors(core.one.passes, form.dtype, x.device)]
    if core.is_halved:
        tables.append(roots(form.n, -1, form.dtype, x.device))
    if twist is not None:
        tables.append(twist)
    if core.back is not None:
        turns, filtered = chirp(core.numbers, core.one.length, -1, form.dtype, x.device)
        tables += [_factors(core.back.passes, form.dtype, x.device), turns, filtered]
    run(x.data_ptr(), out.data_ptr(), *(table.data_ptr() for table in tables))


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(device: int, form: Form, lines: Lines) -> tuple[KernelLaunch, Core]:
    """Return the launch of all lines, and what it transforms of a line."""
    limits, size = devices()[device].limits, form.dtype.itemsize
    core = core_of(form.n, form.kinds, form.sign, limits, size)
    assert core is not None, "asked before: fft_short.serves"
    grouping = groups_of(core, form, lines.along, limits)
    is_single = form.dtype is torch.float32
    text = rendered(
        "fft_registers", package="ocl_backend", real="float" if is_single else "double",
        suffix="f" if is_single else "", one=core.one, back=core.back, core=core.numbers,
        source=form.kinds[0], target=form.kinds[1], halved=core.is_halved, twisted=form.twisted,
        outer=len(lines.outer), butterfly=fft_butterflies.butterfly, slots=fft_plans.slots,
        pad_shift=fft_plans.PAD_SHIFT, **grouping._asdict(),
    )  # fmt: skip
    rows = int(np.prod([dim[0] for dim in lines.outer])) if lines.outer else 1
    pairs = [size * (1 if kind == "real" else 2) for kind in form.kinds]
    tables = 1 + core.is_halved + form.twisted + 3 * (core.back is not None)
    number = np.float32 if is_single else np.float64
    is_joined = core.is_halved and form.kinds[1] == "real"
    wanted = core.numbers if is_joined else form.kept
    arguments: list[Argument] = [
        *(Pointer(item_bytes) for item_bytes in (*pairs, *[2 * size] * tables)),
        *map(np.int32, (rows, wanted, form.sign > 0)), *map(np.int64, lines.along),
        number(form.scale),
    ]  # fmt: skip
    for count, *strides in lines.outer:
        arguments += [np.int32(count), *map(np.int64, strides)]
    work_items = grouping.lines * core.one.work_items
    groups = ceil_div(rows, grouping.lines)
    sizes = (groups * work_items,), arguments, (work_items,)
    return prepare(device, text, "fft_registers", *sizes), core


@TABLES.of
@capture.aside()
def _factors(
    passes: tuple[fft_plans.Pass, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the factors of all passes but the first, as pairs: by power, then by place."""
    angles = [
        np.outer(fft_plans.slots(step.radix), np.arange(step.done)).ravel()
        / (step.radix * step.done)
        for step in passes
        if step.done > 1
    ]
    turns = np.concatenate(angles) if angles else np.zeros(1)
    return on_device(np.exp(-2j * np.pi * turns), dtype, device)
