"""Operators that lay items out anew: concatenation, flips, masks turned into positions.

Views are the shim's; padding, repeating and stacking reach these or `copy_` by torch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, reduce
from itertools import accumulate
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import apart, into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.dimensions import axis_of, broadcast_shapes, contiguous_strides
from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, launch, prepare_elementwise
from ocl_backend.kernels.gathered_rows import BITS
from ocl_backend.kernels.places import Places
from ocl_backend.kernels.scatter import read
from ocl_backend.kernels.selected import are_selected, items, positions, scatter
from ocl_backend.kernels.tensor_lists import FLOATS, are_alike, copy_all
from ocl_backend.kernels.vectors import CPU_WIDTHS
from ocl_backend.ops.fused.expressions import VALUES, Expression, Loosely, Read, fits
from ocl_backend.ops.reduce.reductions import dims_of
from ocl_backend.runtime.launch import MOST_LAUNCHES, KernelLaunch, LaunchSequence
from ocl_backend.runtime.launch import Part as LaunchPart
from oclgen.opencl.device import devices

MOST_PARTS = 4
"""Parts of a concatenation that other calls' kernels take in."""


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors along `dim`; dtypes are promoted, and empty 1-D tensors ignored as in torch."""
    parts = [part for part in tensors if tuple(part.shape) != (0,)]
    dtype = reduce(torch.promote_types, (part.dtype for part in tensors))
    if not parts:
        return torch.empty(0, dtype=dtype, device=tensors[0].device)  # along any dimension
    (axis,) = dims_of(dim, parts[0].dim()) or (0,)
    shape = list(parts[0].shape)
    for part in parts[1:]:
        if [*part.shape[:axis], *part.shape[axis + 1 :]] != [*shape[:axis], *shape[axis + 1 :]]:
            raise RuntimeError(
                f"cat along {dim}: sizes {tuple(parts[0].shape)} and {tuple(part.shape)} differ "
                "in another dimension"
            )
    shape[axis] = sum(part.shape[axis] for part in parts)
    out = torch.empty(
        shape, dtype=dtype, device=parts[0].device, memory_format=common_format(parts)
    )
    parts = [part for part in parts if part.numel()]
    ends = accumulate(part.shape[axis] for part in parts)
    places = [
        out.narrow(axis, end - part.shape[axis], part.shape[axis])
        for end, part in zip(ends, parts, strict=True)
    ]
    rule = _joining(parts, axis, out)
    if rule is not None:
        rule.enqueue([tensor.data_ptr() for tensor in (*parts, *places)])
        return out
    many = len(parts) > MOST_PARTS and dtype in FLOATS
    if many and are_alike([parts, places], out.get_device(), [dtype, dtype]):
        copy_all(parts, places)
        return out
    for part, place in zip(parts, places, strict=True):
        _copy(part, place)
    return out


def _joining(parts: Sequence[Tensor], axis: int, out: Tensor) -> Loosely | None:
    """Return the rule of a concatenation whose parts have its dtype and device."""
    like = {(part.dtype, part.device) for part in parts}
    if not 2 <= len(parts) <= MOST_PARTS or like != {(out.dtype, out.device)}:
        return None
    lies = tuple((tuple(part.shape), part.stride()) for part in parts)
    return _rule_of_joining(out.get_device(), out.dtype, lies, axis, tuple(out.shape), out.stride())


def _needs_single_items(device: int, cat: Expression) -> bool:
    """Say whether a processor would compute a long concatenation's chain one item at a time.

    A vector then lies in several parts. Calls by themselves are vectors: gradients of `glu` of
    1,839,802 items took one launch 20 ms, and take several 4 (EPYC, Zen 3).
    """
    if devices()[device].limits.kind != "cpu" or prod(cat.out.shape) <= CHUNK:
        return False
    is_last = cat.axis == len(cat.out.shape) - 1
    return is_last and any(part.shape[-1] % CPU_WIDTHS[-1] for part in cat.inputs)


@lru_cache(maxsize=MOST_LAUNCHES)
def _rule_of_joining(
    device: int, dtype: torch.dtype, lies: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...],
    axis: int, shape: tuple[int, ...], strides: tuple[int, ...],
) -> Loosely | None:  # fmt: skip
    reads = tuple(Read(f"part{i}", i, dtype, *lie) for i, lie in enumerate(lies))
    out = Read("out", len(lies), dtype, shape, strides)
    expression = Expression("cat", reads, out, VALUES.get(dtype, ""), axis=axis)
    if not expression.value or not fits(expression) or _needs_single_items(device, expression):
        return None
    count = len(reads)
    sequence = []
    for group in _copied_at_once(reads):
        kernel, steps = _copying(dtype, dtype, len(group)), [reads[i].strides for i in group]
        lies_there = (*steps, *[strides] * len(group))
        copy = prepare_elementwise(device, kernel, reads[group[0]].shape, lies_there)
        if isinstance(copy, KernelLaunch):  # no part is empty, so each is one
            sequence.append(LaunchPart(copy, (*group, *(count + i for i in group))))
    return Loosely("cat", device, LaunchSequence(device, sequence, 2 * count), expression)


def _copied_at_once(reads: Sequence[Read]) -> Sequence[tuple[int, ...]]:
    """Return which parts a launch copies: all, if their shapes are equal, or else one."""
    if len({read.shape for read in reads}) == 1:
        return [tuple(range(len(reads)))]
    return [(i,) for i in range(len(reads))]


def _copy(source: Tensor, target: Tensor) -> None:
    """Copy in vectors: a part of a concatenation is long runs with gaps."""
    if source.device != target.device:
        raise RuntimeError(
            f"cat: expected all tensors to be on the same device, but found {source.device} and "
            f"{target.device}. Move them with .to()."
        )
    launch(_copying(source.dtype, target.dtype), target.shape, (source, target))


def _copying(source: torch.dtype, target: torch.dtype, count: int = 1) -> Kernel:
    """Return the kernel that copies `count` tensors of one shape: sources, then targets."""
    sources = [Operand(f"self{i}", source) for i in range(count)]
    targets = [Operand(f"out{i}", target, "output", result=f"self{i}") for i in range(count)]
    return Kernel("copy", dtype_of(target).value, (*sources, *targets), "")


def common_format(tensors: Sequence[Tensor]) -> torch.memory_format:
    """Return channels_last if the strides of all tensors are ordered so, parts of images, too."""
    if all(t.dim() == 4 and not t.is_contiguous() and _is_ordered_last(t) for t in tensors):
        return torch.channels_last
    return torch.contiguous_format


def _is_ordered_last(x: Tensor) -> bool:
    """Say whether channels are the nearest items of x [n, c, h, w], then columns, then rows."""
    if x.is_contiguous(memory_format=torch.channels_last):
        return True
    least, strides = 0, x.stride()
    for dim in (1, 3, 2, 0):
        if not x.shape[dim] or strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(x.shape[dim], 1)
    return True


def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Reverse the order of items along `dims`."""
    flipped = {axis_of(dim, x.dim()) for dim in dims}
    if len(flipped) < len(dims):
        raise RuntimeError(f"a dimension appears twice in {[*dims]}")
    out = torch.empty_like(x)
    if not x.numel():
        return out
    steps = [-step if dim in flipped else step for dim, step in enumerate(x.stride())]
    begin = x[tuple(slice(-1, None) if dim in flipped else slice(1) for dim in range(x.dim()))]
    launch(_flipping(BITS.get(x.itemsize, x.dtype)), x.shape, (begin, out), {"self": steps})
    return out


@cache
def _flipping(dtype: torch.dtype) -> Kernel:
    operands = Operand("self", dtype), Operand("out", dtype, "output")
    return Kernel("flip", dtype_of(dtype).value, operands, "const T out = self;")


def nonzero(x: Tensor) -> Tensor:
    """Return the positions of items that are not zero, [count, dims] int64; waits for the count.

    Neighbours are positions along one dimension, as on the CPU: sparse formats take them apart.
    """
    if x.dim() and are_selected(x):
        return positions(x, x.shape).t()
    flat = _positions(x)
    steps = contiguous_strides(x.shape)
    columns = [flat // step % size for step, size in zip(steps, x.shape, strict=True)]
    return torch.stack(columns).t() if columns else flat.new_empty((len(flat), 0))


def _positions(x: Tensor) -> Tensor:
    """Return the row-major positions of items that are not zero."""
    mask = (x != 0).reshape(-1)
    if not mask.numel():
        return torch.empty(0, dtype=torch.int64, device=x.device)
    ranks = mask.cumsum(0)
    flat = torch.empty(int(ranks[-1]), dtype=torch.int64, device=x.device)
    if flat.numel():
        given = (mask, ranks, flat)
        launch(SELECT, mask.shape, given, {"position": (1,), "out": (0,)})
    return flat


SELECT = Kernel(
    "select_positions",
    "long",
    (
        Operand("position", role="position"),
        Operand("mask", torch.bool),
        Operand("rank", torch.int64),
        Operand("out", torch.int64, "address"),
    ),
    """if (mask)
    STORE_out(rank - 1, position);""",
    scalar_only=True,
)


def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Return the first `size` positions of items that are not zero, filled up; never waits."""
    mask = (x != 0).reshape(-1)
    ranks = mask.cumsum(0) - 1
    # one place more, for all that are zero or too many
    target = torch.where(mask, ranks.clamp(max=size), size)
    flat = torch.full((size + 1,), -1, dtype=torch.int64, device=x.device)
    flat.scatter_(0, target, torch.arange(mask.numel(), device=x.device))
    flat = flat[:size]
    columns = torch.unravel_index(flat.clamp(min=0), x.shape) if x.dim() else ()
    if not columns:
        return flat.new_empty((size, 0))
    return torch.stack(columns, 1).masked_fill_((flat < 0).unsqueeze(1), fill_value)


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """Return the items of x where `mask` holds, both broadcast, in row-major order."""
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"masked_select by {mask.dtype}; give a mask of bools")
    if x.shape == mask.shape and are_selected(x):
        return items(x, mask)
    shape = broadcast_shapes(x.shape, mask.shape)
    if are_selected(x):
        return items(x.expand(shape), mask.expand(shape))
    return x.expand(shape).reshape(-1).index_select(0, _positions(mask.expand(shape)))


def masked_scatter_(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Write the first items of `source` where `mask` holds, in row-major order."""
    if mask.dtype is not torch.bool or source.dtype is not x.dtype:
        raise RuntimeError(f"masked_scatter_ by {mask.dtype} of {source.dtype} to {x.dtype}")
    mask = mask.expand(x.shape)
    if source.numel() and scatter(x, mask, source):
        return x
    ranks = (mask.reshape(-1).cumsum(0) - 1).clamp_(min=0).view(x.shape)
    if not source.numel():
        return x

    def ranked(flat: Tensor) -> Places:
        still, sizes = (0,) * ranks.dim(), (flat.numel(),)
        return Places(tuple(ranks.shape), still, (ranks,), sizes, (1,), (0,), "masked_scatter")

    given = read(source.reshape(-1).contiguous(), ranked, torch.empty_like(ranks, dtype=x.dtype))
    return x.copy_(torch.where(mask, given, x))


OPERATORS: dict[str, Callable[..., Any]] = {
    "cat": cat,
    "cat.out": apart(into(cat)),
    "flip": flip,
    "narrow_copy.out": into(torch.ops.aten.narrow_copy.default),
    "nonzero": nonzero,
    "nonzero.out": into(nonzero, casts=False),
    "nonzero_static": nonzero_static,
    "nonzero_static.out": into(nonzero_static),
    "masked_select": masked_select,
    "masked_select.out": apart(into(masked_select, casts=False)),
    "masked_scatter_": masked_scatter_,
}
"""Implementations by aten name."""
