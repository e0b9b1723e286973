"""Attention whose memory grows linearly in the sequence, forward and backward.

The operators behind `scaled_dot_product_attention`; the shim decides which calls come here, the
rest is torch's composition of products and a softmax. The kernels are those of the families of
`AttentionProblem`, the best known for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ocl_backend.dispatch.tuned import TunedCall, remember, tuned_call
from ocl_backend.dtypes import STORAGE
from ocl_backend.ops.reduce.reductions import dots_of_rows
from ocl_backend.ops.tensor.random import reserve_there
from oclgen.attention_problem import Direction
from oclgen.families.attention.attention_parts import AXES
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.problem import AttentionProblem

CHUNK_BYTES = 16
"""What kernels read at once of rows that are so long."""
OPERATOR = "scaled_dot_product_attention"
"""The operator's name in warnings and profiles."""
_kept: list[Any] = []


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
) -> tuple[Tensor, Tensor, None, None, int, int, Tensor, Tensor, None]:
    """Return softmax(scale query key^T + attn_bias) value and each row's logsumexp, among others.

    query [batch, heads, queries, dim], key [batch, shared, keys, dim] and value [batch, shared,
    keys, dim_v] share a dtype of fp32, fp16 or bf16; heads is a multiple of shared; attn_bias
    broadcasts to [batch, heads, queries, keys]. The result has the strides of query, the logsumexp
    is fp32 [batch, heads, queries]. Of the others, only the seed means something here: an int64
    tensor of seed and counter of dropout's random numbers. Without dropout it is empty, as the
    offset always is: torch.compile keeps both for the gradient. What torch's own description of the
    operator leaves out, too, is None.
    """
    q, k, v = map(_dense_rows, (query, key, value))
    out = _empty_like(query, value.shape[-1])
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    random = reserve_there(q, lse.numel() * k.shape[2]) if dropout_p > 0 else None
    run = _Call(q, k, v, attn_bias, dropout_p, is_causal, scale, random)
    run("fwd", (q, k, v), (out, lse))
    nothing = lse.new_empty(0, dtype=torch.int64)
    seed = nothing if random is None else random
    return out, lse, None, None, q.shape[2], k.shape[2], seed, nothing, None


def attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: Sequence[bool],
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor | None,
    philox_offset: Tensor | None,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of query, key and value that `grad_input_mask` asks for."""
    q, k, v, grad = map(_dense_rows, (query, key, value, grad_out))
    random = philox_seed if dropout_p > 0 else None
    run = _Call(q, k, v, attn_bias, dropout_p, is_causal, scale, random)
    delta = dots_of_rows(grad, out)
    given = (q, k, v, grad, logsumexp, delta)
    grad_q = grad_k = grad_v = None
    if grad_input_mask[0] and any(grad_input_mask[1:3]) and run.is_fastest_at_once():
        grad_q, grad_k, grad_v = map(torch.empty_like, (q, k, v))
        run("bwd", given, (grad_q, grad_k, grad_v))
        return grad_q, grad_k, grad_v, None
    if grad_input_mask[0]:
        grad_q = torch.empty_like(q)
        run("bwd_q", given, (grad_q,))
    if grad_input_mask[1] or grad_input_mask[2]:
        grad_k, grad_v = torch.empty_like(k), torch.empty_like(v)
        run("bwd_kv", given, (grad_k, grad_v))
    return grad_q, grad_k, grad_v, None


def describe() -> None:
    """Tell torch which shapes the gradients have, where it has no description (2.11 and 2.12).

    torch.compile and DTensor ask for it before they call the operator.
    """
    name = "_scaled_dot_product_fused_attention_overrideable_backward"
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
        aten: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        aten.impl(name, _described, "Meta")
        _kept.append(aten)


def _described(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None,
    grad_input_mask: Sequence[bool], *_: Any, **__: Any,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    wanted = zip((query, key, value), grad_input_mask[:3], strict=True)
    return (*(torch.empty_like(one) if asked else None for one, asked in wanted), None)


class _Call:
    """One call of the operator: what its kernels have in common."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float,
        causal: bool, scale: float | None, random: Tensor | None,
    ) -> None:  # fmt: skip
        batch, heads, queries, dim = q.shape
        keys = k.shape[2]
        self.sizes = (batch, heads, k.shape[1], queries, keys, dim, v.shape[-1])
        self.how = (STORAGE[q.dtype], causal, mask is not None, random is not None)
        self.device = q.get_device()
        self.last: list[Tensor] = []
        if mask is not None:
            # of 16-bit tensors a mask may be fp32, too; kernels read the dtype of the others
            self.last.append(mask.to(q.dtype).expand(batch, heads, queries, keys))
        if random is not None:
            self.last.append(random)
        self.numbers = (1 - dropout_p, 1 / sqrt(dim) if scale is None else scale)

    def is_fastest_at_once(self) -> bool:
        """Say whether one kernel for all gradients is faster than two that share out rows.

        It needs five products where they need seven, and on a processor's core one head of k and v
        after the other. So it is, unless many cores have no head or wait for the last ones.
        """
        limits = devices()[self.device].limits
        if limits.kind != "cpu":
            return False
        batch, _, kv_heads, *_ = self.sizes
        heads, cores = batch * kv_heads, limits.compute_units
        return 5 * ceil_div(heads, cores) * cores <= 7 * heads

    def __call__(
        self, direction: Direction, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        given = [*inputs, *outputs, *self.last]
        strides = tuple([tensor.stride() for tensor in given])
        key = _Key(self.device, direction, self.sizes, self.how, strides, self.numbers)
        _prepared(key)(*[tensor.data_ptr() for tensor in given])


class _Key(NamedTuple):
    """What a call is prepared for; strides are those of the problem's buffers, in their order."""

    device: int
    direction: Direction
    sizes: tuple[int, ...]
    how: tuple[str, bool, bool, bool]
    strides: tuple[tuple[int, ...], ...]
    numbers: tuple[float, float]


@remember()
def _prepared(key: _Key) -> TunedCall:
    """Return the tuned call of a direction; strides, scale and chance are arguments of it."""
    dtype, causal, masked, dropout = key.how
    batch, heads, kv_heads, queries, keys, head_dim, value_dim = key.sizes
    problem = AttentionProblem(
        batch, heads, kv_heads, queries, keys, head_dim, value_dim, dtype, key.direction, causal,
        mask=masked, dropout=dropout,
    )  # fmt: skip
    chance, scale = key.numbers
    scalars: dict[str, float] = {"scale": scale, "chance": chance}
    for role, strides in zip(problem.buffers, key.strides, strict=True):
        scalars |= {f"{role}_{axis}": step for axis, step in zip(AXES, strides, strict=False)}
    return tuned_call(OPERATOR, key.device, problem, tuple(scalars.items()))


def _dense_rows(x: Tensor) -> Tensor:
    """Return a tensor whose rows are dense and, where they are whole chunks, aligned to those."""
    batch, head, row, item = x.stride()
    if item != 1:
        return x.contiguous()
    size = x.element_size()
    if x.shape[3] * size % CHUNK_BYTES or (
        (x.data_ptr() | (batch | head | row) * size) % CHUNK_BYTES == 0
    ):
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _empty_like(query: Tensor, dim: int) -> Tensor:
    """Return an empty tensor whose dimensions lie in memory in query's order, rows dense."""
    if query.is_contiguous():
        return query.new_empty((*query.shape[:3], dim))
    order = sorted(range(3), key=query.stride, reverse=True)
    shape = [*(query.shape[axis] for axis in order), dim]
    places = [order.index(axis) for axis in range(3)]
    return query.new_empty(shape).permute(*places, 3)


OPERATORS: dict[str, Callable[..., Any]] = {
    "_scaled_dot_product_fused_attention_overrideable": attention,
    "_scaled_dot_product_fused_attention_overrideable_backward": attention_backward,
}
"""Implementations by aten name."""
