"""The operators that torch's transformer layers call in inference, composed of other operators.

Training, and masks of numbers, use torch's own composition, which needs nothing from here. Nested
tensors of strided layout are padded, and their rows taken from the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, relu, scaled_dot_product_attention

from ocl_backend.ops.norm.nested_layer_norm import nested_like


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return attention [batch, queries, embed_dim] of projected inputs, and its weights if wanted.

    `mask` is True where a query must not see a key; its type is 0 for [queries, keys], 1 for
    [batch, keys] and 2 for [batch, heads, queries, keys]. Inputs may be nested, without a mask:
    then the result is, too, and weights are 0 behind items.

    Raises:
        RuntimeError: inputs are nested, and there is a mask.
    """
    projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    if query.is_nested:
        _check_nested(mask)
        wanted = (need_weights, average_attn_weights)
        return _nested_attention(query, key, value, (embed_dim, num_head, *projections), wanted)
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    if query is key and key is value:
        parts = linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        parts = tuple(map(linear, (query, key, value), weights, biases))
    heads = (num_head, embed_dim // num_head)
    q, k, v = (part.view(*part.shape[:-1], *heads).transpose(1, 2) for part in parts)
    if mask is not None and mask_type == 1:
        mask = mask[:, None, None, :]
    seen = None if mask is None else mask.bool().logical_not()
    if not need_weights:
        mixed, shares = scaled_dot_product_attention(q, k, v, seen), None
    else:
        shares = _shares(q, k, seen)
        mixed = shares @ v
        shares = shares.mean(1) if average_attn_weights else shares
    return linear(mixed.transpose(1, 2).flatten(2), proj_weight, proj_bias), shares


def _shares(q: Tensor, k: Tensor, seen: Tensor | None) -> Tensor:
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    if seen is not None:
        scores = scores.masked_fill(seen.logical_not(), float("-inf"))
    return torch.softmax(scores, -1)


def _nested_attention(
    query: Tensor, key: Tensor, value: Tensor, given: tuple[Any, ...], wanted: tuple[bool, bool]
) -> tuple[Tensor, Tensor | None]:
    same = query is key and key is value
    q, padding = _padded(query)
    k, unseen = (q, padding) if same else _padded(key)
    v = q if same else _padded(value)[0]
    arguments: Any = (q, k, v, *given, unseen, *wanted, 1)
    mixed, shares = multi_head_attention(*arguments)
    if shares is not None:
        rows = padding[:, :, None] if wanted[1] else padding[:, None, :, None]
        shares = shares.masked_fill(rows, 0.0)
    return _unpadded(mixed, padding, query), shares


def _check_nested(mask: Tensor | None) -> None:
    if mask is not None:
        raise RuntimeError(
            "attention of nested tensors takes no mask: their sizes are the mask. "
            "Use tensor.to_padded_tensor(0) with a mask."
        )


def _padded(nested: Tensor) -> tuple[Tensor, Tensor]:
    """Return items [batch, longest, dim] with zeros behind them, and where those are."""
    x: Any = nested
    lengths = x._nested_tensor_size()[:, :1]  # on the CPU
    dense: Tensor = x.to_padded_tensor(0.0)
    return dense, (torch.arange(dense.shape[1]) >= lengths).to(dense.device)


def _unpadded(dense: Tensor, padding: Tensor, like: Tensor) -> Tensor:
    return nested_like(dense[padding.logical_not()], like.contiguous())


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Return one layer of a transformer's encoder: attention and two products, each with a norm.

    Raises:
        RuntimeError: src is nested, and there is a mask.
    """
    if src.is_nested:
        _check_nested(mask)
        dense, padding = _padded(src)
        done = encoder_layer(
            dense, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu,
            norm_first, eps, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1,
            ffn_bias_1, ffn_weight_2, ffn_bias_2, padding, 1,
        )  # fmt: skip
        return _unpadded(done, padding, src)

    def attend(x: Tensor) -> Tensor:
        given = (qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type)
        return multi_head_attention(x, x, x, embed_dim, num_heads, *given)[0]

    def think(x: Tensor) -> Tensor:
        hidden = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(gelu(hidden) if use_gelu else relu(hidden), ffn_weight_2, ffn_bias_2)

    def norm_1(x: Tensor) -> Tensor:
        return layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attend(norm_1(src))
        return torch.add(x, think(norm_2(x)))
    x = norm_1(src + attend(src))
    return norm_2(x + think(x))


def declines_nesting(x: Tensor, mask: Tensor) -> bool:
    """Return False: `nn.TransformerEncoder` then attends with the mask, on one padded tensor.

    Torch asks whether padding is at the end of each row, to turn x into a nested tensor, whose
    layers it has for CUDA and the CPU alone. Padded positions hold numbers then, not zeros.
    """
    del x, mask
    return False


CAST_BY_PARTS = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")
"""Operators that autocast leaves as they are, and casts the operators which they are composed of.

Torch's layers call them in inference unless autocast is on for CUDA, whatever the layer's device.
Without a kernel for autocast they would compute in the dtype of their weights."""

_kept: list[Any] = []


def register_layers() -> None:
    """Register `CAST_BY_PARTS` for autocast on the device, and for its nested tensors."""
    new: Any = torch.library.Library  # torch types neither the class nor its methods
    _kept.append(new("aten", "IMPL"))
    for name in CAST_BY_PARTS:
        for key in ("AutocastPrivateUse1", "NestedTensorPrivateUse1"):
            _kept[-1].impl(name, OPERATORS[name], key)


OPERATORS: dict[str, Callable[..., Any]] = {
    "_native_multi_head_attention": multi_head_attention,
    "_transformer_encoder_layer_fwd": encoder_layer,
    "_nested_tensor_from_mask_left_aligned": declines_nesting,
}
"""Implementations by aten name."""
