"""One step of an LSTM or a GRU: everything between its matrix products in one launch.

`torch.nn.LSTM` and `GRU` unroll themselves into these and products, packed sequences too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.kernels.elementwise import Kernel, Operand, launch

HELPERS = "#define SIGMOID(x) (1 / (1 + exp(-(x))))\n"

LSTM = """\
const T i = SIGMOID({i}), f = SIGMOID({f}), g = tanh({g}), o = SIGMOID({o});
const T cy = f * cx + i * g;
const T hy = o * tanh(cy);
"""

LSTM_BACKWARD = """\
const T bent = tanh(cy), through = grad_cy + grad_hy * o * ((T)(1) - bent * bent);
const T grad_i = through * g * i * ((T)(1) - i);
const T grad_f = through * cx * f * ((T)(1) - f);
const T grad_g = through * i * ((T)(1) - g * g);
const T grad_o = grad_hy * bent * o * ((T)(1) - o);
const T grad_cx = through * f;
"""

GRU = """\
const T r = SIGMOID({r}), z = SIGMOID({z}), m = {m};
const T n = tanh({n} + r * m);
const T hy = n + z * (hx - n);
const T old = hx;
"""

GRU_BACKWARD = """\
const T grad_n = grad_hy * ((T)(1) - z) * ((T)(1) - n * n);
const T grad_z = grad_hy * (old - n) * z * ((T)(1) - z);
const T grad_r = grad_n * m * r * ((T)(1) - r);
const T grad_m = grad_n * r;
const T grad_hx = grad_hy * z;
"""


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden state and cell state [batch, n], and the gates' values for the backward pass.

    The gates i, f, g, o are [batch, 4 n], biases [4 n] (Hochreiter and Schmidhuber 1997).

    Raises:
        RuntimeError: the tensors have several dtypes.
    """
    _check_alike(input_gates, hidden_gates, cx, input_bias, hidden_bias)
    biases = [] if input_bias is None or hidden_bias is None else [input_bias, hidden_bias]
    given = [part for x in (input_gates, hidden_gates, *biases) for part in x.chunk(4, -1)]
    workspace = torch.empty_like(input_gates)
    hy, cy = torch.empty_like(cx), torch.empty_like(cx)
    kernel = _kernel("lstm_cell", cx.dtype, bool(biases))
    launch(kernel, cx.shape, (*given, cx, *workspace.chunk(4, -1), hy, cy))
    return hy, cy, workspace


def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of the gates, of cx and of either bias."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    grad_hy = torch.zeros_like(cx) if grad_hy is None else grad_hy
    grad_cy = torch.zeros_like(cx) if grad_cy is None else grad_cy
    gates, grad_cx = torch.empty_like(workspace), torch.empty_like(cx)
    inputs = (grad_hy, grad_cy, cx, cy, *workspace.chunk(4, -1))
    kernel = _kernel("lstm_cell_backward", cx.dtype)
    launch(kernel, cx.shape, (*inputs, *gates.chunk(4, -1), grad_cx))
    return gates, grad_cx, gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the hidden state [batch, n], and what the backward pass needs [batch, 5 n].

    The gates r, z, n are [batch, 3 n], biases [3 n] (Cho et al. 2014).

    Raises:
        RuntimeError: the tensors have several dtypes.
    """
    _check_alike(input_gates, hidden_gates, hx, input_bias, hidden_bias)
    biases = [] if input_bias is None or hidden_bias is None else [input_bias, hidden_bias]
    given = [part for x in (input_gates, hidden_gates, *biases) for part in x.chunk(3, -1)]
    workspace = hx.new_empty((*hx.shape[:-1], 5 * hx.shape[-1]))
    hy = torch.empty_like(hx)
    kernel = _kernel("gru_cell", hx.dtype, bool(biases))
    launch(kernel, hx.shape, (*given, hx, *workspace.chunk(5, -1), hy))
    return hy, workspace


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of input gates, hidden gates, hx, and the two biases."""
    size = workspace.shape[-1] // 5
    # r, z, n, m: input gates are the first three, hidden gates end in m in place of n
    gates = workspace.new_empty((*workspace.shape[:-1], 3 * size))
    hidden = torch.empty_like(gates)
    grad_hx = torch.empty_like(grad_hy)
    kernel = _kernel("gru_cell_backward", grad_hy.dtype)
    parts = (*gates.chunk(3, -1), hidden[..., 2 * size :])
    launch(kernel, grad_hy.shape, (grad_hy, *workspace.chunk(5, -1), *parts, grad_hx))
    hidden[..., : 2 * size] = gates[..., : 2 * size]
    sums = (gates.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return gates, hidden, grad_hx, *sums


def _check_alike(*tensors: Tensor | None) -> None:
    """Refuse unlike dtypes: torch asks the CPU about the products of a cell, not about this."""
    dtypes = {tensor.dtype: None for tensor in tensors if tensor is not None}
    if len(dtypes) > 1:
        names = ", ".join(map(str, dtypes))
        raise RuntimeError(f"gates, states and biases of a cell have dtypes {names}. Use one")


@cache
def _kernel(name: str, dtype: torch.dtype, biased: bool = False) -> Kernel:
    body, inputs, outputs = {
        "lstm_cell": (LSTM, [*_gates("ifgo", biased), "cx"], [*"ifgo", "hy", "cy"]),
        "lstm_cell_backward": (
            LSTM_BACKWARD,
            ["grad_hy", "grad_cy", "cx", "cy", *"ifgo"],
            [*(f"grad_{gate}" for gate in "ifgo"), "grad_cx"],
        ),
        "gru_cell": (GRU, [*_gates("rzn", biased), "hx"], [*"rznm", "old", "hy"]),
        "gru_cell_backward": (
            GRU_BACKWARD,
            ["grad_hy", "r", "z", "n", "m", "old"],
            [*(f"grad_{gate}" for gate in "rznm"), "grad_hx"],
        ),
    }[name]
    sums = {gate: _sum(("input", "hidden"), gate, biased) for gate in "ifgorz"}
    sums |= {gate: _sum((side,), "n", biased) for gate, side in (("n", "input"), ("m", "hidden"))}
    return Kernel(
        name,
        "double" if dtype is torch.float64 else "float",
        tuple(Operand(label, dtype, "output" if label in outputs else "input")
              for label in (*inputs, *outputs)),
        body if name.endswith("backward") else body.format(**sums),
        HELPERS,
    )  # fmt: skip


def _gates(gates: str, biased: bool) -> list[str]:
    sources = ("input", "hidden", "input_bias", "hidden_bias")[: 4 if biased else 2]
    return [f"{source}_{gate}" for source in sources for gate in gates]


def _sum(sides: Sequence[str], gate: str, biased: bool) -> str:
    terms = [f"{side}{kind}_{gate}" for kind in ("", "_bias")[: 1 + biased] for side in sides]
    return "(" + " + ".join(terms) + ")"


OPERATORS: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
"""Implementations by aten name."""
