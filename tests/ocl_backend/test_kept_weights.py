"""What convolutions make of weights alone is kept while it holds, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from ocl_backend.dispatch import kept_weights
from ocl_backend.dispatch.prepared_plan import PreparedPlan
from ocl_backend.fusion import held
from tests.ocl_backend.cpu_twin import place


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Keep weights, and note how often something was made of them."""
    calls: list[int] = []
    make = PreparedPlan.make_of_weights

    def counted(self: PreparedPlan, *pointers: int) -> Any:
        calls.append(1)
        return make(self, *pointers)

    monkeypatch.setattr(PreparedPlan, "make_of_weights", counted)
    torch.ocl.keep_weights()
    yield calls
    torch.ocl.keep_weights(False)


def close(layer: nn.Module, x: Any) -> bool:
    """Whether the layer's result is that of its copy on the CPU."""
    got = layer(x).cpu()
    weight, bias = (p.detach().cpu() for p in layer.parameters())
    return bool(torch.allclose(got, torch.conv2d(x.cpu(), weight, bias, padding=1), atol=1e-4))


def test_weights_are_transformed_once_until_they_change(device: Any, made: list[int]) -> None:
    layer = nn.Conv2d(4, 6, 3, padding=1).to(place(device))
    x = torch.randn(2, 4, 12, 12).to(place(device))
    with torch.no_grad():
        assert all(close(layer, x) for _ in range(3))
        assert len(made) == 1
        layer.weight.mul_(2)
        assert close(layer, x)
        assert len(made) == 2
    with torch.inference_mode():
        assert close(layer, x)
    assert len(made) == 2


def test_gradients_and_dead_weights_keep_nothing(device: Any, made: list[int]) -> None:
    x = torch.randn(2, 4, 12, 12).to(place(device))
    layer = nn.Conv2d(4, 6, 3, padding=1).to(place(device))
    assert close(layer, x)
    assert not made
    with torch.no_grad():
        layer(x)
    torch.ocl.synchronize(device.index)
    assert len(kept_weights._kept) == 1
    del layer
    assert len(kept_weights._kept) == 0


def test_what_was_held_back_keeps_nothing_once_weights_are_let_go(device: Any) -> None:
    layer = nn.Conv2d(4, 6, 3, padding=1).to(place(device))
    torch.ocl.keep_weights()
    with torch.no_grad():
        layer(torch.randn(2, 4, 12, 12).to(place(device)))
    assert held.is_holding()
    torch.ocl.keep_weights(False)
    torch.ocl.synchronize(device.index)
    assert len(kept_weights._kept) == 0
