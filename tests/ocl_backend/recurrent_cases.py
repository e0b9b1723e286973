r"""Recurrent networks against the CPU in float64: with states given, gradients of everything.

    OCLGEN_DEVICE_PROFILE=tests/ocl_backend/wide_gpu.toml \
        python -m tests.ocl_backend.recurrent_cases "gru, packed"

runs them, or those that are named, by the kernels that a GPU gets, by a launch for all steps and by
one for each, and prints the launches and the worst error of each.
"""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.fusion import recall
from ocl_backend.ops.sequence import recurrent_layer
from tests import sampled_builds
from tests.ocl_backend.cpu_twin import ocl, relative


class Sizes(NamedTuple):
    """Steps, rows of the batch, and sizes of inputs and hidden states."""

    steps: int
    batch: int
    inputs: int
    hidden: int


CASES: dict[str, tuple[Any, Sizes, dict[str, Any], list[int]]] = {
    "rnn of one unit": (nn.RNN, Sizes(7, 2, 6, 1), {"bias": False}, []),
    "rnn with relu": (
        nn.RNN, Sizes(5, 9, 6, 33), {"nonlinearity": "relu", "bidirectional": True}, []
    ),
    "rnn, packed": (nn.RNN, Sizes(7, 5, 6, 19), {"bidirectional": True}, [3, 5, 1, 7, 5]),
    "lstm, batch first": (nn.LSTM, Sizes(6, 3, 5, 40), {"batch_first": True}, []),
    "lstm of two layers": (
        nn.LSTM, Sizes(4, 11, 6, 17), {"num_layers": 2, "bidirectional": True}, []
    ),
    "lstm, packed": (nn.LSTM, Sizes(4, 4, 6, 19), {"num_layers": 2}, [1, 4, 2, 4]),
    "gru without biases": (nn.GRU, Sizes(5, 1, 6, 100), {"bias": False, "batch_first": True}, []),
    "gru of two layers": (
        nn.GRU, Sizes(4, 11, 6, 17), {"num_layers": 2, "bidirectional": True}, []
    ),
    "gru, packed": (
        nn.GRU, Sizes(4, 4, 6, 7), {"bidirectional": True, "batch_first": True}, [1, 4, 2, 4]
    ),
    "gru of one step": (nn.GRU, Sizes(1, 30, 6, 257), {}, []),
}  # fmt: skip


def flat(found: Any) -> list[Tensor]:
    """Return all tensors of a network's result."""
    y, states = found
    y = y.data if isinstance(y, PackedSequence) else y
    return [y, *(states if isinstance(states, tuple) else (states,))]


def results(network: Any, tensors: list[Tensor], lengths: list[int]) -> list[Tensor]:
    """Return results and gradients of x, states and weights, for gradients drawn by a seed."""
    x, *states = (tensor.detach().clone().requires_grad_() for tensor in tensors)
    first = network.batch_first
    given = pack_padded_sequence(x, lengths, first, enforce_sorted=False) if lengths else x
    found = flat(network(given, tuple(states) if len(states) > 1 else states[0]))
    torch.manual_seed(1)
    grads = [torch.randn(t.shape, dtype=torch.float64).to(x) for t in found]
    leaves = [x, *states, *network.parameters()]
    return [*found, *torch.autograd.grad(found, leaves, grads)]


def worst(name: str, place: torch.device, dtype: torch.dtype) -> float:
    """Return the largest relative error of a case.

    Args:
        name: a key of `CASES`.
        place: the device.
        dtype: of the network there; the CPU's is float64, from the same weights.
    """
    kind, sizes, options, lengths = CASES[name]
    torch.manual_seed(0)
    network = kind(sizes.inputs, sizes.hidden, **options).to(dtype)
    lines = network.num_layers * (2 if network.bidirectional else 1)
    lead = (sizes.steps, sizes.batch)[:: -1 if network.batch_first else 1]
    tensors = [torch.randn(*lead, sizes.inputs)]
    tensors += [torch.randn(lines, sizes.batch, sizes.hidden)] * (2 if kind is nn.LSTM else 1)
    tensors = [tensor.to(dtype) for tensor in tensors]
    theirs = results(deepcopy(network).double(), [t.double() for t in tensors], lengths)
    ours = results(network.to(place), [t.to(place) for t in tensors], lengths)
    return max(relative(a.double(), b) for a, b in zip(ours, theirs, strict=True))


def launches(name: str, place: torch.device) -> list[str]:
    """Return the kernels of a case in float32."""
    with ocl.profile(file=None) as profile:
        worst(name, place, torch.float32)
    return [command.name for command in profile.commands]


def main() -> None:
    """Print, by case and kernel, its launches and the worst error in float32 and bf16."""
    sampled_builds.begin()
    place = torch.device("ocl", 0)
    found: dict[str, list[float]] = {}
    for kernel in ("recurrent_forward", "recurrent_step_forward"):
        is_stepped = kernel == "recurrent_step_forward"
        recall.forget()
        with patch.object(recurrent_layer, "is_stepped", lambda *_, chosen=is_stepped: chosen):
            for name in sys.argv[1:] or CASES:
                runs = launches(name, place).count(kernel)
                errors = [worst(name, place, dtype) for dtype in (torch.float32, torch.bfloat16)]
                found[f"{name}, {kernel}"] = [runs, *errors]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
