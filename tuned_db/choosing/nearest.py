"""The distance between two problems: how well a measurement of one can serve the other.

It knows no record; `tuned_db.choosing.chooser` decides which candidates are compared.
"""

from __future__ import annotations

from math import log2
from operator import ne, sub
from typing import NamedTuple

from oclgen.limits import DeviceInfo
from oclgen.problem import AttentionProblem, ConvProblem, GemmProblem, PackedProblem, Problem

SMALL = 0.125
"""Weight of what changes the kernel a little: padding, dilation, bias, activation, residual."""
ALIKE = 0.5
"""Distance up to which two problems differ only in an epilogue or a few rows."""
NEAR = 4.0
"""Distance up to which a record is trusted before less closely related devices are asked: a
factor of 16 over all sizes, as between neighbouring stages of a ResNet."""


FEW_QUERIES = {"fp32": 16, "half": 4}
"""Queries of attention up to which time is that of reading keys and values, however many heads.
More are faster on matrix units, which fp32 hardly gains from."""
FEW_ROWS = 8
"""Rows up to which the time of a product with packed weights is that of reading these."""
HALVES = {"fp16": "half", "bf16": "half"}
"""Dtypes of convolutions that differ in no size and no count of operations."""


def kind_of(problem: Problem) -> tuple[object, ...]:
    """Return what decides the algorithm; problems of different kinds are never compared.

    For products that is the dtype, both transposes and whether there is a batch; for attention
    dtype (the two halves are one), direction, and whether there are few queries; for products with
    packed weights the format and whether there are few rows; for convolutions
    dtype (the two halves are one), direction, layout, dense, grouped or depthwise, and pointwise,
    3x3 at stride 1, or any other.
    """
    if isinstance(problem, GemmProblem):
        return ("gemm", problem.dtype, problem.trans_a, problem.trans_b, problem.batch > 1)
    if isinstance(problem, AttentionProblem):
        dtype = HALVES.get(problem.dtype, problem.dtype)
        return ("attention", dtype, problem.direction, problem.queries <= FEW_QUERIES[dtype])
    if isinstance(problem, PackedProblem):
        return ("packed", problem.format, problem.m <= FEW_ROWS)
    how = (HALVES.get(problem.dtype, problem.dtype), problem.direction, problem.layout)
    return ("conv", *how, _grouping(problem), _window(problem))


class Place(NamedTuple):
    """Where a problem lies among those of its kind: logarithms of sizes to base 2, and details."""

    sizes: tuple[float, ...]
    details: tuple[object, ...]

    def distance(self, other: Place) -> float:
        """Return how far apart two problems of one kind are: 0 for equal ones.

        The sum of |log2 of the ratio| over the sizes, so twice as large in one size is 1 and half
        as large is as far; padding, dilation and epilogue count by `SMALL` per difference.
        """
        apart: float = sum(map(abs, map(sub, self.sizes, other.sizes)))
        differences: int = sum(map(ne, self.details, other.details))
        return apart + SMALL * differences


def place_of(problem: Problem) -> Place:
    """Return where a problem lies among those of its kind."""
    return Place(tuple(map(log2, _sizes(problem))), _details(problem))


def distance(one: Problem, other: Problem) -> float:
    """Return how far apart two problems of one kind are, as `Place.distance`."""
    return place_of(one).distance(place_of(other))


def _sizes(problem: Problem) -> tuple[int, ...]:
    if isinstance(problem, GemmProblem):
        return (problem.m, problem.n, problem.k, problem.batch)
    if isinstance(problem, AttentionProblem):
        return (
            problem.batch, problem.heads, problem.kv_heads, problem.queries, problem.keys,
            problem.head_dim, problem.value_dim,
        )  # fmt: skip
    if isinstance(problem, PackedProblem):
        return (problem.m, problem.n, problem.k)
    return (
        problem.batch,
        problem.in_channels,
        problem.out_channels,
        problem.out_h,
        problem.out_w,
        problem.kernel_h,
        problem.kernel_w,
        problem.stride_h,
        problem.stride_w,
        problem.groups,
    )


def _details(problem: Problem) -> tuple[object, ...]:
    if isinstance(problem, GemmProblem):
        return (problem.shared_a, problem.shared_b, problem.ragged, *_epilogue(problem))
    if isinstance(problem, AttentionProblem):
        hidden = (problem.causal, problem.window > 0, problem.mask, problem.dropout)
        return (problem.dtype, *hidden)
    if isinstance(problem, PackedProblem):
        return (problem.dtype,)
    dilation = (problem.dilation_h, problem.dilation_w)
    return (problem.dtype, problem.pad_h, problem.pad_w, *dilation, *_epilogue(problem))


def _epilogue(problem: GemmProblem | ConvProblem) -> tuple[object, ...]:
    return (problem.bias, problem.activation, problem.residual)


def _grouping(problem: ConvProblem) -> str:
    if problem.groups == 1:
        return "dense"
    return "depthwise" if problem.groups == problem.in_channels else "grouped"


def _window(problem: ConvProblem) -> str:
    if (problem.stride_h, problem.stride_w, problem.dilation_h, problem.dilation_w) != (1,) * 4:
        return "other"
    if (problem.kernel_h, problem.kernel_w) == (1, 1) and problem.pad_h == problem.pad_w == 0:
        return "pointwise"
    return "3x3" if (problem.kernel_h, problem.kernel_w) == (3, 3) else "other"


def without_driver(info: DeviceInfo) -> tuple[object, ...]:
    """Return what names one device, whatever its driver."""
    return (info.name, info.vendor, info.kind, info.architecture, info.runtime, info.compute_units)
