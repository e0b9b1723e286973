"""Attention whose memory grows linearly in the sequence, forward and backward.

The operators behind `scaled_dot_product_attention`; the shim decides which calls come here, the
rest is torch's composition of products and a softmax. The kernels are in `attention_kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from ocl_backend.kernels.attention_kernels import Direction, Problem, Sizes, prepared
from ocl_backend.ops.tensor.random import reserve

NOTHING = torch.empty(0, dtype=torch.int64)
"""What takes the places of results that only other devices have."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, Tensor, Tensor, Tensor]:
    """Return softmax(scale query key^T + attn_bias) value and each row's logsumexp, among others.

    query [batch, heads, queries, dim], key [batch, shared, keys, dim] and value [batch, shared,
    keys, dim_v] share a dtype of fp32, fp16 or bf16; heads is a multiple of shared; attn_bias
    broadcasts to [batch, heads, queries, keys]. The result has the strides of query, the logsumexp
    is fp32 [batch, heads, queries]. Of the others, only the seed and the offset of dropout's random
    numbers mean something here.
    """
    q, k, v = map(_dense_rows, (query, key, value))
    out = _empty_like(query, value.shape[-1])
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    seed, offset = NOTHING, NOTHING
    random: tuple[int, int] | None = None
    if dropout_p > 0:
        random = reserve(q, None, lse.numel() * k.shape[2])
        seed, offset = map(torch.tensor, random)
    run = _Call(q, k, v, attn_bias, dropout_p, is_causal, scale, random)
    run("forward", (q, k, v, out), (lse,))
    return out, lse, NOTHING, NOTHING, q.shape[2], k.shape[2], seed, offset, NOTHING


def attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: Sequence[bool],
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of query, key and value that `grad_input_mask` asks for."""
    q, k, v, grad = map(_dense_rows, (query, key, value, grad_out))
    random = (int(philox_seed), int(philox_offset)) if dropout_p > 0 else None
    run = _Call(q, k, v, attn_bias, dropout_p, is_causal, scale, random)
    delta = torch.mul(grad, out).sum(-1, dtype=torch.float32)
    rows = (logsumexp, delta)
    grad_q = grad_k = grad_v = None
    if grad_input_mask[0]:
        grad_q = torch.empty_like(q)
        run("grad_query", (q, k, v, grad, grad_q), rows)
    if grad_input_mask[1] or grad_input_mask[2]:
        grad_k, grad_v = torch.empty_like(k), torch.empty_like(v)
        run("grad_key", (q, k, v, grad, grad_k, grad_v), rows)
    return grad_q, grad_k, grad_v, None


class _Call:
    """One call of the operator: what its kernels have in common."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float,
        causal: bool, scale: float | None, random: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        batch, heads, queries, dim = q.shape
        self.common = (q.dtype, dim, v.shape[-1], causal, mask is not None, random is not None)
        self.sizes = (q.get_device(), batch, heads, k.shape[1], queries, k.shape[2])
        self.mask = None if mask is None else mask.expand(batch, heads, queries, k.shape[2])
        scale = 1 / sqrt(dim) if scale is None else scale
        self.numbers = (scale,) if random is None else (1 - dropout_p, *random, scale)

    def __call__(
        self, direction: Direction, strided: Sequence[Tensor], rows: Sequence[Tensor]
    ) -> None:
        given = [*strided, *rows] if self.mask is None else [*strided, *rows, self.mask]
        masks = [] if self.mask is None else [self.mask]
        strides = tuple(tensor.stride() for tensor in (*strided, *masks))
        launch = prepared(Problem(direction, *self.common), Sizes(*self.sizes, strides))
        launch(*(tensor.data_ptr() for tensor in given), *self.numbers)


def _dense_rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _empty_like(query: Tensor, dim: int) -> Tensor:
    """Return an empty tensor whose dimensions lie in memory in query's order, rows dense."""
    order = sorted(range(3), key=query.stride, reverse=True)
    shape = [*(query.shape[axis] for axis in order), dim]
    places = [order.index(axis) for axis in range(3)]
    return query.new_empty(shape).permute(*places, 3)


OPERATORS: dict[str, Callable[..., Any]] = {
    "_scaled_dot_product_fused_attention_overrideable": attention,
    "_scaled_dot_product_fused_attention_overrideable_backward": attention_backward,
}
"""Implementations by aten name."""
