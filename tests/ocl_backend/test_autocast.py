"""Mixed precision on the device: what is cast, what is not, and that training works with it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

import ocl_backend  # noqa: F401 (registers the device)
from tests.ocl_backend.cpu_twin import place

HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_products_run_in_half_precision_and_sums_in_full(device: Any, half: Any) -> None:
    x, w = torch.randn(4, 8).to(place(device)), torch.randn(8, 8).to(place(device))
    with torch.autocast("ocl", dtype=half):
        product = functional.linear(x, w)
        assert product.dtype is half
        assert product.sum().dtype is torch.float32
        assert functional.softmax(product, 1).dtype is torch.float32
        assert torch.cat([product, x]).dtype is torch.float32
        assert torch.relu(product).dtype is half
    assert functional.linear(x, w).dtype is torch.float32
    exact = functional.linear(x.cpu(), w.cpu())
    torch.testing.assert_close(product.float().cpu(), exact, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_layers_that_torch_has_operators_for_are_cast_as_their_parts(
    device: Any, half: Any
) -> None:
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(32, 4, batch_first=True).to(place(device)).eval()
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).to(place(device)).eval()
    x = torch.randn(2, 9, 32).to(place(device))

    def computed() -> list[Any]:
        return [attention(x, x, x, need_weights=False)[0], layer(x)]

    with torch.autocast("ocl", dtype=half):
        composed = computed()  # autograd is on: torch composes them itself
        with torch.no_grad():
            inferred = computed()
    for ours, theirs in zip(inferred, composed, strict=True):
        assert ours.dtype is theirs.dtype
        torch.testing.assert_close(ours, theirs.detach(), rtol=0.02, atol=0.02)
    assert inferred[0].dtype is half


def test_tensors_of_the_cpu_are_left_alone() -> None:
    with torch.autocast("ocl", dtype=torch.bfloat16):
        assert functional.linear(torch.ones(2, 3), torch.ones(4, 3)).dtype is torch.float32


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_a_model_learns_with_scaled_gradients(device: Any, half: Any) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    model.to(place(device))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("ocl", init_scale=128.0)
    x = torch.randn(32, 8).to(place(device))
    y = x[:, :1] * 2
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        with torch.autocast("ocl", dtype=half):
            loss = functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        losses.append(loss.item())
    assert model[0].weight.grad.dtype is torch.float32
    assert losses[-1] < 0.5 * losses[0]
