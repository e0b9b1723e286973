"""Elementwise kernels over lists of tensors: a launch takes up to 64 tensors, in equal blocks.

An operator over a list would else spend its time on launches. What is computed is a `Kernel` of
`elementwise`; the tensors of one call of it, a row, lie densely and in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar
from ocl_backend.kernels.item_blocks import block_of_items
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import render

MOST_TENSORS = 64
"""Of a launch: a kernel's text grows with them."""
BLOCK = {"cpu": 16384, "gpu": 4096}
"""Items per work-group: a CPU's walks them alone, a GPU's shares them."""
FLOATS = torch.float32, torch.float16, torch.bfloat16, torch.float64
"""Dtypes of lists that have kernels."""
OWN_BYTES = 12
"""Arguments of each tensor besides pointers and numbers: its work-groups' end, and its size."""


def block_and_items(device: int) -> tuple[int, int]:
    """Return the items of a work-group's block, and its work-items."""
    limits = devices()[device].limits
    if limits.kind == "cpu":
        return BLOCK["cpu"], 1
    return BLOCK["gpu"], min(256, limits.max_work_group)


@cache
def most_at_once(device: int, each: int, together: int) -> int:
    """Return how many tensors a launch has arguments for.

    Args:
        device: its index.
        each: bytes of a tensor's arguments.
        together: bytes of the arguments that are there once.
    """
    room = devices()[device].limits.max_argument_bytes - together
    return max(1, min(room // (each + OWN_BYTES), MOST_TENSORS))


def run_on_lists(
    device: int,
    kernel: Kernel,
    shared: Mapping[str, float],
    sizes: Sequence[int],
    rows: Sequence[Sequence[float]],
) -> None:
    """Run a kernel once for each row.

    Args:
        device: its index.
        kernel: what is computed.
        shared: by the parameter's name, what is the same for all rows: addresses of single items,
            and numbers.
        sizes: items of each row's tensors; none is 0.
        rows: of each row the values of all other parameters: addresses and numbers.
    """
    names = frozenset(shared)
    once = [shared[p.name] for p in kernel.parameters if p.name in names]
    at_once = most_at_once(device, *_bytes(kernel, names))
    for start in range(0, len(rows), at_once):
        batch = rows[start : start + at_once]
        count = min(1 << (len(batch) - 1).bit_length(), at_once)
        launch = _prepared(device, kernel, names, count, tuple(sizes[start : start + at_once]))
        padding = [0] * len(batch[0]) * (count - len(batch))
        launch(*once, *(value for row in batch for value in row), *padding)


@cache
def _bytes(kernel: Kernel, shared: frozenset[str]) -> tuple[int, int]:
    """Return the bytes of arguments that each tensor has, and of those that are there once."""
    taken = {p.name: 8 if isinstance(p, Scalar) else 16 for p in kernel.parameters}
    once = sum(taken[name] for name in shared)
    return sum(taken.values()) - once, once


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, kernel: Kernel, shared: frozenset[str], count: int, sizes: tuple[int, ...]
) -> KernelLaunch:
    block, local_items = block_and_items(device)
    text = _source(kernel, shared, count, block, local_items, 16 if local_items == 1 else 4)
    ends = ends_of(sizes, block, count)
    once, each = (
        [
            p.argument if isinstance(p, Scalar) else Pointer(p.dtype.itemsize)
            for p in kernel.parameters
            if (p.name in shared) == is_shared
        ]
        for is_shared in (True, False)
    )
    padded = (*sizes, *[0] * (count - len(sizes)))
    own = [n for pair in zip(ends, padded, strict=True) for n in (np.int32(pair[0]), pair[1])]
    numbers = [n if isinstance(n, np.int32) else np.int64(n) for n in own]
    arguments: list[Argument] = [*once, *each * count, *numbers]
    items = (ends[-1] * local_items,)
    return prepare(device, text, f"{kernel.name}_list", items, arguments, (local_items,))


def ends_of(sizes: Sequence[int], block: int, count: int) -> list[int]:
    """Return how many work-groups there are up to the end of each of `count` tensors.

    Args:
        sizes: items of the tensors that there are; the others have no work-group.
        block: items of a work-group.
        count: tensors of the kernel's text.
    """
    ends = [*accumulate(ceil_div(size, block) for size in sizes)]
    return ends + ends[-1:] * (count - len(ends))


def choice(count: int, found: Callable[[int], Sequence[str]], first: int = 0) -> list[str]:
    """Return the lines that find the tensor of `group` by halves: few tests, whatever `count` is.

    Args:
        count: tensors to choose from.
        found: the statements for a tensor.
        first: the number of the first one.
    """
    if count == 1:
        return [*found(first)]
    low = count // 2
    return [
        f"if (group < end_{first + low - 1}) {{",
        *(f"    {line}" for line in choice(low, found, first)),
        "} else {",
        *(f"    {line}" for line in choice(count - low, found, first + low)),
        "}",
    ]


@cache
def _source(
    kernel: Kernel, shared: frozenset[str], count: int, block: int, local_items: int, width: int
) -> str:
    def found(t: int) -> list[str]:
        before = f"end_{t - 1}" if t else "0"
        lines = [f"first = (long)(group - {before}) * {block};", f"size = size_{t};"]
        for p in kernel.parameters:
            if p.name not in shared and isinstance(p, Scalar):
                lines.append(f"{p.name}_given = {p.name}_given_{t};")
            elif p.name not in shared:
                lines.append(f"{p.name}_data = {p.name}_data_{t} + {p.name}_start_{t};")
        return lines

    inner = ["0" if operand.name in shared else "1" for operand in kernel.operands]
    width = 1 if kernel.scalar_only else width
    types = dict.fromkeys(operand.type for operand in kernel.operands)
    return render(
        "tensor_lists",
        package="ocl_backend",
        kernel=kernel,
        prelude="".join(vectors.prelude(dtype, width) for dtype in types),
        shared=shared,
        count=count,
        block=block,
        local_items=local_items,
        width=width,
        block_of=lambda width: block_of_items(kernel, inner, width),
        choice=choice(count, found),
    )


def run_on_tensors(
    device: int, kernel: Kernel, shared: dict[str, float], leads: Sequence[Tensor],
    columns: Sequence[Sequence[float]],
) -> None:  # fmt: skip
    """Run a kernel once for each row of tensors that have items.

    Args:
        device: its index.
        kernel: what is computed.
        shared: as `run_on_lists` takes it.
        leads: a tensor of each row.
        columns: of each parameter that is not shared, in order, the values of all rows.
    """
    sizes = [tensor.numel() for tensor in leads]
    rows: list[Sequence[float]] = [*zip(*columns, strict=True)]
    if 0 in sizes:
        rows = [row for row, size in zip(rows, sizes, strict=True) if size]
        sizes = [size for size in sizes if size]
    if rows:
        run_on_lists(device, kernel, shared, sizes, rows)


def are_alike(
    lists: Sequence[Sequence[Tensor]], device: int, dtypes: Sequence[torch.dtype]
) -> bool:
    """Say whether the tensors of each row have one shape, and lie densely and in one order.

    Args:
        lists: of tensors, of one length.
        device: where all have to be.
        dtypes: that each list has to have.
    """
    leads = [(x, x.shape, x.is_contiguous()) for x in lists[0]]
    for tensors, dtype in zip(lists, dtypes, strict=True):
        for x, (lead, shape, dense) in zip(tensors, leads, strict=True):
            if x.dtype is not dtype or x.get_device() != device or x.shape != shape:
                return False
            if x.is_contiguous() is not dense:
                return False
            if not dense and (x.stride() != lead.stride() or not _has_no_gaps(x)):
                return False
    return True


def _has_no_gaps(x: Tensor) -> bool:
    wanted = 1
    for step, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size != 1 and step != wanted:
            return False
        wanted *= size
    return True


def copy_all(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Copy tensors to others of their shapes, where `are_alike` says that they lie alike.

    Args:
        sources: of one of `FLOATS`.
        targets: of one of `FLOATS`, on the sources' device.
    """
    columns = [[tensor.data_ptr() for tensor in each] for each in (sources, targets)]
    kernel = _copying(sources[0].dtype, targets[0].dtype)
    run_on_tensors(targets[0].get_device(), kernel, {}, targets, columns)


@lru_cache(maxsize=64)
def _copying(source: torch.dtype, target: torch.dtype) -> Kernel:
    operands = Operand("source", source), Operand("out", target, "output", result="source")
    return Kernel("copy", dtype_of(target).value, operands, "")
