"""Sampling of images and volumes at the positions of a grid, and its gradients.

Two and three dimensions share a kernel, a plane being a volume of depth 1; what a position means
and how items around it are weighted are launch arguments. Resizing by a factor is `upsampling`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.scatter import (
    NARROW,
    alert_not_deterministic,
    atomic_update,
    require_atomics,
)

HELPERS = """\
enum { BILINEAR, NEAREST, BICUBIC };
enum { ZEROS, BORDER, REFLECTION };

// moves a position into [0, size - 1] as the padding says; *slope is multiplied by its derivative
T padded(T at, const long size, const long padding, const long align, T *slope)
{
    if (padding == ZEROS)
        return at;
    if (padding == REFLECTION) {
        const T low = align ? 0 : (T)-0.5;
        const T span = align ? size - 1 : size;
        if (span == 0) {
            *slope = 0;
            return 0;
        }
        const T distance = fabs(at - low);
        const bool turned = fmod(floor(distance / span), 2) != 0;
        const T extra = fmod(distance, span);
        if ((at < low) != turned)
            *slope = -*slope;
        at = low + (turned ? span - extra : extra);
    }
    if (!(at > 0 && at < size - 1))
        *slope = 0;
    return at > 0 ? fmin(at, (T)(size - 1)) : 0;
}

T cubic(const T x, T *slope)
{
    const T a = (T)-0.75, d = fabs(x);
    const T sign = x < 0 ? -1 : 1;
    if (d <= 1) {
        *slope = sign * ((3 * (a + 2) * d - 2 * (a + 3)) * d);
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    }
    *slope = sign * ((3 * a * d - 10 * a) * d + 8 * a);
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

// finds the items around a position in [-1, 1], their weights and how those change with it; an
// item outside is numbered -1
int taps(const T position, const long size, const long mode, const long padding, const long align,
         long *item, T *weight, T *slope)
{
    T scale = (T)(align ? size - 1 : size) / 2;
    T at = align ? (position + 1) * scale : ((position + 1) * size - 1) / 2;
    if (mode != BICUBIC)
        at = padded(at, size, padding, align, &scale);
    if (!(fabs(at) < (T)1e9))
        at = -100;
    const T base = mode == NEAREST ? rint(at) : floor(at);
    const T part = at - base;
    const int count = mode == NEAREST ? 1 : mode == BILINEAR ? 2 : 4;
    for (int k = 0; k < count; ++k) {
        item[k] = (long)base + k;
        if (mode == NEAREST) {
            weight[k] = 1;
            slope[k] = 0;
        } else if (mode == BILINEAR) {
            weight[k] = k ? part : 1 - part;
            slope[k] = k ? scale : -scale;
        } else {
            T steepness, ignored = 1;
            weight[k] = cubic(part + 1 - k, &steepness);
            slope[k] = steepness * scale;
            item[k] = (long)padded(base - 1 + k, size, padding, align, &ignored);
        }
        if (item[k] < 0 || item[k] >= size)
            item[k] = -1;
    }
    return count;
}
"""

LOCATE = """\
long item_x[4], item_y[4], item_z[4];
T weight_x[4], weight_y[4], weight_z[4], slope_x[4], slope_y[4], slope_z[4];
const int count_x = taps(grid_x, width, mode, padding, align, item_x, weight_x, slope_x);
const int count_y = taps(grid_y, height, mode, padding, align, item_y, weight_y, slope_y);
const int count_z = depth == 0 ? 1
    : taps(grid_z, depth, mode, padding, align, item_z, weight_z, slope_z);
if (depth == 0) {
    item_z[0] = 0;
    weight_z[0] = 1;
    slope_z[0] = 0;
}
"""

WALK = """\
for (int i = 0; i < count_z; ++i) {
    for (int j = 0; j < count_y; ++j) {
        for (int k = 0; k < count_x; ++k) {
            if (item_z[i] < 0 || item_y[j] < 0 || item_x[k] < 0)
                continue;
            const long at = item_z[i] * x_step_z + item_y[j] * x_step_y + item_x[k] * x_step_x;
%s        }
    }
}
"""

FORWARD = (
    LOCATE
    + "for (long c = 0; c < channels; ++c) {\n    T sum = 0;\n"
    + WALK
    % """\
            sum += weight_z[i] * weight_y[j] * weight_x[k] * LOAD_x(x_at + c * x_step_c + at);
"""
    + "    STORE_y(y_at + c * y_step_c, sum);\n}\n"
)

BACKWARD = (
    LOCATE
    + "T grad_x = 0, grad_y = 0, grad_z = 0;\n"
    + WALK
    % """\
            T along = 0;
            const T weight = weight_z[i] * weight_y[j] * weight_x[k];
            for (long c = 0; c < channels; ++c) {
                const T grad = LOAD_y(y_at + c * y_step_c);
                along += grad * LOAD_x(x_at + c * x_step_c + at);
                update(total_data + total_at + c * x_step_c + at, grad * weight);
            }
            grad_x += along * slope_x[k] * weight_y[j] * weight_z[i];
            grad_y += along * weight_x[k] * slope_y[j] * weight_z[i];
            grad_z += along * weight_x[k] * weight_y[j] * slope_z[i];
"""
)

NUMBERS = (
    "depth", "height", "width", "channels", "mode", "padding", "align",
    "x_step_c", "x_step_z", "x_step_y", "x_step_x", "y_step_c",
)  # fmt: skip


@cache
def _kernel(dtype: torch.dtype, grid: torch.dtype, backward: bool) -> Kernel:
    value = dtype_of(dtype).value
    helpers = re.sub(r"\bT\b", value, HELPERS)
    parameters: list[Operand | Scalar] = [
        Operand("x", dtype, "address"),
        *(Operand(f"grid_{axis}", grid) for axis in "xyz"),
        Operand("y", dtype, "address"),
        *(Scalar(name, "long") for name in NUMBERS),
    ]
    if backward:
        wide = NARROW.get(dtype, dtype)
        helpers += atomic_update(value, wide.itemsize, "add")
        parameters.append(Operand("total", wide, "address"))
        parameters += [Operand(f"grad_{axis}", grid, "output") for axis in "xyz"]
    name, body = ("grid_sample_backward", BACKWARD) if backward else ("grid_sample", FORWARD)
    return Kernel(name, value, tuple(parameters), body, helpers, scalar_only=True, work=64)


def _axes(grid: Tensor) -> list[Tensor]:
    """Return the positions along width, height and depth (of a plane: the height's again)."""
    parts = [part if grid.dim() == 5 else part.unsqueeze(1) for part in grid.unbind(-1)]
    return parts if len(parts) == 3 else [*parts, parts[1]]


def _steps(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of [batch, channels, d, h, w], or of a plane with a depth of 1."""
    strides = tensor.stride()
    return strides if len(strides) == 5 else (*strides[:2], 0, *strides[2:])


def _given(x: Tensor, y: Tensor, mode: int, padding: int, align: bool) -> list[Tensor | float]:
    depth = x.shape[2] if x.dim() == 5 else 0
    sizes = [depth, *x.shape[-2:], x.shape[1]]
    return [y, *sizes, mode, padding, int(align), *_steps(x)[1:], _steps(y)[1]]


def _walked(x: Tensor, y: Tensor) -> dict[str, Sequence[int]]:
    return {"x": (x.stride(0), 0, 0, 0), "y": (_steps(y)[0], *_steps(y)[2:])}


def grid_sample(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    """Return x [batch, channels, (d,) h, w] at grid [batch, (od,) oh, ow, dims], in [-1, 1].

    `mode` is 0 bilinear, 1 nearest, 2 bicubic; `padding` 0 zeros, 1 border, 2 reflection; `align`
    lets -1 and 1 mean the middles of the outermost items rather than their edges.
    """
    y = x.new_empty((x.shape[0], x.shape[1], *grid.shape[1:-1]))
    axes = _axes(grid)
    if y.numel():
        given = [x, *axes, *_given(x, y, mode, padding, align)]
        launch(_kernel(x.dtype, grid.dtype, False), axes[0].shape, given, _walked(x, y))
    return y


def grid_sample_backward(
    grad: Tensor,
    x: Tensor,
    grid: Tensor,
    mode: int,
    padding: int,
    align: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor]:
    """Return the gradients of x, if `output_mask` asks for it, and of the grid.

    Raises:
        RuntimeError: deterministic algorithms were asked for; items that meet are added in any
            order here.
    """
    alert_not_deterministic(f"grid_sampler_{grid.shape[-1]}d_backward_ocl")
    require_atomics(x)
    x = x.contiguous()
    total = torch.zeros_like(x, dtype=NARROW.get(x.dtype, x.dtype))
    grad_grid = torch.empty_like(grid, memory_format=torch.contiguous_format)
    axes, targets = _axes(grid), _axes(grad_grid)
    if grid.shape[-1] == 2:
        targets[2] = torch.empty_like(targets[1])
    if grad.numel():
        given = [x, *axes, *_given(x, grad, mode, padding, align), total, *targets]
        walked = {**_walked(x, grad), "total": (x.stride(0), 0, 0, 0)}
        launch(_kernel(x.dtype, grid.dtype, True), axes[0].shape, given, walked)
    else:
        grad_grid.zero_()
    return total.to(x.dtype) if output_mask[0] else None, grad_grid


OPERATORS: dict[str, Callable[..., Any]] = {
    "grid_sampler_2d": grid_sample,
    "grid_sampler_2d.out": into(grid_sample),
    "grid_sampler_2d_backward": grid_sample_backward,
    "grid_sampler_3d": grid_sample,
    "grid_sampler_3d.out": into(grid_sample),
    "grid_sampler_3d_backward": grid_sample_backward,
}
"""Implementations by aten name."""
