"""One layer of a recurrent network, in one direction or both, and its gradients.

The products with the input are one product for all steps; all that depends on the step before is
one launch (`recurrent_kernels`). They stand behind torch's operators of cuDNN, whose formula of the
gradients serves any device. `recurrent_network` decides which networks are computed so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ocl_backend.ops.sequence.recurrent_choice import is_stepped
from ocl_backend.ops.sequence.recurrent_kernels import (
    GATES,
    MODES,
    SAVED,
    Case,
    launched,
    rows_of_group,
)
from ocl_backend.ops.sequence.recurrent_steps import MOST_STEPS, stepped
from ocl_backend.runtime import capture
from ocl_backend.runtime.launch import Prepared
from ocl_backend.runtime.tables import as_table
from oclgen.opencl.device import devices


class Walk(NamedTuple):
    """Where the rows of a step lie: in [steps, batch] or [batch, steps], or packed one by one."""

    steps: int
    batch: int
    row_of_step: int
    row_of_batch: int
    table: Tensor | None = None


def recurrent_layer(
    x: Tensor,
    weights: Sequence[Tensor],
    per_direction: int,
    _: Tensor | None,
    h_0: Tensor,
    c_0: Tensor | None,
    mode: int,
    hidden: int,
    proj_size: int,
    layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    both_ways: bool,
    batch_sizes: Sequence[int],
    dropout_state: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return y [..., directions * hidden], h_n, c_n, what the backward pass needs, and nothing.

    Args:
        x: [steps, batch, n], [batch, steps, n] or, if packed, [rows, n].
        weights: of each direction those of input and hidden state, and the two biases if any.
        per_direction: how many that are, 2 or 4.
        h_0: [directions, batch, hidden].
        c_0: the same, for an LSTM.
        mode: an index of `MODES`.
        hidden: size of the hidden state.
        proj_size: 0.
        layers: 1.
        batch_first: whether x is [batch, steps, n].
        dropout: without effect on one layer.
        train: whether the backward pass will come.
        both_ways: whether there is a second direction.
        batch_sizes: rows of each step of a packed sequence, else empty.
        dropout_state: unused.

    Raises:
        NotImplementedError: several layers, or a projection.
    """
    if layers != 1 or proj_size:
        raise NotImplementedError("a recurrent layer here is a single one without projection")
    walk, kind = _walk(x, batch_first, batch_sizes), MODES[mode]
    case = _case(x, walk, kind, hidden, per_direction == 4, SAVED[kind] if train else 0)
    flat, width = x.reshape(-1, x.shape[-1]), (1 + both_ways) * hidden
    y = x.new_empty((*x.shape[:-1], width))
    h_n = torch.empty((1 + both_ways, walk.batch, hidden), dtype=x.dtype, device=x.device)
    c_n = torch.empty_like(h_n) if kind == "lstm" else x.new_empty(0)
    saved = x.new_empty((1 + both_ways, len(flat), case.saves * hidden))
    h_0, c_0 = h_0.contiguous(), _dense(c_0)
    for d in range(1 + both_ways):
        w_input, w_hidden, *biases = weights[d * per_direction :][:per_direction]
        given = [
            flat @ w_input.t(), w_hidden.contiguous(), *(bias.contiguous() for bias in biases),
            h_0[d], *_each([c_0], d), y[..., d * hidden :], h_n[d],
            *_each([c_n if kind == "lstm" else None], d), *[saved[d]] * bool(case.saves),
        ]  # fmt: skip
        _run(case, walk, given, width, d)
    return y, h_n, c_n, saved, x.new_empty(0)


def recurrent_layer_backward(
    x: Tensor,
    weights: Sequence[Tensor],
    per_direction: int,
    _: Tensor,
    h_0: Tensor,
    c_0: Tensor | None,
    y: Tensor,
    grad_y: Tensor | None,
    grad_h: Tensor | None,
    grad_c: Tensor | None,
    mode: int,
    hidden: int,
    proj_size: int,
    layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    both_ways: bool,
    batch_sizes: Sequence[int],
    dropout_state: Tensor | None,
    saved: Tensor,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor, Tensor | None, list[Tensor]]:
    """Return the gradients of x, h_0, c_0 and all weights; arguments as of `recurrent_layer`."""
    walk, kind = _walk(x, batch_first, batch_sizes), MODES[mode]
    flat, width = x.reshape(-1, x.shape[-1]), (1 + both_ways) * hidden
    case = _case(x, walk, kind, hidden, False, SAVED[kind])
    h_0, grads_given = h_0.contiguous(), [_dense(g) for g in (grad_y, grad_h, grad_c)]
    c_0, has = _dense(c_0), [grad is not None for grad in grads_given]
    case = replace(case, is_backward=True, has_y=has[0], has_h=has[1], has_c=has[2])
    grad_x: Tensor | None = None
    grads: list[Tensor] = []
    grad_h_0, grad_c_0 = torch.empty_like(h_0), None if c_0 is None else torch.empty_like(c_0)
    for d in range(1 + both_ways):
        w_input, w_hidden = weights[d * per_direction :][:2]
        gates = x.new_empty((len(flat), GATES[kind] * hidden))
        at_hidden = torch.empty_like(gates) if kind == "gru" else gates
        before = x.new_empty((len(flat), hidden))
        of_y, *of_ends = grads_given
        reached = [*([] if of_y is None else [of_y[..., d * hidden :]]), *_each(of_ends, d)]
        given = [
            w_hidden.contiguous(), h_0[d], *_each([c_0], d), saved[d], *reached, gates,
            *[at_hidden] * (kind == "gru"), before, grad_h_0[d], *_each([grad_c_0], d),
        ]  # fmt: skip
        _run(case, walk, given, width, d)
        if mask[0]:
            part = gates @ w_input
            grad_x = part if grad_x is None else grad_x.add_(part)
        if mask[3]:
            grads += [gates.t() @ flat, at_hidden.t() @ before]
            grads += [g.sum(0) for g in (gates, at_hidden)][: per_direction - 2]
    grads = grads or [x.new_empty(0)] * len(weights)
    return None if grad_x is None else grad_x.view_as(x), grad_h_0, grad_c_0, grads


def _run(case: Case, walk: Walk, given: Sequence[Tensor], width: int, direction: int) -> None:
    tensors = given if walk.table is None else [*given, walk.table]
    rows = walk.steps, walk.batch, walk.row_of_step, walk.row_of_batch
    sizes = case.mode, case.dtype.itemsize, walk.batch, case.hidden
    if walk.steps <= MOST_STEPS and is_stepped(case.limits, *sizes):
        launches: Prepared = stepped(case, walk.batch, walk.steps)
    else:
        launches = launched(case, walk.batch)
    launches(*(t.data_ptr() for t in tensors), *rows, width, direction)


def _dense(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _each(tensors: Sequence[Tensor | None], direction: int) -> list[Tensor]:
    return [tensor[direction] for tensor in tensors if tensor is not None]


def _walk(x: Tensor, batch_first: bool, batch_sizes: Sequence[int]) -> Walk:
    if batch_sizes:
        sizes = tuple(map(int, batch_sizes))
        return Walk(len(sizes), sizes[0], 0, 1, _table(x.device, sizes))
    if batch_first:
        return Walk(x.shape[1], x.shape[0], 1, x.shape[1])
    return Walk(x.shape[0], x.shape[1], x.shape[1], 1)


@lru_cache(maxsize=256)
@capture.aside()
def _table(device: torch.device, sizes: tuple[int, ...]) -> Tensor:
    """Return the first row of each step of a packed sequence and how many it has, int32."""
    rows, count = [], 0
    for size in sizes:
        rows.append((count, size))
        count += size
    return as_table(torch.tensor(rows, dtype=torch.int32).to(device))


def _case(x: Tensor, walk: Walk, kind: Any, hidden: int, biased: bool, saves: int) -> Case:
    device = x.get_device()
    tile = rows_of_group(devices()[device].limits, kind, walk.batch, hidden)
    packed = walk.table is not None
    return Case(device, x.dtype, kind, hidden, tile, biased, packed, saves)


OPERATORS: dict[str, Callable[..., Any]] = {
    "_cudnn_rnn": recurrent_layer,
    "_cudnn_rnn_backward": recurrent_layer_backward,
}
"""Implementations by aten name."""
