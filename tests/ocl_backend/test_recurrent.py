"""Recurrent and transformer layers, trained and inferring, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.ocl_backend.cpu_twin import check, check_module, place, relative

TOLERANCE = 5e-6


class Outputs(nn.Module):
    """A recurrent network's whole sequence and its last states, as one tensor."""

    def __init__(self, network: nn.Module, lengths: list[int] | None = None) -> None:
        super().__init__()
        self.network = network
        self.lengths = lengths

    def forward(self, x: Tensor) -> Tensor:
        given: Any = x
        if self.lengths:
            given = pack_padded_sequence(x, self.lengths, enforce_sorted=False)
        out, states = self.network(given)
        if self.lengths:
            out, _ = pad_packed_sequence(out)
        states = [states] if isinstance(states, Tensor) else states
        return torch.cat([part.flatten() for part in (out, *states)])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("lengths", [None, [3, 5, 1]], ids=["padded", "packed"])
def test_two_layers_both_ways(
    device: Any, kind: Callable[..., nn.Module], lengths: list[int] | None
) -> None:
    if device.index and lengths is None:
        pytest.skip("devices besides the first run the packed sequences")
    torch.manual_seed(0)
    network = Outputs(kind(6, 5, num_layers=2, bidirectional=True), lengths)
    check_module(device, network, torch.randn(5, 3, 6), TOLERANCE)


def test_cells_without_biases(device: Any) -> None:
    torch.manual_seed(0)
    gru, lstm = nn.GRUCell(6, 5, bias=False), nn.LSTMCell(6, 5, bias=False)
    for x in (torch.randn(3, 6), torch.randn(3, 6).double()):
        if x.dtype is torch.float64 and not device.limits.extensions >= {"cl_khr_fp64"}:
            continue
        cells = {"cpu": [deepcopy(cell).to(x.dtype) for cell in (gru, lstm)]}
        cells["ocl"] = [deepcopy(cell).to(place(device)) for cell in cells["cpu"]]
        check(device, lambda x, cells=cells: cells[x.device.type][0](x), x, tolerance=TOLERANCE)
        check(device, lambda x, cells=cells: cells[x.device.type][1](x)[1], x, tolerance=TOLERANCE)


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_trains_and_infers(device: Any, norm_first: bool) -> None:
    if device.index:
        pytest.skip("composed of operators that run on every device")
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        16, 4, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first
    )
    x = torch.randn(2, 7, 16)
    check_module(device, layer, x, 2e-5)
    twin = deepcopy(layer).to(place(device)).eval()
    with torch.no_grad():
        assert relative(twin(x.to(place(device))), layer.eval()(x)) <= TOLERANCE
        assert twin(x[:0].to(place(device))).shape == (0, 7, 16)
    assert torch.ocl.fallbacks() == {}


@pytest.mark.parametrize("weights", [False, True])
def test_attention_infers_with_padding(device: Any, weights: bool) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval().requires_grad_(False)
    twin = deepcopy(layer).to(place(device))
    x, padding = torch.randn(2, 7, 16), torch.arange(7) >= torch.tensor([[5], [7]])
    theirs = layer(x, x, x, padding, weights)
    torch.ocl.reset_fallbacks()
    home = x.to(place(device))
    ours = twin(home, home, home, padding.to(place(device)), weights)
    assert relative(ours[0], theirs[0]) <= TOLERANCE
    assert (ours[1] is None) == (theirs[1] is None)
    assert ours[1] is None or relative(ours[1], theirs[1]) <= TOLERANCE
    assert torch.ocl.fallbacks() == {}
