"""Group normalisation of planes on processors: one launch forward, two backward.

A launch for each sum and each result costs the host more than small images cost a core, and reads
larger ones from memory again; here a work-item reads a group from its core's caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen.opencl.device import devices
from oclgen.render import rendered

PARAMETERS = """\
T of_weight = 0, of_bias = 0;
for (long image = 0; image < batch; ++image) {
    const long row = image * (channels / of_group) + channel / of_group;
    const T sum = LOAD_sums(image * channels + channel);
    of_weight += (LOAD_dots(image * channels + channel) - sum * LOAD_center(row)) * LOAD_scale(row);
    of_bias += sum;
}
STORE_of_weight(channel, of_weight);
STORE_of_bias(channel, of_bias);
"""


class Planes(NamedTuple):
    """What decides the kernels; x is [batch, groups, channels, pixels], dense.

    `given` are the dtypes of weight and bias, None where there are none; `eps` is added to
    variances. Backward asks for neither bias nor eps.
    """

    device: int
    dtype: torch.dtype
    given: tuple[torch.dtype | None, torch.dtype | None]
    batch: int
    groups: int
    channels: int
    pixels: int
    eps: float = 0.0

    @property
    def wide(self) -> torch.dtype:
        """The dtype of the arithmetic."""
        return torch.promote_types(self.dtype, torch.float32)

    @property
    def width(self) -> int:
        """Items of a vector: the most that a channel's pixels fill, 0: they fill none."""
        return next((width for width in vectors.CPU_WIDTHS if width <= self.pixels), 0)


def serves(planes: Planes) -> bool:
    """Say whether these kernels serve: a processor whose cores all have a group, of vectors."""
    limits = devices()[planes.device].limits
    rows = planes.batch * planes.groups
    has_work = planes.width > 0 and planes.channels > 0 and rows >= limits.compute_units
    return limits.kind == "cpu" and has_work


def forward(
    planes: Planes, x: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x normalised, and mean and 1 / deviation [batch, groups], all of x's dtype."""
    y = torch.empty_like(x)
    center = torch.empty((planes.batch, planes.groups), dtype=x.dtype, device=x.device)
    scale = torch.empty_like(center)
    factors = [f.contiguous().data_ptr() for f in (weight, bias) if f is not None]
    pointers = [each.data_ptr() for each in (x, y, center, scale)]
    _prepared(planes, "fwd", with_x=True)(*pointers, *factors)
    return y, center, scale


def backward(
    planes: Planes,
    tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None],
    param: torch.dtype,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, weight and bias that are wanted.

    Args:
        planes: sizes and dtypes.
        tensors: grad and x, dense; mean and 1 / deviation [batch, groups]; weight, or None.
        param: dtype of the gradients of weight and bias.
        wanted: which of the three gradients.
    """
    grad, x, weight = tensors[0], tensors[1], tensors[4]
    numbers = [each.contiguous() for each in tensors[2:4] if each is not None]
    shape = (planes.batch, planes.groups * planes.channels)
    sums = torch.empty(shape, dtype=planes.wide, device=x.device)
    dots = torch.empty_like(sums)
    grad_x = torch.empty_like(x) if wanted[0] else None
    given = [x, grad, sums, dots]
    if grad_x is not None:
        given += [*numbers, grad_x]
    if weight is not None:
        given.append(weight.contiguous())
    _prepared(planes, "bwd", with_x=wanted[0])(*(each.data_ptr() for each in given))
    if not any(wanted[1:]):
        return grad_x, None, None
    of_weight = torch.empty(shape[1], dtype=param, device=x.device)
    of_bias = torch.empty_like(of_weight)
    kernel = _parameters(planes.dtype, planes.wide, param)
    still = {operand.name: (0,) for operand in kernel.operands} | {"channel": (1,)}
    read = sums, dots, *numbers, of_weight, of_bias
    launch(kernel, shape[1:], (*read, shape[0], shape[1], planes.channels), still)
    return grad_x, of_weight if wanted[1] else None, of_bias if wanted[2] else None


@cache
def _parameters(dtype: torch.dtype, wide: torch.dtype, param: torch.dtype) -> Kernel:
    """Return the kernel that adds up the gradients of weight and bias over all images."""
    value = dtype_of(wide).value
    kinds = {"sums": wide, "dots": wide, "center": dtype, "scale": dtype}
    kinds |= {"of_weight": param, "of_bias": param}
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("channel", role="position"),
        *(Operand(name, kind, "address", value) for name, kind in kinds.items()),
        *(Scalar(name, "long") for name in ("batch", "channels", "of_group")),
    )
    return Kernel("group_norm_parameters", value, parameters, PARAMETERS, scalar_only=True)


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(planes: Planes, direction: str, with_x: bool) -> KernelLaunch:
    dtype = dtype_of(planes.dtype)
    weight, bias = (None if kind is None else dtype_of(kind) for kind in planes.given)
    text = rendered(
        "group_norm_planes", package="ocl_backend", direction=direction, dtype=dtype,
        weight=weight, bias=bias, with_x=with_x, width=planes.width,
    )  # fmt: skip
    item, wide = Pointer(dtype.item_bytes), Pointer(planes.wide.itemsize)
    pointers = [item] * 4 if direction == "fwd" else [item, item, wide, wide]
    pointers += [item] * 3 if direction == "bwd" and with_x else []
    pointers += [Pointer(kind.item_bytes) for kind in (weight, bias) if kind is not None]
    sizes = map(np.int64, (planes.groups, planes.channels, planes.pixels))
    arguments: list[Argument] = [*pointers, *sizes]
    if direction == "fwd":
        arguments.append((np.float64 if dtype.value == "double" else np.float32)(planes.eps))
    rows = planes.batch * planes.groups
    return prepare(planes.device, text, f"group_norm_{direction}", (rows,), arguments, (1,))
