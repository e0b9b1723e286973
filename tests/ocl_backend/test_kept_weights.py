"""What plans make of weights alone is kept while the weights' memory is not written to."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn

from ocl_backend.runtime.kernel import are_const
from tests.ocl_backend.cpu_twin import place


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Drop what other tests kept."""
    torch.ocl.keep_weights(False)
    torch.ocl.keep_weights()
    yield
    torch.ocl.keep_weights()


def built() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6)).eval()


@pytest.fixture
def layers(device: Any) -> nn.Sequential:
    return built().to(place(device))


@pytest.fixture
def x(device: Any) -> Tensor:
    return torch.randn(2, 4, 12, 12).to(place(device))


def kept_bytes(device: Any) -> int:
    bytes_: int = torch.ocl.kept_weights_bytes(device.index)
    return bytes_


def is_right(layers: nn.Module, x: Tensor) -> bool:
    """Whether the result is that of a copy on the CPU."""
    twin = built()
    twin.load_state_dict({name: value.cpu() for name, value in layers.state_dict().items()})
    return bool(torch.allclose(layers(x).cpu(), twin(x.cpu()), atol=1e-4))


def warm(device: Any, layer: nn.Module, x: Tensor) -> None:
    """Call it as often as it takes: its programs are built, its weights lie still, and are kept."""
    for _ in range(4):
        layer(x)
        torch.ocl.synchronize(device.index)


def launches(device: Any, call: Callable[[], object]) -> int:
    with torch.ocl.profile(file=None) as seen:
        call()
        torch.ocl.synchronize(device.index)
    return len(seen.commands)


@torch.no_grad()
def test_what_is_made_of_weights_is_made_once(device: Any, layers: Any, x: Tensor) -> None:
    before = launches(device, lambda: layers(x))
    warm(device, layers, x)
    assert launches(device, lambda: layers(x)) < before
    assert kept_bytes(device) > 0
    with torch.inference_mode():
        assert is_right(layers, x)


@torch.no_grad()
def test_a_kernel_of_several_calls_reads_weights_and_does_not_change_them(
    device: Any, layers: Any, x: Tensor
) -> None:
    warm(device, layers, x)
    before = launches(device, lambda: layers(x))
    for _ in range(3):
        doubled = layers[0].weight * 2 + 1
        torch.ocl.synchronize(device.index)
    assert launches(device, lambda: layers(x)) == before
    assert torch.equal(doubled.cpu(), layers[0].weight.cpu() * 2 + 1)


CHANGES: dict[str, Callable[[nn.Conv2d], object]] = {
    "in place": lambda layer: layer.weight.mul_(2),
    "uncounted": lambda layer: layer.weight.data.mul_(2),
    "part": lambda layer: layer.weight[1].zero_(),
    "from the host": lambda layer: layer.weight.copy_(torch.randn(6, 4, 3, 3)),
    "copied": lambda layer: layer.weight.copy_(layer.weight.roll(1, 0)),
    "anew": lambda layer: setattr(layer, "weight", nn.Parameter(torch.randn_like(layer.weight))),
    "bias": lambda layer: layer.bias.add_(1),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_every_change_of_weights_is_seen(device: Any, layers: Any, x: Tensor, change: str) -> None:
    warm(device, layers, x)
    assert kept_bytes(device) > 0
    for _ in range(3):
        CHANGES[change](layers[0])
        assert is_right(layers, x)
        layers[1].running_mean.add_(0.5)
        assert is_right(layers, x)


def test_calls_with_gradients_drop_what_is_made(device: Any, layers: Any, x: Tensor) -> None:
    for _ in range(4):
        layers(x).sum().backward()
    torch.ocl.synchronize(device.index)
    assert kept_bytes(device) == 0


@torch.no_grad()
def test_what_is_kept_goes_with_the_weights(device: Any, x: Tensor) -> None:
    layers = built().to(place(device))
    warm(device, layers, x)
    assert kept_bytes(device) > 0
    del layers
    gc.collect()
    assert kept_bytes(device) == 0


@torch.no_grad()
def test_nothing_is_kept_of_weights_that_go_before_a_held_call_runs(device: Any, x: Tensor) -> None:
    layers = built().to(place(device))
    torch.ocl.keep_weights(False)
    warm(device, layers, x)
    torch.ocl.keep_weights()
    layers(x)
    torch.ocl.synchronize(device.index)
    held = layers(x)
    del layers
    gc.collect()
    torch.ocl.synchronize(device.index)
    assert held.shape == (2, 6, 12, 12)
    assert kept_bytes(device) == 0


@pytest.mark.parametrize("how", ["keep_weights", "empty_cache"])
@torch.no_grad()
def test_what_is_kept_can_be_let_go(device: Any, layers: Any, x: Tensor, how: str) -> None:
    warm(device, layers, x)
    before = torch.ocl.memory_allocated(device.index)
    kept = kept_bytes(device)
    assert kept > 0
    torch.ocl.keep_weights(False) if how == "keep_weights" else torch.ocl.empty_cache()
    assert kept_bytes(device) == 0
    assert torch.ocl.memory_allocated(device.index) <= before - kept
    layers(x)
    layers(x)
    assert is_right(layers, x)
    assert (kept_bytes(device) > 0) == (how == "empty_cache")


@torch.no_grad()
def test_what_is_made_of_changing_operands_is_dropped(device: Any) -> None:
    for _ in range(5):
        a, b = (torch.randn(64, 64).to(place(device)) for _ in range(2))
        assert torch.allclose((a @ b).cpu(), a.cpu() @ b.cpu(), atol=1e-3)
        a.mul_(2)
        b.mul_(2)
    assert kept_bytes(device) == 0


def test_declarations_tell_what_a_kernel_writes() -> None:
    source = """
        // copies( is a kernel
        void helper(__global float *y) {}
        __kernel void copies(
            const __global float *restrict x, const long x_start,
            __global float *restrict y, const long y_start, const int count)
        { helper(y); }
    """
    assert are_const(source, "copies") == (True, False)
