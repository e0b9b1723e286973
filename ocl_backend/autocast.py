"""Mixed precision: which operators `torch.autocast("ocl")` runs in half precision, which in fp32.

The lists follow PyTorch's documentation of autocast for CUDA; the casts are ordinary,
differentiable `Tensor.to`. No kernel is defined here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

LOWER = """
addbmm addmm addmv baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d conv_transpose3d gru_cell linear lstm_cell matmul mm mv prelu rnn_relu_cell
rnn_tanh_cell scaled_dot_product_attention
"""
"""Products, which gain most from half precision and sum in fp32 inside."""

FLOAT32 = """
acos asin binary_cross_entropy binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss
cosine_similarity cross_entropy_loss cumprod cumsum dist erfinv exp expm1 group_norm
hinge_embedding_loss huber_loss instance_norm kl_div l1_loss layer_norm log log10 log1p log2
log_softmax logsumexp margin_ranking_loss mse_loss multi_margin_loss nll_loss nll_loss2d norm pdist
poisson_nll_loss pow prod reciprocal renorm rsqrt sinh smooth_l1_loss soft_margin_loss softmax
softplus sum tan triplet_margin_loss
"""
"""Operators whose range or accumulation half precision would spoil."""

WIDEST = """
addcdiv addcmul atan2 bilinear cat dot grid_sampler index_put stack tensordot
"""
"""Operators that want one dtype of all their tensors: the widest of them."""

_LIBRARIES: list[torch.library.Library] = []


def register() -> None:
    """Register the casts with torch's autocast; every other operator passes through unchanged."""
    library: Callable[..., torch.library.Library] = torch.library.Library
    through, casts = library("_", "IMPL", "AutocastPrivateUse1"), library("aten", "IMPL")
    fallback: Callable[..., None] = through.fallback
    fallback(torch.library.fallthrough_kernel)
    implement: Callable[..., None] = casts.impl
    for names, choose in ((LOWER, _lower), (FLOAT32, _float32), (WIDEST, _widest)):
        for name in names.split():
            packet = getattr(torch.ops.aten, name)
            for overload in packet.overloads():
                operator = getattr(packet, overload)
                if not operator._schema.is_mutable:
                    implement(operator, partial(_cast, operator, choose), "AutocastPrivateUse1")
    _LIBRARIES.extend((through, casts))


def _cast(
    operator: Callable[..., Any],
    choose: Callable[[list[torch.Tensor]], torch.dtype],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Call `operator` below autocast, its floating tensors cast to the dtype `choose` returns."""
    values, layout = pytree.tree_flatten((args, kwargs))
    wanted = choose([value for value in values if _is_cast(value)])
    values = [value.to(wanted) if _is_cast(value) else value for value in values]
    args, kwargs = pytree.tree_unflatten(values, layout)
    with torch._C._DisableAutocast():
        return operator(*args, **kwargs)


def _is_cast(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "ocl"
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _lower(_: list[torch.Tensor]) -> torch.dtype:
    return torch.get_autocast_dtype("ocl")


def _float32(_: list[torch.Tensor]) -> torch.dtype:
    return torch.float32


def _widest(tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.float32 if any(t.dtype is torch.float32 for t in tensors) else _lower(tensors)
