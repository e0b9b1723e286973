"""Sums of products of three tensors, as of `torch.nn.Bilinear` and its gradients.

torch multiplies the first two for one output at a time, with a product for each. Here the pair that
takes the fewest multiplications is summed first, for all outputs at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from string import ascii_letters

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import STORAGE

COMPOSED = torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional
Dims = tuple[int, ...]
ORDERS = (1, 2, 0), (0, 1, 2), (0, 2, 1)
"""The pair that is summed first, and the last tensor. Of those with as many multiplications the
first serves: it sums over the last dimension of a layer's weights, which are read as they lie."""


def trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor,
    expand1: Sequence[int], expand2: Sequence[int], expand3: Sequence[int],
    sumdim: Sequence[int], unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    """Return the product of three tensors, summed over `sumdim`.

    Args:
        i1: a tensor of the dimensions that `expand1` lacks.
        i2: the same for `expand2`.
        i3: the same for `expand3`.
        expand1: dimensions along which i1 is repeated.
        expand2: the same of i2.
        expand3: the same of i3.
        sumdim: dimensions that are summed over.
        unroll_dim: along which torch takes one item at a time.
    """
    tensors, expands = (i1, i2, i3), (expand1, expand2, expand3)
    rank = i1.dim() + len(expand1)
    own = [tuple(d for d in range(rank) if d not in expand) for expand in expands]
    if not _is_served(tensors, own, (*expand1, *expand2, *expand3, *sumdim, unroll_dim), rank):
        composed: Tensor = torch.ops.aten._trilinear.default._op_dk(
            COMPOSED, *tensors, *expands, sumdim, unroll_dim
        )
        return composed
    sizes = dict(
        pair for dims, tensor in zip(own, tensors, strict=True)
        for pair in zip(dims, tensor.shape, strict=True)
    )  # fmt: skip
    kept = tuple(d for d in range(rank) if d not in sumdim)
    first, second, last = min(
        ORDERS, key=lambda order: _multiplications([own[at] for at in order], kept, sizes)
    )
    between = _between(own[first], own[second], own[last], kept)
    pair = torch.einsum(
        f"{_text(own[first])},{_text(own[second])}->{_text(between)}",
        tensors[first], tensors[second],
    )  # fmt: skip
    summed: Tensor = torch.einsum(
        f"{_text(between)},{_text(own[last])}->{_text(kept)}", pair, tensors[last]
    )
    return summed


def _is_served(
    tensors: Sequence[Tensor], own: Sequence[Dims], dims: Sequence[int], rank: int
) -> bool:
    """Say whether products of the device compute it: floats of one dtype, each dimension in some.

    Sizes that are broadcast, and wrong ones, are torch's.
    """
    if len({tensor.dtype for tensor in tensors}) > 1 or tensors[0].dtype not in STORAGE:
        return False
    if not all(0 <= d < rank for d in dims):
        return False
    if any(len(each) != tensor.dim() for each, tensor in zip(own, tensors, strict=True)):
        return False
    sizes: dict[int, int] = {}
    for each, tensor in zip(own, tensors, strict=True):
        if any(sizes.setdefault(d, n) != n for d, n in zip(each, tensor.shape, strict=True)):
            return False
    return len(sizes) == rank <= len(ascii_letters)


def _between(first: Dims, second: Dims, last: Dims, kept: Dims) -> Dims:
    """Return the dimensions of a pair's product that the result or the last tensor needs."""
    return tuple(d for d in sorted({*first, *second}) if d in last or d in kept)


def _multiplications(own: Sequence[Dims], kept: Dims, sizes: dict[int, int]) -> int:
    """Return how many there are if the first two are multiplied first."""
    first, second, last = own
    between = _between(first, second, last, kept)
    return prod(sizes[d] for d in {*first, *second}) + prod(sizes[d] for d in {*between, *last})


def _text(dims: Dims) -> str:
    return "".join(ascii_letters[d] for d in dims)


OPERATORS = {"_trilinear": trilinear, "_trilinear.out": into(trilinear)}
"""Implementations by aten name."""
