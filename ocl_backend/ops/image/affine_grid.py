"""Grids of places that affine maps give for `grid_sample`, by one launch.

torch composes them of a dozen: ranges, copies to the columns of a matrix, and a product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.dimensions import contiguous_strides
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch

PLACE = """\
const T {name} = ({name}_at * (T)2 - ({name}_size - 1)) * {name}_step;
"""
"""Of an item between -1 and 1: the middle one of an odd number of items is exactly 0."""


@cache
def _kernel(dtype: torch.dtype, rank: int) -> Kernel:
    """Return the kernel for maps of `rank` dimensions, the fastest of which is the first."""
    value, names = dtype_of(dtype).value, "xyz"[:rank]
    body = "".join(PLACE.format(name=name) for name in names)
    for row in range(rank):
        first = row * (rank + 1)
        terms = [f"LOAD_theta(theta_at + {first + at}) * {name}" for at, name in enumerate(names)]
        total = " + ".join([*terms, f"LOAD_theta(theta_at + {first + rank})"])
        body += f"STORE_out(out_at + {row}, {total});\n"
    operands: tuple[Operand | Scalar, ...] = (
        *(Operand(f"{name}_at", role="position") for name in names),
        Operand("theta", dtype, "address"),
        Operand("out", dtype, "address"),
        *(Scalar(f"{name}_size", "long") for name in names),
        *(Scalar(f"{name}_step", value) for name in names),
    )
    return Kernel("affine_grid", value, operands, body, scalar_only=True, work=2 * rank)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Return the places of all items of images, as `torch.nn.functional.affine_grid` does.

    Args:
        theta: [n, 2, 3] or [n, 3, 4], any floats.
        size: of the images, [n, c, h, w] or [n, c, d, h, w].
        align_corners: whether -1 and 1 are the middles of the outermost items, or their edges.

    Returns:
        [n, h, w, 2] or [n, d, h, w, 3].

    Raises:
        RuntimeError: the shapes do not fit.
    """
    rank = len(size) - 2
    if rank not in (2, 3) or tuple(theta.shape) != (size[0], rank, rank + 1):
        raise RuntimeError(f"affine_grid of maps {[*theta.shape]} for images {[*size]}")
    theta, walked = theta.contiguous(), [size[0], *size[2:]]
    out = torch.empty((*walked, rank), dtype=theta.dtype, device=theta.device)
    sizes = size[:1:-1]
    steps = [1 / max(n - 1 if align_corners else n, 1) for n in sizes]
    names = "xyz"[:rank]
    strides = {
        f"{name}_at": [int(place == rank - at) for place in range(rank + 1)]
        for at, name in enumerate(names)
    }
    strides["theta"] = [rank * (rank + 1), *[0] * rank]
    strides["out"] = [step * rank for step in contiguous_strides(walked)]
    launch(_kernel(theta.dtype, rank), walked, (theta, out, *sizes, *steps), strides)
    return out


OPERATORS: dict[str, Callable[..., Any]] = {"affine_grid_generator": affine_grid}
"""Implementations by aten name."""
