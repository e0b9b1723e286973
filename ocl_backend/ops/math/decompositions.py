"""Operators expressed in terms of the others: torch's own decompositions, and a few short ones.

No kernel is written here. What torch composes by itself needs no entry.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from operator import ge
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from ocl_backend.dispatch.outputs import into
from ocl_backend.kernels.binning import binned
from ocl_backend.kernels.bounds import check_values
from ocl_backend.kernels.memory_formats import laid_out_like

TORCH = (
    *("binary_cross_entropy_backward", "mse_loss", "mse_loss_backward"),
    *("smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss_backward"),
    *("log_sigmoid_forward", "log_sigmoid_backward", "glu", "glu_backward"),
    *("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    *("upsample_linear1d", "upsample_trilinear3d"),
    *("im2col", "col2im", "unfold_backward", "native_group_norm_backward"),
    *("channel_shuffle", "tril_indices", "triu_indices", "multi_margin_loss"),
    *("_euclidean_dist", "trace", "isin", "renorm", "linalg_cross"),
)
"""Operators whose decomposition by torch reaches kernels of this device."""


def equal(a: Tensor, b: Tensor) -> bool:
    """Whether shapes and all items are the same; waits for the device."""
    return a.shape == b.shape and bool((a == b).all())


def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Return position i repeated `repeats[i]` times, as int64; without a size waits for the counts.

    Raises:
        RuntimeError: the counts are no row of integers, or one is negative that was waited for.
    """
    if repeats.dim() != 1 or repeats.dtype not in (torch.int32, torch.int64):
        raise RuntimeError(f"repeat_interleave of {repeats.dim()} dimensions of {repeats.dtype}")
    ends, total = repeats.cumsum(0), output_size or 0
    if output_size is None and len(ends):
        total, least = torch.stack([ends[-1], repeats.min()]).tolist()
        if least < 0:
            raise RuntimeError("repeats can not be negative")
    positions = torch.arange(total, device=repeats.device)
    return torch.searchsorted(ends, positions, right=True)


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count each integer, or add up its weights; waits for the smallest and the largest.

    Raises:
        NotImplementedError, RuntimeError: x has no integers, or a negative one; it has several
            dimensions or weights of another shape, or `minlength` is negative.
    """
    fits = weights is None or weights.shape == x.shape or not x.numel()
    if x.dim() != 1 or minlength < 0 or not fits:
        raise RuntimeError(f"bincount of {x.dim()} dimensions, minlength {minlength}")
    if x.is_floating_point() or x.is_complex() or x.dtype is torch.bool:
        raise NotImplementedError(f"bincount of {x.dtype}; give integers")
    if not x.numel():  # then torch does not look at the weights
        return x.new_zeros(minlength, dtype=torch.int64)
    least, most = (int(end) for end in torch.aminmax(x))
    if least < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    size = max(minlength, most + 1)
    if weights is not None and weights.dtype is not torch.float32:
        weights = weights.to(torch.float64)
    return binned(x, size, "own", 0, most, weights)


def binary_cross_entropy(x: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return the loss of probabilities as torch composes it; what is outside [0, 1] is a fault."""
    check_values("binary_cross_entropy", x, "x >= 0 && x <= 1")
    check_values("binary_cross_entropy target", target, "x >= 0 && x <= 1")
    loss: Tensor = decomposition_table[torch.ops.aten.binary_cross_entropy.default](
        x, target, *args, **kwargs
    )
    return loss


def huber_loss(x: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return the loss as torch composes it, in x's dtype: as the CPU, also for a wider target."""
    loss: Tensor = decomposition_table[torch.ops.aten.huber_loss.default](
        x, target, *args, **kwargs
    )
    return loss.to(x.dtype)


def addr(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """Return beta x + alpha (a outer b) as torch composes it.

    In 16 bits each product is rounded in the CPU's order: a's first, and both numbers before.
    """
    narrow = x.dtype in (torch.half, torch.bfloat16) and x.dtype is a.dtype is b.dtype
    if narrow and a.dim() == b.dim() == 1 and beta:
        beta, alpha = (torch.tensor(number, dtype=x.dtype).item() for number in (beta, alpha))
        x = x.expand(len(a), len(b))
        rounded: Tensor = x * beta + (a * alpha).unsqueeze(1) * b
        return rounded
    total: Tensor = decomposition_table[torch.ops.aten.addr.default](
        x, a, b, beta=beta, alpha=alpha
    )
    return total


def _scale(size: int, out_size: int, scale: float | None) -> float:
    return 1 / scale if scale is not None and scale > 0 else size / out_size


def nearest_backward(
    grad: Tensor,
    output_size: list[int],
    input_size: list[int],
    *scales: float | None,
    shift: float = 0,
) -> Tensor:
    """Add the gradient of every output item to the input item it was copied from."""
    spatial = len(output_size)
    given = [*scales, *[None] * spatial][:spatial]
    result = grad
    for axis, scale in enumerate(given, start=2):
        size, out_size = input_size[axis], output_size[axis - 2]
        positions = torch.arange(out_size, device=grad.device, dtype=torch.float32) + shift
        index = (positions * _scale(size, out_size, scale)).floor().long().clamp(max=size - 1)
        result = _gathered_back(result, axis, index, size)
    return result


def nearest_exact_backward(grad: Tensor, *rest: Any) -> Tensor:
    """As `nearest_backward`, for items copied from where their middle lies."""
    return nearest_backward(grad, *rest, shift=0.5)


def replication_pad_backward(grad: Tensor, x: Tensor, padding: list[int]) -> Tensor:
    """Add the gradient of every padded item to the item at the border it was copied from."""
    result = grad
    for position in range(len(padding) // 2):
        axis = x.dim() - 1 - position
        index = torch.arange(grad.shape[axis], device=grad.device) - padding[2 * position]
        index = index.clamp_(0, x.shape[axis] - 1)
        result = _gathered_back(result, axis, index, x.shape[axis])
    return result


def _gathered_back(grad: Tensor, axis: int, index: Tensor, size: int) -> Tensor:
    """Return the gradient of x.index_select(axis, index), x having `size` items there."""
    shape = [*grad.shape[:axis], size, *grad.shape[axis + 1 :]]
    return grad.new_zeros(shape).index_add_(axis, index, grad)


def prelu_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and of weight, not yet summed over what it was broadcast to."""
    return torch.where(x > 0, grad, weight * grad), torch.where(x > 0, 0, x * grad)


def bilinear_backward(
    grad: Tensor,
    output_size: list[int],
    input_size: list[int],
    align_corners: bool,
    *scales: float | None,
) -> Tensor:
    """Spread the gradient of every output item over the input items it was mixed from."""
    spatial = len(output_size)
    given = [*scales, *[None] * spatial][:spatial]
    exact = torch.float64 if grad.dtype is torch.float64 else torch.float32
    result = grad
    for axis, scale in enumerate(given, start=2):
        size, out_size = input_size[axis], output_size[axis - 2]
        positions = torch.arange(out_size, device=grad.device, dtype=exact)
        if align_corners:
            source = positions * ((size - 1) / max(out_size - 1, 1))
        else:
            source = ((positions + 0.5) * _scale(size, out_size, scale) - 0.5).clamp(min=0)
        low = source.floor().clamp(max=size - 1)
        part = (source - low).to(grad.dtype).view(-1, *[1] * (result.dim() - axis - 1))
        first = low.long()
        shape = [*result.shape[:axis], size, *result.shape[axis + 1 :]]
        total = result.new_zeros(shape).index_add_(axis, first, result * (1 - part))
        result = total.index_add_(axis, (first + 1).clamp(max=size - 1), result * part)
    return result


def rrelu_with_noise(
    x: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return x with negative items scaled at random, writing the scales to `noise`."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2)
    drawn = torch.empty_like(x).uniform_(lower, upper, generator=generator)
    noise.copy_(torch.where(x <= 0, drawn, 1))
    return x * noise


def native_group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x normalised by group, mean and 1 / deviation [batch, groups]; channels_last is kept.

    torch's own composition takes contiguous tensors alone. Halves are computed with as floats.
    """
    rows = x.contiguous().view(batch, groups, channels // groups, pixels)
    rows = rows.float() if x.dtype in (torch.half, torch.bfloat16) else rows
    variance, mean = torch.var_mean(rows, (2, 3), correction=0, keepdim=True)
    scale = (variance + eps).rsqrt()
    each = (1, groups, channels // groups, 1)
    factor = scale if weight is None else scale * weight.view(each)
    result = (rows - mean) * factor
    if bias is not None:
        result += bias.view(each)
    statistics = (mean.view(batch, groups).to(x.dtype), scale.view(batch, groups).to(x.dtype))
    return laid_out_like(result.view(x.shape).to(x.dtype), x), *statistics


def native_group_norm_backward(
    grad: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None, batch: int,
    channels: int, pixels: int, groups: int, output_mask: list[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of x, weight and bias as torch composes them, which divides by pixels.

    Where there are none, all gradients are 0.
    """
    if x.numel():
        found: tuple[Tensor | None, ...] = decomposition_table[
            torch.ops.aten.native_group_norm_backward.default
        ](grad, x, mean, scale, weight, batch, channels, pixels, groups, output_mask)
        return found
    shapes = (x.shape, (channels,), (channels,))
    wanted = zip(shapes, output_mask, strict=True)
    return tuple(x.new_zeros(shape) if asked else None for shape, asked in wanted)


def max_unpool(spatial: int) -> Callable[..., Tensor]:
    """Return the operator that puts maxima back to where they were in each plane.

    torch's composition takes a place behind its plane for one of the next plane. So it only says
    what it refuses and what the result's shape is: `scatter` notes wrong places.
    """
    decomposed = decomposition_table[getattr(torch.ops.aten, f"max_unpool{spatial}d").default]

    def unpooled(x: Tensor, indices: Tensor, output_size: list[int], *rest: Any) -> Tensor:
        shape = decomposed(x.to("meta"), indices.to("meta"), output_size, *rest).shape
        planes = x.new_zeros((*shape[:-spatial], prod(shape[-spatial:])))
        if planes.numel():
            planes.scatter_(-1, indices.flatten(-spatial), x.flatten(-spatial))
        return planes.view(shape)

    return unpooled


def padding(name: str) -> Callable[[Tensor, list[int]], Tensor]:
    """Return torch's decomposition of a padding, which takes sizes that torch's kernels refuse."""
    decomposed = decomposition_table[getattr(torch.ops.aten, name).default]
    spatial = int(name[-2])

    def padded(x: Tensor, pad: list[int]) -> Tensor:
        sizes = x.shape[-spatial:]
        if x.dim() not in (spatial + 1, spatial + 2) or 0 in (*sizes, x.shape[-spatial - 1]):
            raise RuntimeError(
                f"{name}: expected {spatial + 1}D or {spatial + 2}D input, empty in no dimension "
                f"but the batch's, got {[*x.shape]}"
            )
        widest = [max(pad[2 * i : 2 * i + 2]) for i in reversed(range(spatial))]
        if name.startswith("reflection") and any(map(ge, widest, sizes)):
            raise RuntimeError(f"{name}: padding {pad} must be less than the sizes {[*sizes]}")
        padded_x: Tensor = decomposed(x, pad)
        return padded_x

    return padded


PADDINGS = (
    *("reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
    *("replication_pad1d", "replication_pad2d", "replication_pad3d"),
)

SHIFTS: dict[str, Callable[..., Tensor]] = {
    "__lshift__": torch.bitwise_left_shift,
    "__rshift__": torch.bitwise_right_shift,
    "__ilshift__": Tensor.bitwise_left_shift_,
    "__irshift__": Tensor.bitwise_right_shift_,
}
"""Operators of Python's `<<` and `>>`."""

OWN: dict[str, Callable[..., Any]] = {
    **{f"{name}.{kind}": run for name, run in SHIFTS.items() for kind in ("Scalar", "Tensor")},
    "addr": addr,
    "addr.out": into(addr),
    "equal": equal,
    "mvlgamma.out": into(torch.mvlgamma),
    "repeat_interleave.Tensor": repeat_interleave,
    "bincount": bincount,
    "binary_cross_entropy": binary_cross_entropy,
    "binary_cross_entropy.out": into(binary_cross_entropy),
    "huber_loss": huber_loss,
    "huber_loss.out": into(huber_loss),
    "_prelu_kernel_backward": prelu_backward,
    "native_group_norm": native_group_norm,
    "native_group_norm_backward": native_group_norm_backward,
    **{f"max_unpool{spatial}d": max_unpool(spatial) for spatial in (2, 3)},
    **{f"max_unpool{spatial}d.out": into(max_unpool(spatial)) for spatial in (2, 3)},
    **{name: padding(name) for name in PADDINGS},
    **{f"{name}.out": into(padding(name)) for name in PADDINGS},
    "rrelu_with_noise": rrelu_with_noise,
    "rrelu_with_noise.out": into(rrelu_with_noise),
    "rrelu_with_noise_": lambda x, *args, **kwargs: x.copy_(rrelu_with_noise(x, *args, **kwargs)),
    "replication_pad1d_backward": replication_pad_backward,
    "replication_pad2d_backward": replication_pad_backward,
    "replication_pad3d_backward": replication_pad_backward,
    "_upsample_nearest_exact1d_backward": nearest_exact_backward,
    "_upsample_nearest_exact2d_backward": nearest_exact_backward,
    "_upsample_nearest_exact3d_backward": nearest_exact_backward,
    "upsample_nearest1d_backward": nearest_backward,
    "upsample_nearest2d_backward": nearest_backward,
    "upsample_nearest3d_backward": nearest_backward,
    "upsample_linear1d_backward": bilinear_backward,
    "upsample_bilinear2d_backward": bilinear_backward,
    "upsample_trilinear3d_backward": bilinear_backward,
}


def _decomposed(name: str) -> dict[str, Callable[..., Any]]:
    """Return torch's decomposition of every functional overload of `name`, and its out forms."""
    found = {}
    packet = getattr(torch.ops.aten, name)
    for label in packet.overloads():
        overload = getattr(packet, label)
        function = decomposition_table.get(overload)
        composite = overload.has_kernel_for_dispatch_key(IMPLICIT)
        if function is None or composite:
            continue
        written = [a.name for a in overload._schema.arguments if a.is_out]
        qualified = name if label == "default" else f"{name}.{label}"
        if not written:
            found[qualified] = function
        elif (plain := _functional(label)) in packet.overloads():
            found[qualified] = into(decomposition_table[getattr(packet, plain)], *written)
    return found


def _functional(label: str) -> str:
    """Return the overload that an out form such as `Tensor_out` writes the result of."""
    plain = label.rpartition("_")[0] if label.endswith("_out") else ""
    return plain or "default"


IMPLICIT = torch._C.DispatchKey.CompositeImplicitAutograd

OPERATORS: dict[str, Callable[..., Any]] = {
    **{key: value for name in TORCH for key, value in _decomposed(name).items()},
    **OWN,
}
"""Implementations by aten name."""
