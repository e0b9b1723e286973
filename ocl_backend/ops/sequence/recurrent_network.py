"""Recurrent networks of several layers: which are computed layer by layer, and how.

torch unrolls LSTM, GRU and RNN into the operators of every step. Where that is slower than a launch
for all steps (`recurrent_layer`), these functions serve in its place, above autograd. Gradients of
gradients, and all that no kernel serves, are torch's composition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ocl_backend.dispatch.composite import COMPOSED, are_plain, is_transformed
from ocl_backend.ops.sequence.recurrent_choice import is_faster
from ocl_backend.ops.sequence.recurrent_kernels import GATES, MODES, Mode
from ocl_backend.ops.sequence.recurrent_steps import MOST_STEPS
from oclgen.opencl.device import devices

SERVED = torch.float32, torch.float16, torch.bfloat16


_libraries: list[Any] = []


@dataclass(frozen=True, slots=True)
class Network:
    """What a call of torch's operator says, whatever its mode; `sizes` of a packed sequence."""

    mode: Mode
    x: Tensor
    sizes: tuple[int, ...]
    states: tuple[Tensor, ...]
    parameters: tuple[Tensor, ...]
    has_biases: bool
    layers: int
    dropout: float
    train: bool
    both_ways: bool
    batch_first: bool

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors of the call that lie on the device."""
        return self.x, *self.states, *self.parameters

    @property
    def per_direction(self) -> int:
        """Weights and biases of a layer's direction."""
        return 4 if self.has_biases else 2

    @property
    def is_learning(self) -> bool:
        """Whether autograd records the call."""
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)


def register() -> None:
    """Let these functions serve torch's operators on the device, with autograd or without."""
    library: Any = torch.library.Library  # torch types neither the class nor its methods
    _libraries.append(library("aten", "IMPL"))
    for mode in MODES:
        for label in ("input", "data"):
            serve = partial(_serve, mode, getattr(getattr(torch.ops.aten, mode), label))
            for key in ("AutogradPrivateUse1", "PrivateUse1"):
                _libraries[0].impl(f"{mode}.{label}", serve, key)
    _libraries[0].impl("_cudnn_rnn_backward", _backward, "AutogradPrivateUse1")


def _serve(mode: Mode, overload: Any, x: Tensor, *given: Any) -> tuple[Tensor, ...]:
    packed = overload._overloadname == "data"
    if are_plain([x, *given[:packed]]):  # sizes of fake tensors have no values
        states = given[packed]
        network = Network(
            mode, x, tuple(given[0].tolist()) if packed else (),
            (states,) if isinstance(states, Tensor) else tuple(states),
            tuple(given[1 + packed]), *given[2 + packed :], *[False] * packed,
        )  # fmt: skip
        if _is_served(network):
            return _run(network)
    return tuple(overload._op_dk(COMPOSED, x, *given))


def _is_served(network: Network) -> bool:
    """Say whether kernels serve the call, and are faster than what torch composes it of."""
    tensors, x = network.tensors, network.x
    if not are_plain(tensors) or not x.numel() or is_transformed():
        return False
    if any(t.device != x.device or t.dtype is not x.dtype for t in tensors):
        return False
    if x.dtype not in SERVED or not _fits(network):
        return False
    steps, *sizes = _sizes(network)
    case = network.mode, _dtype(x), *sizes, network.is_learning, steps > MOST_STEPS
    return _is_faster(x.get_device(), *case)


@lru_cache(maxsize=1024)
def _is_faster(
    device: int,
    mode: Mode,
    dtype: torch.dtype,
    batch: int,
    hidden: int,
    learns: bool,
    is_long: bool,
) -> bool:
    return is_faster(devices()[device].limits, mode, dtype, batch, hidden, learns, is_long)


def _fits(network: Network) -> bool:
    """Say whether all shapes are as they must be; torch's composition tells what is wrong."""
    directions, gates = 1 + network.both_ways, GATES[network.mode]
    lines = network.layers * directions
    if network.x.dim() != (2 if network.sizes else 3):
        return False
    if len(network.states) != 1 + (network.mode == "lstm"):
        return False
    _, batch, hidden = _sizes(network)
    if any(state.shape != (lines, batch, hidden) for state in network.states) or not hidden:
        return False
    if len(network.parameters) != lines * network.per_direction:
        return False
    for line in range(lines):
        layer = line // directions
        size = network.x.shape[-1] if layer == 0 else directions * hidden
        rows = gates * hidden
        shapes = [(rows, size), (rows, hidden), (rows,), (rows,)][: network.per_direction]
        found = network.parameters[line * network.per_direction :][: network.per_direction]
        if any(p.shape != shape for p, shape in zip(found, shapes, strict=True)):
            return False
    sizes = network.sizes
    falls = all(before >= after > 0 for before, after in pairwise((*sizes, *sizes[-1:])))
    return not sizes or (falls and sum(sizes) == len(network.x))


def _sizes(network: Network) -> tuple[int, int, int]:
    """Return steps, rows of the batch, and the hidden state's size."""
    hidden = network.states[0].shape[-1]
    if network.sizes:
        return len(network.sizes), network.sizes[0], hidden
    first, second = network.x.shape[:2]
    return (second, first, hidden) if network.batch_first else (first, second, hidden)


def _dtype(x: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("ocl") if torch.is_autocast_enabled("ocl") else x.dtype


def _run(network: Network) -> tuple[Tensor, ...]:
    """Return y and the last states, layer by layer."""
    directions, learning, dtype = 1 + network.both_ways, network.is_learning, _dtype(network.x)
    given, lasts = network.tensors, []
    if network.x.dtype is not dtype:  # a call of `to` takes 1.5 us, also where nothing changes
        given = tuple(tensor.to(dtype) for tensor in given)
    y, states = given[0], given[1 : 1 + len(network.states)]
    parameters = [*given[1 + len(states) :]]
    count = directions * network.per_direction
    for layer in range(network.layers):
        if layer and network.dropout and network.train:
            y = functional.dropout(y, network.dropout)
        own = states
        if network.layers > 1:
            own = tuple(state[layer * directions :][:directions] for state in states)
        weights = parameters[layer * count :][:count]
        y, *last, _, _ = torch.ops.aten._cudnn_rnn(
            y, weights, network.per_direction, None, own[0], own[1] if own[1:] else None,
            MODES.index(network.mode), own[0].shape[-1], 0, 1, network.batch_first, 0.0, learning,
            network.both_ways, network.sizes, None,
        )  # fmt: skip
        lasts.append(last)
    if learning:  # autograd would refuse a program that overwrites y, which no gradient reads
        y = torch.ops.aten._unsafe_view(y, y.shape)
    if network.layers == 1:
        return y, *lasts[0][: len(states)]
    return y, *(torch.cat(parts) for parts in list(zip(*lasts, strict=True))[: len(states)])


def _backward(
    x: Tensor,
    weights: Sequence[Tensor],
    per_direction: int,
    buffer: Tensor,
    h_0: Tensor,
    c_0: Tensor | None,
    *given: Any,
) -> Any:
    """Return gradients of x, h_0, c_0 and weights, which have gradients themselves if wanted.

    Those are of torch's composition, which is computed once more.
    """
    if not torch.is_grad_enabled():
        with torch._C._AutoDispatchBelowAutograd():
            operator: Any = torch.ops.aten._cudnn_rnn_backward
            return operator(x, weights, per_direction, buffer, h_0, c_0, *given)
    _, grad_y, grad_h, grad_c, mode, _, _, _, batch_first, _, _, both_ways, sizes, *_ = given
    states = [h_0] if c_0 is None else [h_0, c_0]
    hx, rest = h_0 if c_0 is None else states, (per_direction == 4, 1, 0.0, False, both_ways)
    operator = getattr(torch.ops.aten, MODES[mode])
    if sizes:
        lengths = torch.tensor(list(sizes), device="cpu")
        results = operator.data._op_dk(COMPOSED, x, lengths, hx, weights, *rest)
    else:
        results = operator.input._op_dk(COMPOSED, x, hx, weights, *rest, batch_first)
    pairs = zip(results, (grad_y, grad_h, grad_c), strict=False)
    reached, grads = zip(*((r, g) for r, g in pairs if g is not None), strict=True)
    leaves = [x, *states, *weights]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = torch.autograd.grad(reached, wanted, grads, create_graph=True, allow_unused=True)
    by_leaf = dict(zip(map(id, wanted), found, strict=True))
    of_x, *of_states = (by_leaf.get(id(leaf)) for leaf in (x, *states))
    of_weights = [by_leaf.get(id(w)) for w in weights]
    return (
        of_x, of_states[0], of_states[1] if c_0 is not None else None,
        [torch.zeros_like(w) if g is None else g for g, w in zip(of_weights, weights, strict=True)],
    )  # fmt: skip
