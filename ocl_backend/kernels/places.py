"""Computed places: which items of a tensor indices name, and OpenCL C that finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.kernels.elementwise import Operand, Role, Scalar


@dataclass(frozen=True, slots=True)
class Places:
    """Items of a tensor: walk `shape` with `strides`, and add index k's value times `steps[k]`.

    `indices` broadcast to `shape`. A value that is not below `sizes[k]` is noted as a fault of
    dimension `dims[k]` by the rule of `operator`, and moved to the nearest item.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    indices: tuple[Tensor, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    dims: tuple[int, ...]
    operator: str

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The indices' dtypes."""
        return tuple(index.dtype for index in self.indices)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the arguments that tell a kernel how to read the indices."""
        rule = faults.RULES[self.operator]
        common = faults.NUMBERS[self.operator], int(rule.wraps)
        return (*self.sizes, *self.steps, *self.dims, *common)

    @property
    def reach(self) -> int:
        """More than the distance of any item from the target's first, and than any size."""
        walked = zip((*self.shape, *self.sizes), (*self.strides, *self.steps), strict=True)
        return max(self.sizes, default=0) + sum(max(n, 1) * abs(step) for n, step in walked)

    def moves(self) -> tuple[tuple[int, ...], ...]:
        """Return how the tensor and each index move along `shape`, in items."""
        rank = len(self.shape)
        walked = [self.strides]
        for index in self.indices:
            along = zip(self.shape[rank - index.dim() :], index.shape, index.stride(), strict=True)
            steps = (step if own == size else 0 for size, own, step in along)
            walked.append((*(0,) * (rank - index.dim()), *steps))
        return tuple(walked)

    def check(self) -> None:
        """Refuse an index that is taken of no items at all.

        Raises:
            IndexError, RuntimeError: it is; type and text are the rule's.
        """
        if 0 in self.sizes and 0 not in self.shape:
            rule, k = faults.RULES[self.operator], self.sizes.index(0)
            raise rule.error(rule.text.format(index=0, size=0, dim=self.dims[k]))


def parameters_of(indices: Sequence[torch.dtype], role: Role = "input") -> list[Operand | Scalar]:
    """Return the parameters of a kernel that `place_of` needs: indices, `numbers`, faults."""
    numbers = range(len(indices))
    return [
        *(Operand(f"index_{k}", indices[k], role, "long") for k in numbers),
        *(Scalar(f"size_of_{k}", "long") for k in numbers),
        *(Scalar(f"step_of_{k}", "long") for k in numbers),
        *(Scalar(f"dim_of_{k}", "long") for k in numbers),
        Scalar("operator", "long"),
        Scalar("wraps", "long"),
        Operand("faults", torch.int64, "address", "long"),
    ]


def place_of(indices: int) -> str:
    """Return the expression of an item's place from the target's first item."""
    same = "wraps, operator, faults_data"
    terms = (
        f"place(index_{k}, size_of_{k}, dim_of_{k}, {same}) * step_of_{k}" for k in range(indices)
    )
    return " + ".join(["target_at", *terms])


PLACE = (
    faults.NOTE
    + """\
long place(const long index, const long size, const long dim, const long wraps,
           const long operator, volatile __global long *faults)
{
    const long at = wraps && index < 0 ? index + size : index;
    if (at < 0 || at >= size)
        note_fault(faults, operator, index, size, dim);
    return clamp(at, 0L, size - 1);
}
"""
)
