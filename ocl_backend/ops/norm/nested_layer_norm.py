"""Layer norm of nested tensors of strided layout, over dimensions that all their items share.

torch's kernels for it call one by a table of devices that it does not let others write to. The
items lie one behind the other, so that the rows of all of them are the rows of one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

_kept: list[Any] = []


def register() -> None:
    """Register the forward and the backward operator for nested tensors of the device."""
    new: Any = torch.library.Library  # torch types neither the class nor its methods
    aten = new("aten", "IMPL")
    _kept.append(aten)
    aten.impl("native_layer_norm", layer_norm, "NestedTensorPrivateUse1")
    aten.impl("native_layer_norm_backward", layer_norm_backward, "NestedTensorPrivateUse1")


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the normalised nested tensor, and mean and reciprocal deviation [rows, 1] of its rows.

    Args:
        x: nested, on the device.
        shape: of the last dimensions, over which is normalised.
        weight: of these dimensions, or None.
        bias: the same.
        eps: is added to variances.

    Raises:
        RuntimeError: items differ in these dimensions, or have others.
    """
    x = x.contiguous()
    rows = _rows(x, shape)
    out, mean, deviation = torch.native_layer_norm(rows, shape, weight, bias, eps)
    return nested_like(out, x), mean.view(-1, 1), deviation.view(-1, 1)


def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    deviation: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of x, weight and bias, None for those that `mask` leaves out.

    Args:
        grad: of the result, nested.
        x: as for `layer_norm`.
        shape: as for `layer_norm`.
        mean: what `layer_norm` returned.
        deviation: the same.
        weight: as for `layer_norm`.
        bias: as for `layer_norm`.
        mask: which gradients are wanted.
    """
    x = x.contiguous()
    rows, slopes = _rows(x, shape), _rows(grad.contiguous(), shape)
    statistics = [part.view(-1, *[1] * len(shape)) for part in (mean, deviation)]
    backward = torch.ops.aten.native_layer_norm_backward
    of_x, *others = backward(slopes, rows, shape, *statistics, weight, bias, mask)
    return (nested_like(of_x, x) if mask[0] else None, *others)


def _rows(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the items of a contiguous nested tensor as [rows, *shape]."""
    sizes: Any = x._nested_tensor_size()  # on the CPU, a row for each item
    last = sizes[:, -len(shape) :]
    if len(shape) >= x.dim() or (last != last[:1]).any():
        raise RuntimeError(
            f"normalized_shape extends into irregular dimensions for the nested tensor: "
            f"{[*shape]}, where items are of {sizes.tolist()}"
        )
    for dim, (size, wanted) in enumerate(zip(last[:1].flatten().tolist(), shape, strict=False)):
        if size != wanted:
            raise RuntimeError(
                f"The shape at dimension {dim} of normalized_shape is {wanted}, "
                f"but that of the input is {size}"
            )
    items = int(sizes.prod(1).sum()) if len(sizes) else 0
    return x.values()[:items].view(items // max(prod(shape), 1), *shape)


def nested_like(rows: Tensor, like: Tensor) -> Tensor:
    """Return rows [all rows, dim] as the items of a nested tensor with the sizes of another one."""
    of: Any = like  # torch types these with fewer arguments
    places = of._nested_tensor_size(), of._nested_tensor_strides()
    made: Any = torch._nested_view_from_buffer
    nested: Tensor = made(rows.reshape(-1), *places, of._nested_tensor_storage_offsets())
    return nested
