"""torchvision's networks with random weights: scores, gradients and steps against the CPU."""

from __future__ import annotations

from copy import deepcopy
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)

from cpu_twin import place, relative
from torch import nn
from torch.optim import SGD, Adam

from ocl_backend.interop import torchvision_models

NETWORKS = ["alexnet", "resnet18", "mobilenet_v2", "vgg16"]
SEEDS = 3
"""An input of a ReLU within rounding of zero flips, and a gradient with it: not with every seed."""
GRADIENT_TOLERANCE = 1e-3
OWN_ERRORS = 10
"""A gradient that is zero but for rounding (of a bias before a batch normalisation) differs wholly;
it is judged by the CPU's own distance from float64 and may have ten times as much."""


def build(name: str) -> Any:
    torch.manual_seed(0)
    network = getattr(torchvision_models(), name)(weights=None)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return network


def gradients(network: Any, x: Any, labels: Any) -> list[Any]:
    network.train().zero_grad()
    nn.functional.cross_entropy(network(x), labels).backward()
    return [parameter.grad for parameter in network.parameters()]


def gradients_agree(network: Any, twin: Any, device: Any, seed: int) -> bool:
    torch.manual_seed(seed)
    x, labels = torch.randn(2, 3, 64, 64), torch.randint(0, 1000, (2,))
    exact = gradients(deepcopy(network).double(), x.double(), labels)
    theirs = gradients(network, x, labels)
    ours = gradients(twin, x.to(place(device)), labels.to(place(device)))
    return all(
        relative(our, their)
        <= max(GRADIENT_TOLERANCE, OWN_ERRORS * relative(their.double(), truth))
        for our, their, truth in zip(ours, theirs, exact, strict=True)
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_scores_and_gradients(device: Any, name: str) -> None:
    if device.index > 0 and name != "resnet18":
        pytest.skip("one network tells whether a further device works")
    torch.ocl.reset_fallbacks()
    network = build(name)
    twin = deepcopy(network).to(place(device))
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        scores, ours = network.eval()(x), twin.eval()(x.to(place(device)))
    assert relative(ours, scores) <= 1e-4
    assert any(gradients_agree(network, twin, device, seed) for seed in range(SEEDS))
    assert torch.ocl.fallbacks() == {}


@pytest.mark.parametrize("optimizer", [SGD, Adam])
def test_steps_learn_what_the_cpu_learns(device: Any, optimizer: Any) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(8 * 7 * 7, 5),
    )  # fmt: skip
    twin = deepcopy(network).to(place(device))
    x, labels = torch.randn(8, 3, 16, 16), torch.randint(0, 5, (8,))
    losses = []
    for model, home in ((network, torch.device("cpu")), (twin, place(device))):
        steps = optimizer(model.parameters(), lr=0.01)
        for _ in range(5):
            steps.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(home)), labels.to(home))
            loss.backward()
            steps.step()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_dropout_keeps_the_share_it_says(device: Any) -> None:
    x = torch.ones(1000, 100, device=place(device))
    kept = nn.functional.dropout(x, 0.3)
    assert float((kept != 0).float().mean().cpu()) == pytest.approx(0.7, abs=0.01)
