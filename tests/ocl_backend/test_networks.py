"""torchvision's networks with random weights: scores, gradients and steps against the CPU."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)

from torch import Tensor, nn
from torch.optim import SGD, Adam

import ocl_backend  # noqa: F401 (lets torchvision be imported)
from tests.ocl_backend.cpu_twin import place, relative

NETWORKS = ["alexnet", "resnet18", "mobilenet_v2", "vgg16"]
WIDTH = 64
"""Channels between the linear layers; torchvision's 4096 of alexnet and vgg16 take gigabytes."""
GRADIENT_TOLERANCE = 1e-3
OWN_ERRORS = 10
"""Times the CPU's own distance from float64 that a gradient may have.

Gradients that are zero except for rounding, such as that of a bias before a batch normalisation,
share no digit with the CPU's.
"""


def build(name: str) -> nn.Module:
    """The network without dropout, and with narrow linear layers."""
    torch.manual_seed(0)
    network: nn.Module = getattr(import_module("torchvision.models"), name)(weights=None)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    if name in ("alexnet", "vgg16"):
        classifier = network.get_submodule("classifier")
        linear = [n for n, layer in classifier.named_children() if isinstance(layer, nn.Linear)]
        first = classifier.get_submodule(linear[0])
        assert isinstance(first, nn.Linear)
        inputs = first.in_features
        for layer, sizes in zip(
            linear, [(inputs, WIDTH), (WIDTH, WIDTH), (WIDTH, 10)], strict=True
        ):
            classifier.set_submodule(layer, nn.Linear(*sizes))
    return network


def smooth(network: nn.Module) -> nn.Module:
    """The network without kinks: a rounding moves its gradients by as little everywhere.

    An input of a ReLU or the largest of a window within rounding of another flips, and the
    gradients of all layers before with it. Those operators have tests of one layer each.
    """
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.ReLU | nn.ReLU6):
            network.set_submodule(name, nn.SiLU())
        elif isinstance(module, nn.MaxPool2d):
            average = nn.AvgPool2d(module.kernel_size, module.stride, module.padding)
            network.set_submodule(name, average)
    return network


def gradients(network: nn.Module, x: Tensor, labels: Tensor) -> list[Tensor]:
    network.train().zero_grad()
    nn.functional.cross_entropy(network(x), labels).backward()
    return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]


def only_one_network(device: Any, name: str) -> None:
    if device.index > 0 and name != "resnet18":
        pytest.skip("one network tells whether a further device works")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NETWORKS)
def test_scores(device: Any, name: str) -> None:
    only_one_network(device, name)
    torch.ocl.reset_fallbacks()
    network = build(name).eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        scores, ours = network(x), deepcopy(network).to(place(device))(x.to(place(device)))
    assert relative(ours, scores) <= 1e-4
    assert torch.ocl.fallbacks() == {}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients(device: Any, name: str) -> None:
    only_one_network(device, name)
    torch.ocl.reset_fallbacks()
    network = smooth(build(name))
    x, labels = torch.randn(2, 3, 64, 64), torch.randint(0, 10, (2,))
    exact = gradients(deepcopy(network).double(), x.double(), labels)
    ours = gradients(
        deepcopy(network).to(place(device)), x.to(place(device)), labels.to(place(device))
    )
    theirs = gradients(network, x, labels)
    assert len(ours) == len(theirs) == len(exact) == len(list(network.parameters()))
    names = [name for name, _ in network.named_parameters()]
    for of, our, their, truth in zip(names, ours, theirs, exact, strict=True):
        allowed = max(GRADIENT_TOLERANCE, OWN_ERRORS * relative(their.double(), truth))
        assert relative(our, their) <= allowed, of
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
