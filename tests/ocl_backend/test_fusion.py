"""Calls fused into one kernel: the same results as without fusion, and fewer commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn
from torch.nn import functional

from ocl_backend.dispatch.tuned import reload_tuned
from ocl_backend.ops.conv import convolution
from oclgen.families.conv import conv_gemm_plan
from oclgen.families.winograd import winograd_pixels
from tests.ocl_backend.cpu_twin import place
from tests.ocl_backend.fusion_cases import names, normalisation, only_one, same, small

TOLERANCE = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""With fusion against without: a folded weight is rounded, or an intermediate result is not."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu_": torch.relu_,
    "relu6_": lambda x: functional.relu6(x, inplace=True),
    "silu": functional.silu,
    "silu_": lambda x: functional.silu(x, inplace=True),
    "gelu": functional.gelu,
    "sigmoid": torch.sigmoid,
    "tanh_": torch.tanh_,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_part_of_the_linear_layer_or_addition_before(
    device: Any, name: str
) -> None:
    if name != "relu6_":
        only_one(device)
    act = ACTIVATIONS[name]
    x, w, b = small(device, 6, 5), small(device, 5, 7), small(device, 7)
    same(lambda: act(torch.addmm(b, x, w)))
    assert len(names(lambda: act(torch.addmm(b, x, w)))) == 1
    same(lambda: act(x + x))
    assert len(names(lambda: act(x + x))) == 1


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_takes_normalisation_and_activation(
    device: Any, dtype: Any, bias: bool
) -> None:
    conv = nn.Conv2d(3, 5, 3, bias=bias).to(place(device), dtype)
    layers = nn.Sequential(conv, normalisation(5, device, dtype), nn.ReLU6(inplace=True))
    x = small(device, 2, 3, 9, 9, dtype=dtype) * 4
    with torch.no_grad():
        same(lambda: layers(x), TOLERANCE[dtype])
        fused = names(lambda: layers(x))
        same(lambda: layers[:2](x), TOLERANCE[dtype])
    assert fused[0] == "fold_batch_norm"
    assert not any(name.startswith(("batch_norm", "pointwise")) for name in fused)
    assert "batch_norm_fwd" in names(lambda: layers(x))  # its gradient needs what lies in between


@pytest.fixture
def nothing_kept() -> Iterator[None]:
    """Make of weights at every call what is made of them."""
    torch.ocl.keep_weights(False)
    yield
    torch.ocl.keep_weights()


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2)])
def test_a_convolution_in_channels_last_takes_them_too(
    device: Any, kernel: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folded kernel reads and writes pixels, and its weights lie as those of the layer.

    It has as many launches as the layer without normalisation, and the folding of its weights.
    """
    monkeypatch.setattr(convolution, "better_known", lambda index, pixels, planes: pixels)
    monkeypatch.setattr(winograd_pixels, "conflict", lambda *_: None)
    monkeypatch.setattr(conv_gemm_plan, "layout_why_not", lambda *_: None)
    reload_tuned()
    conv: Any = nn.Conv2d(6, 5, kernel, stride, bias=False)
    conv = conv.to(place(device), memory_format=torch.channels_last)
    layers = nn.Sequential(conv, normalisation(5, device), nn.ReLU6(inplace=True))
    x = small(device, 2, 6, 19, 19).to(memory_format=torch.channels_last) * 4
    with torch.no_grad():
        same(lambda: layers(x))
        fused = names(lambda: layers(x))
        alone = names(lambda: conv(x))
    assert fused[0] == "fold_batch_norm"
    assert not any(name.startswith(("batch_norm", "pointwise", "strided")) for name in fused)
    assert len(fused) == 1 + len(alone)
    reload_tuned()


@pytest.mark.usefixtures("nothing_kept")
def test_a_linear_layer_of_few_rows_folds_nothing(device: Any) -> None:
    conv = nn.Conv2d(16, 16, 3, padding=1).to(place(device))
    layers = nn.Sequential(conv, normalisation(16, device))
    with torch.no_grad():
        assert "fold_batch_norm" not in names(lambda: layers(small(device, 1, 16, 2, 2)))


@pytest.mark.parametrize("trains", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("outside", [True, False], ids=["z + y", "y += z"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_normalisation_takes_residual_and_activation(
    device: Any, trains: bool, outside: bool, memory_format: Any
) -> None:
    layer = normalisation(4, device).train(trains)
    x, z = (
        part.contiguous(memory_format=memory_format)
        for part in (small(device, 2, 4, 5, 5), small(device, 2, 4, 5, 5).sin())
    )

    def block(layer: nn.Module) -> Tensor:
        y = layer(x)
        y = z + y if outside else y.add_(z)
        return torch.relu_(y)

    with torch.no_grad():
        same(lambda: block(deepcopy(layer)))
        assert names(lambda: block(layer))[-1] == "batch_norm_fwd"
    ours, plain = deepcopy(layer), deepcopy(layer)
    block(ours)
    with torch.ocl.fusion(False):
        block(plain)
    for mine, theirs in zip(ours.buffers(), plain.buffers(), strict=True):
        assert torch.equal(mine.cpu(), theirs.cpu())


ADDITIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "y + z": lambda y, z: y + z,
    "z + y": lambda y, z: z + y,
    "y += z": lambda y, z: y.add_(z),
}


@pytest.fixture
def by_rules(monkeypatch: pytest.MonkeyPatch, nothing_kept: None) -> Iterator[None]:
    """Let one family serve, whatever is added: the model may expect more of another one then."""
    monkeypatch.setattr("tuned_db.choosing.chooser.predict", lambda problem, variants, limits: None)
    reload_tuned()
    yield
    reload_tuned()


@pytest.mark.usefixtures("by_rules")
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("addition", ADDITIONS)
@pytest.mark.parametrize("normalised", [True, False], ids=["normalised", "plain"])
@pytest.mark.parametrize("act", [nn.ReLU(inplace=True), nn.Identity()], ids=["relu", "none"])
def test_a_convolution_takes_a_residual(
    device: Any, addition: str, normalised: bool, act: nn.Module, batch: int
) -> None:
    conv = nn.Conv2d(3, 5, 3, bias=not normalised).to(place(device))
    layers = nn.Sequential(conv, normalisation(5, device)) if normalised else conv
    x, z = small(device, batch, 3, 9, 9), small(device, batch, 5, 7, 7)
    with torch.no_grad():
        same(lambda: act(ADDITIONS[addition](layers(x), z)))
        fused = names(lambda: act(ADDITIONS[addition](layers(x), z)))
        assert fused == names(lambda: torch.relu_(layers(x)))
    assert torch.equal(z.cpu(), small(device, batch, 5, 7, 7).cpu())


@pytest.mark.usefixtures("by_rules")
@pytest.mark.parametrize("trains", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("normalised", [True, False], ids=["normalised", "plain"])
def test_a_sum_may_lie_in_place_of_the_residual(
    device: Any, normalised: bool, trains: bool
) -> None:
    """As in blocks that sample their input down after what they add it to."""
    conv = nn.Conv2d(3, 5, 3, bias=not normalised).to(place(device))
    norm = normalisation(5, device).train(trains)
    x, z = small(device, 2, 3, 9, 9), small(device, 2, 5, 7, 7)

    def added(result: Tensor | None = None) -> Tensor:
        identity = norm(conv(x)) if normalised else conv(x)
        if result is None:
            return torch.relu_(identity)
        result += identity
        return torch.relu_(result)

    with torch.no_grad():
        same(lambda: added(z.clone()))
        one = names(lambda: z.clone())
        assert names(lambda: added(z.clone())) == one + names(added)


@pytest.mark.usefixtures("by_rules")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_convolution_in_channels_last_takes_a_residual_of_the_same_layout(
    device: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "better_known", lambda index, pixels, planes: pixels)
    reload_tuned()
    conv: Any = nn.Conv2d(6, 5, 1)
    conv = conv.to(place(device), dtype, memory_format=torch.channels_last)
    x, z = small(device, 2, 6, 9, 9, dtype=dtype), small(device, 2, 5, 9, 9, dtype=dtype)
    x, last = (part.to(memory_format=torch.channels_last) for part in (x, z))
    with torch.no_grad():
        same(lambda: torch.relu_(conv(x) + last), TOLERANCE[dtype])
        assert names(lambda: torch.relu_(conv(x) + last)) == names(lambda: torch.relu_(conv(x)))
        same(lambda: torch.relu_(conv(x) + z), TOLERANCE[dtype])  # it lies otherwise: not fused
        assert len(names(lambda: torch.relu_(conv(x) + z))) > 1
    reload_tuned()


@pytest.mark.parametrize("act", [torch.relu_, lambda y: y], ids=["relu", "none"])
def test_a_linear_layer_takes_a_residual(device: Any, act: Callable[[Tensor], Tensor]) -> None:
    layer = nn.Linear(7, 5).to(place(device))
    x, z = small(device, 2, 3, 7), small(device, 2, 3, 5)
    with torch.no_grad():
        for addition in ADDITIONS.values():
            added = partial(lambda add: act(add(layer(x), z)), addition)
            same(added)
            assert len(names(added)) == 1


@pytest.mark.usefixtures("by_rules")
def test_no_residual_that_is_scaled_broadcast_or_of_another_dtype(device: Any) -> None:
    only_one(device)
    conv = nn.Conv2d(3, 5, 3).to(place(device))
    x, z = small(device, 2, 3, 9, 9), small(device, 2, 5, 7, 7)
    others: list[Callable[[Tensor], Tensor]] = [
        lambda y: torch.add(y, z, alpha=2),
        lambda y: y + z[:1],
        lambda y: y + z[:, :, :1],
        lambda y: y + z.half(),
        lambda y: y + z.transpose(2, 3),
        lambda y: y + y,
    ]
    with torch.no_grad():
        alone = len(names(lambda: conv(x)))
        for other in others:
            after = partial(lambda change: change(conv(x)), other)
            same(after)
            assert len(names(after)) > alone


class Block(nn.Module):
    """A residual block as torchvision writes it."""

    def __init__(self, relu: nn.Module) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x + f(x))."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


@pytest.mark.parametrize("act", [nn.ReLU(inplace=True), nn.ReLU(), nn.ReLU6(inplace=True)], ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_gradients_of_residual_blocks_are_the_same(
    device: Any, act: nn.Module, memory_format: Any
) -> None:
    torch.manual_seed(0)
    start = nn.Sequential(Block(act), Block(act)).to(place(device))
    x = small(device, 2, 4, 6, 6).contiguous(memory_format=memory_format)

    def gradients() -> Tensor:
        layers = deepcopy(start)
        layers(x).square().sum().backward()
        of_parameters = [tensor.grad for tensor in layers.parameters() if tensor.grad is not None]
        found = [*of_parameters, *layers.buffers()]
        assert len(of_parameters) == len(list(layers.parameters()))
        return torch.cat([tensor.flatten().float() for tensor in found])

    same(gradients)
    seen = names(gradients)
    alone = ("pointwise_threshold_backward_kernel", "pointwise_hardtanh_backward_kernel")
    assert sum(name in alone for name in seen) <= 1  # of the last one two others need the result
    with torch.ocl.fusion(False):
        assert len(names(gradients)) > len(seen)


def test_explain_and_recordings_name_the_problem_that_ran(device: Any) -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.ReLU(inplace=True)).to(place(device))
    seen = torch.ocl.explain(layers, small(device, 2, 3, 8, 8))
    assert [row.problem.rsplit(":", 2)[1:] for row in seen.rows] == [["-", "relu"]]


def test_layouts_that_are_not_contiguous_are_right(device: Any) -> None:
    only_one(device)
    conv = nn.Conv2d(4, 4, 1).to(place(device))
    norm = normalisation(4, device)
    x = small(device, 4, 4, 4, 4).to(memory_format=torch.channels_last)
    with torch.no_grad():
        same(lambda: torch.relu(conv(x)))
        same(lambda: torch.relu(norm(conv(x))))
        same(lambda: norm(conv(x).permute(0, 2, 3, 1)))  # as large in every dimension: not folded


def test_nan_stays_nan_through_fused_activations(device: Any) -> None:
    x = torch.full((2, 3, 6, 6), float("nan")).to(place(device))
    conv = nn.Conv2d(3, 4, 3).to(place(device))
    for act in ("relu_", "relu6_"):
        assert ACTIVATIONS[act](conv(x).detach()).isnan().all()
        assert ACTIVATIONS[act](x + x).isnan().all()
