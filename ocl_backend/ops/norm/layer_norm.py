"""Layer normalisation and RMS normalisation, forward and backward.

Group normalisation is `group_norm`; `rms_norm` says which calls of torch's operator come here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from struct import pack, unpack
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.memory_formats import dense
from ocl_backend.ops.norm.batch_norm import pointers_of
from ocl_backend.runtime.launch import Argument, KernelLaunch, Pointer, Varying, prepare
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import rendered

GROUP_ROWS = 64
"""Rows of a group at least: each group writes a line of sums, which a second pass adds up."""
COLUMN_GROUPS = 32
"""Groups where fewer would do: a processor's caches hold the rows of one."""


@dataclass(frozen=True, slots=True)
class LayerNormCase:
    """Everything that decides the kernels; x is [rows, inner]."""

    device: int
    dtype: torch.dtype
    param: torch.dtype
    rows: int
    inner: int
    affine: bool
    biased: bool
    centered: bool = True

    @property
    def limits(self) -> Limits:
        """The limits of the device."""
        return devices()[self.device].limits

    @property
    def width(self) -> int:
        """Items read at once."""
        return vectors.width_of_rows(self.inner, self.limits)

    @property
    def row_width(self) -> int:
        """Items of a row read at once: of a processor's rows, what is left is read item by item."""
        wide = max(vectors.CPU_WIDTHS)
        return wide if self.limits.kind == "cpu" and self.inner >= wide else self.width

    @property
    def real(self) -> torch.dtype:
        """The type of the arithmetic, and the dtype in which means are kept."""
        return torch.float64 if self.dtype is torch.float64 else torch.float32


def native_layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, mean, 1 / standard deviation) of x [..., *normalized_shape], by row.

    The statistics are [..., 1, ...], float32 (float64 for float64).

    Raises:
        RuntimeError: x does not end in `normalized_shape`, or weight or bias have another shape.
    """
    shape = tuple(normalized_shape)
    lead = x.dim() - len(shape)
    _check("layer_norm", x, shape, weight, bias)
    x = x.contiguous()
    kind = _kind(x, shape, weight, bias)
    y = torch.empty_like(x)
    means = x.new_empty((*x.shape[:lead], *(1,) * len(shape)), dtype=kind.real)
    rstds = torch.empty_like(means)
    if x.numel():
        tensors = (x, y, dense(weight), dense(bias), means, rstds)
        _prepared(kind, "fwd")(*pointers_of(*tensors), _passed(kind, eps))
    return y, means, rstds


def native_layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    means: Tensor,
    rstds: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of x, weight and bias that `output_mask` asks for."""
    kind = _kind(x, normalized_shape, weight, bias)
    return _gradients(kind, grad, x, normalized_shape, means, rstds, weight, output_mask)


def _gradients(
    kind: LayerNormCase,
    grad: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    means: Tensor | None,
    rstds: Tensor,
    weight: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    grad, x = grad.contiguous(), x.contiguous()
    if x.numel() == 0:
        grads = x.new_zeros((2, *normalized_shape), dtype=kind.param)
        return torch.empty_like(x), grads[0], grads[1]
    grad_x = None
    if output_mask[0]:
        grad_x = torch.empty_like(x)
        tensors = (x, grad, grad_x, dense(weight), means, rstds)
        _prepared(kind, "bwd")(*pointers_of(*tensors), _passed(kind, 0.0))
    if not (output_mask[1] or output_mask[2]):
        return grad_x, None, None
    groups = _groups(kind)
    sums = x.new_empty((2, groups, *normalized_shape), dtype=kind.real)
    given = pointers_of(x, grad, means, rstds, sums[0], sums[1])
    _columns(kind, groups, vectors.are_aligned(given))(*given)
    grads = sums.sum(1).to(kind.param)
    return grad_x, grads[0] if output_mask[1] else None, grads[1] if output_mask[2] else None


def fused_rms_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """Return (y, 1 / root mean square) of x [..., *normalized_shape], by row.

    The statistics are [..., 1, ...], float32 (float64 for float64). Without `eps` it is that of
    their dtype (Zhang and Sennrich 2019, "Root mean square layer normalization").

    Raises:
        RuntimeError: x does not end in `normalized_shape`, or the weight has another shape.
    """
    shape, lead = tuple(normalized_shape), x.dim() - len(normalized_shape)
    _check("rms_norm", x, shape, weight)
    x = x.contiguous()
    kind = replace(_kind(x, shape, weight, None), centered=False)
    y = torch.empty_like(x)
    rstds = x.new_empty((*x.shape[:lead], *(1,) * len(shape)), dtype=kind.real)
    if x.numel():
        tensors = (x, y, dense(weight), None, None, rstds)
        floor = torch.finfo(kind.real).eps if eps is None else eps
        _prepared(kind, "fwd")(*pointers_of(*tensors), _passed(kind, floor))
    return y, rstds


def fused_rms_norm_backward(
    grad: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    rstds: Tensor,
    weight: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of x and weight that `output_mask` asks for."""
    kind = replace(_kind(x, normalized_shape, weight, None), centered=False)
    mask = (output_mask[0], output_mask[1], False)
    return _gradients(kind, grad, x, normalized_shape, None, rstds, weight, mask)[:2]


def _check(name: str, x: Tensor, shape: tuple[int, ...], *factors: Tensor | None) -> None:
    """Refuse shapes that do not belong together.

    Raises:
        RuntimeError: x does not end in `shape`, or a factor has another one.
    """
    if not shape or tuple(x.shape[x.dim() - len(shape) :]) != shape:
        raise RuntimeError(f"{name}: x {tuple(x.shape)} does not end in {shape}")
    for factor in factors:
        if factor is not None and tuple(factor.shape) != shape:
            raise RuntimeError(f"{name}: weight or bias {tuple(factor.shape)} is not {shape}")


def _kind(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None
) -> LayerNormCase:
    inner = prod(shape)
    rows = x.numel() // inner if inner else 0
    param = x.dtype if weight is None else weight.dtype
    return LayerNormCase(
        x.get_device(), x.dtype, param, rows, inner, weight is not None, bias is not None
    )


def _passed(kind: LayerNormCase, eps: float) -> float | int:
    """Return eps as the kernel takes it: a launch's numbers are floats, so a double is its bits."""
    return unpack("q", pack("d", eps))[0] if kind.real is torch.float64 else eps


@lru_cache(maxsize=512)
def _prepared(kind: LayerNormCase, direction: Literal["fwd", "bwd"]) -> KernelLaunch:
    on_cpu = kind.limits.kind == "cpu"
    local_items = 1 if on_cpu else min(256, kind.limits.max_work_group)
    while local_items > max(32, kind.inner // kind.row_width):
        local_items //= 2
    rows_per_group = max(1, vectors.CPU_GROUP_ITEMS // kind.inner) if on_cpu else 1
    dtype, param = dtype_of(kind.dtype), dtype_of(kind.param)
    source = rendered(
        "layer_norm", package="ocl_backend", direction=direction, affine=kind.affine,
        biased=kind.biased, centered=kind.centered, dtype=dtype, param=param, inner=kind.inner,
        rows_per_group=rows_per_group, local_items=local_items, width=kind.row_width,
    )  # fmt: skip
    image, weight, mean = map(Pointer, (dtype.item_bytes, param.item_bytes, kind.real.itemsize))
    tensors = {"fwd": [image, image, weight, weight], "bwd": [image, image, image, weight]}
    eps = Varying("long" if kind.real is torch.float64 else "float")
    arguments: list[Argument] = [
        *tensors[direction], mean, mean, eps, np.int32(kind.rows)
    ]  # fmt: skip
    items = ceil_div(kind.rows, rows_per_group) * local_items
    name = f"layer_norm_{direction}"
    return prepare(kind.device, source, name, (items,), arguments, (local_items,))


def _groups(kind: LayerNormCase) -> int:
    """Return into how many groups the rows are split, so that all compute units have work."""
    wanted = ceil_div(vectors.busy_items(kind.limits), ceil_div(kind.inner, kind.row_width))
    return min(ceil_div(kind.rows, GROUP_ROWS), max(COLUMN_GROUPS, wanted))


@lru_cache(maxsize=512)
def _columns(kind: LayerNormCase, groups: int, aligned: bool) -> KernelLaunch:
    dtype = dtype_of(kind.dtype)
    source = rendered(
        "layer_norm_columns", package="ocl_backend", dtype=dtype, inner=kind.inner,
        width=kind.row_width, aligned=aligned, centered=kind.centered,
    )  # fmt: skip
    image, real = Pointer(dtype.item_bytes), Pointer(kind.real.itemsize)
    sizes = np.int32(kind.rows), np.int32(ceil_div(kind.rows, groups)), np.int32(groups)
    arguments: list[Argument] = [image, image, real, real, real, real, *sizes]
    global_size = (ceil_div(kind.inner, kind.row_width), groups)
    spread = vectors.in_groups(global_size, kind.limits)
    return prepare(kind.device, source, "layer_norm_columns", spread.sizes, arguments, spread.local)


OPERATORS: dict[str, Callable[..., Any]] = {
    "native_layer_norm": native_layer_norm,
    "native_layer_norm_backward": native_layer_norm_backward,
    "_fused_rms_norm": fused_rms_norm,
    "_fused_rms_norm_backward": fused_rms_norm_backward,
}
"""Implementations by aten name."""
