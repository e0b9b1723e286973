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
from ocl_backend.kernels import vectors
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.plane_sums import owned_kernel, owned_parts, zeros_to_add_to
from ocl_backend.kernels.scatter import NARROW, adds_floats, atomic_update
from ocl_backend.ops.image.grid_sample_text import (
    BACKWARD,
    HELPERS,
    OWNED,
    UPDATE,
    forward,
)  # fmt: skip
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

AT_ONCE = 4
"""Channels of which a GPU loads items at once: it waits for memory less often."""
FULL = 4
"""Work-items that a launch has, in multiples of `busy_items`. Channels beyond that go to the same
work-items, which compute a position once for all of theirs."""
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
def _kernel(form: Form, at_once: int) -> Kernel:
    parameters = (Operand("first", role="position"), *form.operands, Scalar("share", "long"))
    return Kernel(
        "grid_sample",
        form.value,
        parameters,
        forward(form.mode, form.volume, at_once),
        form.helpers,
        scalar_only=True,
        work=64,
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
    if y.numel():
        _sample(x, grid, mode, y, (padding, align))
    return y


def _sample(x: Tensor, grid: Tensor, mode: int, y: Tensor, ways: tuple[int, bool]) -> None:
    """Write samples to y; work-items of a GPU share out the channels of a position.

    Args:
        x: as of `grid_sample`.
        grid: as of `grid_sample`.
        mode: as of `grid_sample`.
        y: of the result's shape.
        ways: the padding, and whether to align.
    """
    axes = [axis.unsqueeze(0) for axis in _axes(grid)]
    limits = devices()[x.get_device()].limits
    channels, is_cpu = x.shape[1], limits.kind == "cpu"
    share = channels
    if not is_cpu:
        enough = FULL * vectors.busy_items(limits)
        share = min(channels, max(AT_ONCE, y.numel() // enough))
    parts = ceil_div(channels, share)
    along = {"x": _steps(x)[1], "y": _steps(y)[1]}
    walked = {name: (share * along[name], *rest) for name, rest in _walked(x, y).items()}
    walked["first"] = (share, 0, 0, 0, 0)
    given: list[Tensor | float] = [x, *axes, *_given(x, y, *ways), share]
    at_once = min(share, 1 if is_cpu else AT_ONCE)
    launch(_kernel(Form.of(x, grid, mode), at_once), (parts, *axes[0].shape[1:]), given, walked)


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
