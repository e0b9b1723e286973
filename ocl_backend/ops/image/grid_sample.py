"""Sampling of images and volumes at the positions of a grid, and its gradients.

Two and three dimensions share a text, a plane being a volume of depth 1.
Resizing by a factor is `upsampling`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.plane_sums import owned_kernel, owned_parts, zeros_to_add_to
from ocl_backend.kernels.scatter import NARROW, adds_floats, atomic_update

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
int taps(const T position, const long size, const long kind, const long padding, const long align,
         long *item, T *weight, T *slope)
{
    T scale = (T)(align ? size - 1 : size) / 2;
    T at = align ? (position + 1) * scale : ((position + 1) * size - 1) / 2;
    if (kind != BICUBIC)
        at = padded(at, size, padding, align, &scale);
    if (!(fabs(at) < (T)1e9))
        at = -100;
    const T base = kind == NEAREST ? rint(at) : floor(at);
    const T part = at - base;
    const int count = kind == NEAREST ? 1 : kind == BILINEAR ? 2 : 4;
    for (int k = 0; k < count; ++k) {
        item[k] = (long)base + k;
        if (kind == NEAREST) {
            weight[k] = 1;
            slope[k] = 0;
        } else if (kind == BILINEAR) {
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
const int count_z = !volume ? 1
    : taps(grid_z, depth, mode, padding, align, item_z, weight_z, slope_z);
if (!volume) {
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
                UPDATE
            }
            grad_x += along * slope_x[k] * weight_y[j] * weight_z[i];
            grad_y += along * weight_x[k] * slope_y[j] * weight_z[i];
            grad_z += along * weight_x[k] * weight_y[j] * slope_z[i];
"""
)

UPDATE = "update(total_data + total_at + c * x_step_c + at, grad * weight);"

OWNED = (
    """\
for (long point = 0; point < points; ++point) {
    const long begin = grid_at + point * (volume ? 3 : 2);
    const T grid_x = LOAD_grid(begin), grid_y = LOAD_grid(begin + 1);
    const T grid_z = volume ? LOAD_grid(begin + 2) : 0;
"""
    + LOCATE
    + WALK % "            ADD(at, point, weight_z[i] * weight_y[j] * weight_x[k]);\n"
    + "}\n"
)

NUMBERS = (
    "depth", "height", "width", "channels", "padding", "align",
    "x_step_c", "x_step_z", "x_step_y", "x_step_x", "y_step_c",
)  # fmt: skip

OWNED_NUMBERS = (
    "depth", "height", "width", "padding", "align", "x_step_z", "x_step_y", "x_step_x",
)  # fmt: skip


class Form(NamedTuple):
    """What kernels are made for: dtypes of images and grids, the mode, and 3 or 2 dimensions."""

    dtype: torch.dtype
    grid: torch.dtype
    mode: int
    volume: bool

    @staticmethod
    def of(x: Tensor, grid: Tensor, mode: int) -> Form:
        """Return that of a call."""
        return Form(x.dtype, grid.dtype, mode, x.dim() == 5)

    @property
    def value(self) -> str:
        """C type of what is computed."""
        return dtype_of(self.dtype).value

    @property
    def wide(self) -> torch.dtype:
        """In which gradients of images are added."""
        return NARROW.get(self.dtype, self.dtype)

    @property
    def helpers(self) -> str:
        """Functions; the compiler unrolls the loops over items, whose numbers are known."""
        known = f"#define mode {self.mode}\n#define volume {int(self.volume)}\n"
        return re.sub(r"\bT\b", self.value, HELPERS) + known

    @property
    def operands(self) -> tuple[Operand | Scalar, ...]:
        """What is read, and numbers."""
        return (
            Operand("x", self.dtype, "address"),
            *(Operand(f"grid_{axis}", self.grid) for axis in "xyz"),
            Operand("y", self.dtype, "address"),
            *(Scalar(name, "long") for name in NUMBERS),
        )


@cache
def _kernel(form: Form) -> Kernel:
    return Kernel(
        "grid_sample", form.value, form.operands, FORWARD, form.helpers, scalar_only=True, work=64
    )


@cache
def _backward_kernel(form: Form, atomic: bool, of_floats: bool) -> Kernel:
    """Return the kernel of the grid's gradient, which also adds x's if that is `atomic`."""
    helpers, parameters = form.helpers, [*form.operands]
    if atomic:
        helpers += atomic_update(form.value, form.wide.itemsize, "add", of_floats)
        parameters.append(Operand("total", form.wide, "address"))
    parameters += [Operand(f"grad_{axis}", form.grid, "output") for axis in "xyz"]
    body = BACKWARD.replace("UPDATE", UPDATE if atomic else "")
    return Kernel(
        "grid_sample_backward",
        form.value,
        tuple(parameters),
        body,
        helpers,
        scalar_only=True,
        work=64,
    )


@cache
def _owned_kernel(form: Form) -> Kernel:
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("total", form.wide, "address"),
        Operand("grid", form.grid, "address"),
        Operand("grad", form.dtype, "address"),
        *(Scalar(name, "long") for name in (*OWNED_NUMBERS, "points")),
    )
    return owned_kernel("grid_sample_owned", form.value, parameters, OWNED, form.helpers)


def _axes(grid: Tensor) -> list[Tensor]:
    """Return the positions along width, height and depth (of a plane: the height's again)."""
    parts = [part if grid.dim() == 5 else part.unsqueeze(1) for part in grid.unbind(-1)]
    return parts if len(parts) == 3 else [*parts, parts[1]]


def _steps(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of [batch, channels, d, h, w], or of a plane with a depth of 1."""
    strides = tensor.stride()
    return strides if len(strides) == 5 else (*strides[:2], 0, *strides[2:])


def _given(x: Tensor, y: Tensor, padding: int, align: bool) -> list[Tensor | float]:
    depth = x.shape[2] if x.dim() == 5 else 0
    sizes = [depth, *x.shape[-2:], x.shape[1]]
    return [y, *sizes, padding, int(align), *_steps(x)[1:], _steps(y)[1]]


def _walked(x: Tensor, y: Tensor) -> dict[str, Sequence[int]]:
    return {"x": (x.stride(0), 0, 0, 0), "y": (_steps(y)[0], *_steps(y)[2:])}


def grid_sample(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    """Return x [batch, channels, (d,) h, w] at grid [batch, (od,) oh, ow, dims], in [-1, 1].

    `mode` is 0 bilinear, 1 nearest, 2 bicubic; `padding` 0 zeros, 1 border, 2 reflection; `align`
    lets -1 and 1 mean the middles of the outermost items rather than their edges.
    """
    if 0 in x.shape[2:]:
        raise RuntimeError(f"grid_sample: images of {[*x.shape]} have no pixels")
    y = x.new_empty((x.shape[0], x.shape[1], *grid.shape[1:-1]))
    axes = _axes(grid)
    if y.numel():
        given = [x, *axes, *_given(x, y, padding, align)]
        launch(_kernel(Form.of(x, grid, mode)), axes[0].shape, given, _walked(x, y))
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
        RuntimeError: deterministic algorithms were asked for, of a device that adds items that
            meet in any order.
    """
    x = x.contiguous()
    parts = owned_parts(x.get_device(), len(x), x.shape[1])
    name = f"grid_sampler_{grid.shape[-1]}d_backward_ocl"
    total = zeros_to_add_to(name, x, x.shape if output_mask[0] or not parts else (0,), parts)
    grad_grid = torch.empty_like(grid, memory_format=torch.contiguous_format)
    axes, targets = _axes(grid), _axes(grad_grid)
    if grid.shape[-1] == 2:
        targets[2] = torch.empty_like(targets[1])
    if grad.numel():
        given = [x, *axes, *_given(x, grad, padding, align)]
        walked = {**_walked(x, grad), "total": (x.stride(0), 0, 0, 0)}
        of_floats = adds_floats(x.get_device())
        kernel = _backward_kernel(Form.of(x, grid, mode), not parts, of_floats)
        launch(kernel, axes[0].shape, [*given, *([] if parts else [total]), *targets], walked)
        if parts and output_mask[0]:
            _add_owned(total, grad.contiguous(), grid.contiguous(), mode, padding, align, parts)
    else:
        grad_grid.zero_()
    return total.to(x.dtype) if output_mask[0] else None, grad_grid


def _add_owned(
    total: Tensor, grad: Tensor, grid: Tensor, mode: int, padding: int, align: bool, parts: int
) -> None:
    """Add the gradient of x to `total`, [batch, channels, (d,) h, w]; all tensors are dense."""
    points, channels = grad[0, 0].numel(), total.shape[1]
    depth = total.shape[2] if total.dim() == 5 else 0
    sizes = (depth, *total.shape[-2:], padding, int(align), *_steps(total)[2:], points)
    owned = (-(-channels // parts), channels, total.stride(1), points)
    walked = {
        "part": (0, 1),
        "total": (total.stride(0), 0),
        "grid": (points * grid.shape[-1], 0),
        "grad": (channels * points, 0),
    }
    kernel = _owned_kernel(Form.of(grad, grid, mode))
    launch(kernel, (len(total), parts), [total, grid, grad, *sizes, *owned], walked)


OPERATORS: dict[str, Callable[..., Any]] = {
    "grid_sampler_2d": grid_sample,
    "grid_sampler_2d.out": into(grid_sample),
    "grid_sampler_2d_backward": grid_sample_backward,
    "grid_sampler_3d": grid_sample,
    "grid_sampler_3d.out": into(grid_sample),
    "grid_sampler_3d_backward": grid_sample_backward,
}
"""Implementations by aten name."""
