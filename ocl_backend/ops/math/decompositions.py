"""Operators expressed in terms of the others: torch's own decompositions, and a few short ones.

No kernel is written here. What torch composes by itself needs no entry.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from ocl_backend.dispatch.outputs import into
from ocl_backend.kernels import repeated
from ocl_backend.kernels.binning import binned, ends

TORCH = (
    *("glu", "unfold_backward"),
    *("channel_shuffle", "_euclidean_dist", "trace", "isin", "renorm"),
)
"""Operators whose decomposition by torch reaches kernels of this device."""


def equal(a: Tensor, b: Tensor) -> bool:
    """Whether shapes and all items are the same; waits for the device."""
    return a.shape == b.shape and bool((a == b).all())


def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Return position i repeated `repeats[i]` times, in the counts' dtype.

    Without a size waits for the counts.

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
    if repeated.serves(repeats):
        return repeated.repeated(ends, total, repeats.dtype)
    positions = torch.arange(total, device=repeats.device)
    return torch.searchsorted(ends, positions, right=True, out_int32=repeats.dtype is torch.int32)


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
    least, most = map(int, ends(x))
    if least < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    size = max(minlength, most + 1)
    if weights is not None and weights.dtype is not torch.float32:
        weights = weights.to(torch.float64)
    return binned(x, size, "own", 0, most, weights)


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


def prelu_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and of weight, not yet summed over what it was broadcast to."""
    return torch.where(x > 0, grad, weight * grad), torch.where(x > 0, 0, x * grad)


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
    "_prelu_kernel_backward": prelu_backward,
    **{f"max_unpool{spatial}d": max_unpool(spatial) for spatial in (2, 3)},
    **{f"max_unpool{spatial}d.out": into(max_unpool(spatial)) for spatial in (2, 3)},
    "rrelu_with_noise": rrelu_with_noise,
    "rrelu_with_noise.out": into(rrelu_with_noise),
    "rrelu_with_noise_": lambda x, *args, **kwargs: x.copy_(rrelu_with_noise(x, *args, **kwargs)),
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
