"""Lines along one dimension on processors: neighbouring lines are the lanes of vectors.

What is computed of a line alone needs no exchange between lanes then, whatever its items' stride.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import merge
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

INDICES = {"float": "int", "int": "int", "double": "long", "long": "long"}
"""Types of comparisons by what is computed with: other types have no kernels."""

MANY = 8
"""Vectors of lines that are walked together: 512 bytes of floats lie in a row, so that a core asks
for them ahead. Single cache lines that lie far apart took 10 times as long (EPYC, Zen 3)."""


class LineKernel(NamedTuple):
    """What is computed of lines: `line_lanes.cl.mako` says what `body` may use.

    `operands` name the tensors and say which are written; `numbers` are further arguments. A body
    that is `limited` by memory walks several vectors together. `value` is the C type that is
    computed with ("": the first tensor's).
    """

    name: str
    operands: tuple[tuple[str, bool], ...]
    body: str
    numbers: tuple[str, ...] = ()
    limited: bool = False
    value: str = ""


Dims = tuple[tuple[int, ...], ...]
"""Dimensions of lines: each has a size and every tensor's stride."""


def serve(x: Tensor, dim: int, value: str = "") -> bool:
    """Say whether lines of x along `dim` fill vectors of all cores of a processor.

    Args:
        x: what is read.
        dim: along which.
        value: as a kernel has it.
    """
    limits = devices()[x.get_device()].limits
    if limits.kind != "cpu" or not x.dim() or not x.numel():
        return False
    if (value or dtype_of(x.dtype).value) not in INDICES:
        return False
    least = vectors.CPU_WIDTHS[-1]
    is_long = any(size >= least for d, size in enumerate(x.shape) if d != dim)
    return is_long and x.numel() // x.shape[dim] >= least * limits.compute_units


def run(kernel: LineKernel, dim: int, tensors: tuple[Tensor, ...], *numbers: int) -> None:
    """Enqueue a kernel.

    Args:
        kernel: what is computed.
        dim: along which lines go; the first tensor's size there is `size`.
        tensors: in the operands' order, of one shape but along `dim`, of any strides; `serve` says
            that the first one may be given.
        *numbers: the kernel's.
    """
    sizes = tensors[0].shape
    lines = [(n, *(t.stride(d) for t in tensors)) for d, n in enumerate(sizes) if d != dim]
    along = (sizes[dim], *(tensor.stride(dim) for tensor in tensors), *numbers)
    dtypes = tuple(tensor.dtype for tensor in tensors)
    launch = _prepared(tensors[0].get_device(), kernel, dtypes, tuple(lines), along)
    launch(*(tensor.data_ptr() for tensor in tensors))


def _ordered(lines: Dims) -> list[tuple[int, ...]]:
    """Return the fewest dimensions of lines; vectors lie along the last one.

    It is that along which most tensors have neighbours, of such the longest.
    """
    dims = sorted((dim for dim in lines if dim[0] > 1), key=lambda dim: -max(dim[1:]))
    dims = merge(dims)
    long = [dim for dim in dims if dim[0] >= vectors.CPU_WIDTHS[-1]]
    inner = max(long, key=lambda dim: (sum(step == 1 for step in dim[1:]), dim[0]))
    dims.remove(inner)
    return [*dims, inner]


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, kernel: LineKernel, dtypes: tuple[torch.dtype, ...], lines: Dims,
    along: tuple[int, ...],
) -> KernelLaunch:  # fmt: skip
    *outer, inner = _ordered(lines)
    width = next(width for width in vectors.CPU_WIDTHS if width <= inner[0])
    count = prod(dim[0] for dim in outer) * ceil_div(inner[0], width)
    outer = outer or [(1,) + (0,) * len(kernel.operands)]  # one text for one dimension and two
    is_little = MANY * width * along[0] <= vectors.CPU_GROUP_ITEMS  # few vectors need no own text
    many = MANY if kernel.limited and (count >= MANY or is_little) else 1
    kinds = [dtype_of(dtype) for dtype in dtypes]
    steps = ["1" if step == 1 else "s" for step in inner[1:]]
    operands = tuple(
        (name, kind, is_written, step)
        for (name, is_written), kind, step in zip(kernel.operands, kinds, steps, strict=True)
    )
    value = kernel.value or kinds[0].value
    text = rendered(
        "line_lanes", package="ocl_backend", kernel=kernel.name, operands=operands,
        value=value, index=INDICES[value], width=width, many=many,
        outer=len(outer), numbers=kernel.numbers, body=kernel.body,
    )  # fmt: skip
    share = many * max(1, vectors.CPU_GROUP_ITEMS // (width * many * along[0]))
    numbers = (count, share, inner[0], *along, *inner[1:], *(n for dim in outer for n in dim))
    arguments: list[Argument] = [
        *(Pointer(kind.item_bytes) for kind in kinds), *map(np.int64, numbers)
    ]  # fmt: skip
    return prepare(device, text, kernel.name, (ceil_div(count, share),), arguments, (1,))
