"""What an infinity or a NaN of an image must reach in a convolution, and what it may reach."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oclgen.measuring.reference import reference
from oclgen.problem import ConvProblem

Array = NDArray[Any]
Inputs = dict[str, Array]


class Reached(NamedTuple):
    """Elements that are no number, if padding multiplies nothing, and if it multiplies by zero."""

    least: Array
    most: Array


def reached(problem: ConvProblem, inputs: Inputs) -> Reached:
    """Return what becomes NaN.

    On processors torch leaves padding out in fp32, and in 16 bits multiplies it: zero times an
    infinity is a NaN. So both are right, and gaps of a kernel's own must reach no more.

    Args:
        problem: a convolution of any direction.
        inputs: its operands by role.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return Reached(np.isnan(unpadded(problem, inputs)), np.isnan(reference(problem, inputs)))


def unpadded(problem: ConvProblem, inputs: Inputs) -> Array:
    """Return the result in float64, of products with stored elements alone."""
    p = problem
    x, y = (
        _grouped(inputs.get(role, np.zeros(p.buffers[role])), p) for role in ("x", "y")
    )  # [batch, groups, channels, height, width]
    filters = (p.groups, p.out_channels // p.groups, p.in_channels // p.groups)
    w = inputs.get("w", np.zeros(p.buffers["w"])).astype(np.float64)
    w = w.reshape(*filters, p.kernel_h, p.kernel_w)
    for r, s in np.ndindex(p.kernel_h, p.kernel_w):
        out_h, in_h = _met(p.height, p.out_h, p.stride_h, r * p.dilation_h - p.pad_h)
        out_w, in_w = _met(p.width, p.out_w, p.stride_w, s * p.dilation_w - p.pad_w)
        of_y = (..., out_h[:, None], out_w)
        of_x = (..., in_h[:, None], in_w)
        if p.direction == "fwd":
            y[of_y] += np.einsum("bgchw,goc->bgohw", x[of_x], w[..., r, s])
        elif p.direction == "bwd_data":
            x[of_x] += np.einsum("bgohw,goc->bgchw", y[of_y], w[..., r, s])
        else:
            w[..., r, s] = np.einsum("bgohw,bgchw->goc", y[of_y], x[of_x])
    result = {"fwd": y, "bwd_data": x, "bwd_weights": w}[p.direction]
    rows = p.out_channels if p.direction == "bwd_weights" else p.batch
    result = result.reshape(rows, -1, *result.shape[3:])
    return result if p.layout == "nchw" else np.moveaxis(result, 1, 3)


def _grouped(images: Array, p: ConvProblem) -> Array:
    planes = images if p.layout == "nchw" else np.moveaxis(images, 3, 1)
    return planes.astype(np.float64).reshape(p.batch, p.groups, -1, *planes.shape[2:])


def _met(size: int, results: int, stride: int, distance: int) -> tuple[Array, Array]:
    """Return the results along an axis that a tap meets elements for, and these elements."""
    elements = np.arange(results) * stride + distance
    inside = (elements >= 0) & (elements < size)
    return np.flatnonzero(inside), elements[inside]
