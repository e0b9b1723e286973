"""`index_copy_` as a launch that is held back, so that other calls' kernels can take it in."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ocl_backend.kernels.dimensions import axis_of
from ocl_backend.kernels.fixed_order_scatter import is_wanted
from ocl_backend.kernels.places import Places
from ocl_backend.kernels.scatter import writing
from ocl_backend.ops.fused import expressions
from ocl_backend.ops.fused.expressions import VALUES, Expression, Loosely, fits, lying
from ocl_backend.runtime.launch import MOST_LAUNCHES, Prepared


def held_copy(
    x: Tensor, dim: int, index: Tensor, source: Tensor, places: Places
) -> tuple[Loosely, list[float]] | None:
    """Return the rule of an `index_copy_` that other calls' kernels can take in, and its values."""
    alike = x.dtype is source.dtype and x.dtype in VALUES and places.shape == tuple(source.shape)
    whole = index.dim() == 1 and index.dtype is torch.int64 and x.dim() > 0
    if not (alike and whole) or is_wanted(x, "assign"):
        return None
    run, values = writing(x, places, source, "assign")
    lies = tuple((tuple(t.shape), t.stride()) for t in (x, index, source))
    rule = _copying(x.get_device(), x.dtype, lies, axis_of(dim, x.dim()), run)
    return None if rule is None else (rule, values)


@lru_cache(maxsize=MOST_LAUNCHES)
def _copying(
    device: int, dtype: torch.dtype, lies: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...],
    axis: int, run: Prepared,
) -> Loosely | None:  # fmt: skip
    out, index, source = lies
    reads = lying("source", 8, dtype, *source), lying("index", 1, torch.int64, *index)
    numbers = tuple(
        expressions.Number(name, place, "long")
        for name, place in (("dim", 4), ("operator", 5), ("wraps", 6), ("faults", 7))
    )
    made = Expression(
        "index_copy", reads, lying("out", 0, dtype, *out), VALUES[dtype], "", numbers, axis,
        in_place=True,
    )  # fmt: skip
    last = axis == len(out[0]) - 1  # neighbours would go to places of their own
    return None if last or not fits(made) else Loosely("index_copy", device, run, made)
