"""Calls that run as one kernel where nobody can tell: as without, and with fewer commands."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from copy import deepcopy
from queue import Queue
from threading import Thread
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from cpu_twin import place, relative
from torch import Tensor, nn
from torch.nn import functional

from ocl_backend.dispatch import tuned
from ocl_backend.dispatch.tuned import reload_tuned
from ocl_backend.fusion import held
from ocl_backend.ops.conv import convolution
from ocl_backend.ops.linear.matmul import Multiplying
from oclgen.families.conv import conv_gemm_plan
from oclgen.families.winograd import winograd_pixels

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


def names(function: Callable[[], Any]) -> list[str]:
    """The commands of a call that was made before."""
    function()
    with torch.ocl.profile(file=None) as seen:
        function()
    return [command.name for command in seen.commands]


def both(function: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """The results with fusion and without."""
    torch.manual_seed(0)
    ours = function().cpu()
    with torch.ocl.fusion(False):
        torch.manual_seed(0)
        return ours, function().cpu()


def same(function: Callable[[], Tensor], tolerance: float = 5e-6) -> None:
    ours, plain = both(function)
    assert torch.equal(ours.isnan(), plain.isnan())
    assert relative(ours.nan_to_num(), plain.nan_to_num()) <= tolerance


def normalisation(channels: int, device: Any, dtype: Any = torch.float32) -> nn.BatchNorm2d:
    """A layer in evaluation, with statistics that are not trivial."""
    torch.manual_seed(1)
    layer = nn.BatchNorm2d(channels).eval()
    for tensor in (layer.weight, layer.bias, layer.running_mean):
        assert tensor is not None
        nn.init.uniform_(tensor, -1, 1)
    assert layer.running_var is not None
    nn.init.uniform_(layer.running_var, 0.5, 2)
    return layer.to(place(device), dtype)


def only_one(device: Any) -> None:
    if device.index > 0:
        pytest.skip("what is held back does not depend on the device")


def small(device: Any, *shape: int, dtype: Any = torch.float32) -> Tensor:
    torch.manual_seed(len(shape))
    return torch.randn(shape).to(place(device), dtype)


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


@pytest.mark.parametrize(("kernel", "stride", "launches"), [(1, 1, 2), (3, 1, 5), (3, 2, 3)])
def test_a_convolution_in_channels_last_takes_them_too(
    device: Any, kernel: int, stride: int, launches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folded kernel reads and writes pixels, and its weights lie as those of the layer."""
    monkeypatch.setattr(convolution, "better_known", lambda index, pixels, planes: pixels)
    monkeypatch.setattr(winograd_pixels, "conflict", lambda *_: None)
    monkeypatch.setattr(conv_gemm_plan, "layout_why_not", lambda *_: None)
    reload_tuned()
    conv = nn.Conv2d(6, 5, kernel, stride, bias=False)
    conv = conv.to(place(device), memory_format=torch.channels_last)
    layers = nn.Sequential(conv, normalisation(5, device), nn.ReLU6(inplace=True))
    x = small(device, 2, 6, 19, 19).to(memory_format=torch.channels_last) * 4
    with torch.no_grad():
        same(lambda: layers(x))
        fused = names(lambda: layers(x))
    assert fused[0] == "fold_batch_norm"
    assert not any(name.startswith(("batch_norm", "pointwise", "strided")) for name in fused)
    assert len(fused) == launches
    reload_tuned()


def test_a_linear_layer_of_few_rows_folds_nothing(device: Any) -> None:
    conv = nn.Conv2d(16, 16, 3, padding=1).to(place(device))
    layers = nn.Sequential(conv, normalisation(16, device))
    with torch.no_grad():
        assert "fold_batch_norm" not in names(lambda: layers(small(device, 1, 16, 2, 2)))


@pytest.mark.parametrize("trains", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("outside", [True, False], ids=["z + y", "y += z"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_normalisation_takes_residual_and_activation(
    device: Any, trains: bool, outside: bool, memory_format: torch.memory_format
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


@pytest.mark.parametrize("trains", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("normalised", [True, False], ids=["normalised", "plain"])
def test_a_sum_may_lie_in_place_of_the_residual(
    device: Any, normalised: bool, trains: bool
) -> None:
    """As in blocks that sample their input down behind what they add it to."""
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


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_convolution_in_channels_last_takes_a_residual_of_the_same_layout(
    device: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "better_known", lambda index, pixels, planes: pixels)
    reload_tuned()
    conv = nn.Conv2d(6, 5, 1).to(place(device), dtype, memory_format=torch.channels_last)
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
            same(lambda addition=addition: act(addition(layer(x), z)))
            assert len(names(lambda addition=addition: act(addition(layer(x), z)))) == 1


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
            same(lambda other=other: other(conv(x)))
            assert len(names(lambda other=other: other(conv(x)))) > alone


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
    device: Any, act: nn.Module, memory_format: torch.memory_format
) -> None:
    torch.manual_seed(0)
    start = nn.Sequential(Block(act), Block(act)).to(place(device))
    x = small(device, 2, 4, 6, 6).contiguous(memory_format=memory_format)

    def gradients() -> Tensor:
        layers = deepcopy(start)
        layers(x).square().sum().backward()
        found = [tensor.grad for tensor in layers.parameters()] + list(layers.buffers())
        return torch.cat([tensor.flatten().float() for tensor in found])

    same(gradients)
    seen = names(gradients)
    alone = ("pointwise_threshold_backward_kernel", "pointwise_hardtanh_backward_kernel")
    assert sum(name in alone for name in seen) == 1  # of the last one two others need the result
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


@pytest.fixture
def parts(device: Any) -> dict[str, Tensor]:
    """What the programs below are made of."""
    only_one(device)
    return {
        "x": small(device, 2, 3, 6, 6),
        "w": small(device, 3, 3, 1, 1).clone(),
        "z": small(device, 2, 3, 6, 6).cos(),
        "mean": small(device, 3),
        "var": small(device, 3).square() + 0.5,
    }


def conv(p: dict[str, Tensor]) -> Tensor:
    return torch.conv2d(p["x"], p["w"])


def norm(y: Tensor, p: dict[str, Tensor]) -> Tensor:
    return functional.batch_norm(y, p["mean"], p["var"])


def keeps_a_view(p: dict[str, Tensor]) -> Tensor:
    y = conv(p)
    row = y[:, 1]
    y = torch.relu(norm(y, p))
    return torch.cat([row.flatten(), y.flatten()])


def uses_the_convolution_twice(p: dict[str, Tensor]) -> Tensor:
    y = conv(p)
    return torch.relu(norm(y, p)) + torch.sigmoid(y)


def adds_what_lies_in_between_and_drops_it(p: dict[str, Tensor]) -> Tensor:
    y = conv(p)
    n = norm(y, p)
    n += y
    del y
    return torch.relu_(n)


def adds_a_result_to_itself(p: dict[str, Tensor]) -> Tensor:
    n = norm(conv(p), p)
    n += n
    n = n + n
    return torch.relu_(n)


def writes_to_an_input_meanwhile(p: dict[str, Tensor]) -> Tensor:
    x = p["x"].clone()
    y = torch.conv2d(x, p["w"])
    x.zero_()
    n = norm(y, p)
    return torch.relu_(n) + x


def drops_every_input_meanwhile(p: dict[str, Tensor]) -> Tensor:
    x, mean = p["x"] * 2, p["mean"] + 1
    n = functional.batch_norm(torch.conv2d(x, p["w"] * 3), mean, p["var"])
    del x, mean
    n = torch.relu_(n)
    others = [torch.empty(2, 3, 6, 6, device=n.device) for _ in range(8)]
    for other in others:
        other.fill_(7)
    return n


def resizes_in_between(p: dict[str, Tensor]) -> Tensor:
    y = conv(p)
    y.resize_(4, 3, 6, 6)
    y[2:].zero_()
    y.relu_()
    z = conv(p)
    z.untyped_storage().resize_(0)
    return y


def reads_it_as_another_shape_and_type(p: dict[str, Tensor]) -> Tensor:
    flat = conv(p).view(-1)
    words = conv(p).view(torch.int32)
    words.relu_()
    return torch.relu_(flat) + words.view(torch.float32).view(-1)


def writes_to_given_tensors(p: dict[str, Tensor]) -> Tensor:
    n = norm(conv(p), p)
    out = torch.empty_like(n)
    torch.add(n, p["z"], out=out)
    torch.sigmoid(out, out=p["z"])
    return torch.relu_(out) + p["z"]


def broadcasts(p: dict[str, Tensor]) -> Tensor:
    n = norm(conv(p), p)
    n = n + p["mean"].view(3, 1, 1)
    n = torch.relu(n) + torch.add(n, p["z"], alpha=2)
    return torch.relu(n + 1)


def transposes(p: dict[str, Tensor]) -> Tensor:
    x = p["x"].contiguous(memory_format=torch.channels_last)
    y = norm(torch.conv2d(x, p["w"]), p)
    y += p["z"]
    return torch.relu_(y) + torch.relu(conv(p).transpose(1, 2)).transpose(1, 2)


def masks_with_itself(p: dict[str, Tensor]) -> Tensor:
    total = p["x"] + p["z"]
    return torch.ops.aten.threshold_backward(total, total, 0)


def adds_statistics_that_it_updates(p: dict[str, Tensor]) -> Tensor:
    x = p["x"][:1, :, :1, :1].clone()
    mean, var = p["mean"].clone(), p["var"].clone()
    y = functional.batch_norm(torch.cat([x, x + 1]), mean, var, training=True)
    y = y + torch.stack([mean, mean]).view(2, 3, 1, 1)
    z = functional.batch_norm(x.expand(2, 3, 1, 1).clone(), mean, var)
    z += mean.view(1, 3, 1, 1).expand(2, 3, 1, 1)
    return torch.relu(y) + torch.relu(z)


def drops_the_result(p: dict[str, Tensor]) -> Tensor:
    torch.relu_(norm(conv(p), p))
    torch.ocl.empty_cache()
    return conv(p)


def adds_to_its_own_input(p: dict[str, Tensor]) -> Tensor:
    x = p["x"].clone()
    y = torch.relu_(torch.conv2d(x, p["w"]) + x)
    x += torch.conv2d(x, p["w"])
    return torch.relu_(x) + y


def adds_to_a_part_of_its_input(p: dict[str, Tensor]) -> Tensor:
    x = torch.cat([p["x"], p["z"]])
    windows = p["w"].expand(3, 3, 3, 3).contiguous()
    x[:2] += torch.conv2d(x[1:3], windows, padding=1)
    part = x[2:]
    part += norm(torch.conv2d(part, windows, padding=1), p)
    part.relu_()
    return x


def adds_to_a_statistic(p: dict[str, Tensor]) -> Tensor:
    x, mean = p["x"][:1, :, :1, :1].clone(), p["mean"].clone()
    n = functional.batch_norm(torch.conv2d(x, p["w"]), mean, p["var"])
    mean += n.view(3)
    return mean.relu_()


def adds_a_convolution_to_itself(p: dict[str, Tensor]) -> Tensor:
    y = conv(p)
    y += y
    z = conv(p)
    z = z + z.view(3, 2, 6, 6).view(2, 3, 6, 6)
    return torch.relu_(y) + torch.relu_(z)


def overwrites_the_residual(p: dict[str, Tensor]) -> Tensor:
    z = p["z"].clone()
    y = conv(p) + z
    z.zero_()
    n = norm(conv(p), p).add_(p["x"])
    p["x"] = p["x"] * 2
    return torch.relu_(y) + torch.relu_(n) + z


PROGRAMS = [
    adds_to_its_own_input,
    adds_to_a_part_of_its_input,
    adds_to_a_statistic,
    adds_a_convolution_to_itself,
    overwrites_the_residual,
    keeps_a_view,
    uses_the_convolution_twice,
    adds_what_lies_in_between_and_drops_it,
    adds_a_result_to_itself,
    writes_to_an_input_meanwhile,
    drops_every_input_meanwhile,
    resizes_in_between,
    reads_it_as_another_shape_and_type,
    writes_to_given_tensors,
    broadcasts,
    transposes,
    masks_with_itself,
    adds_statistics_that_it_updates,
    drops_the_result,
]

REFUSED = (writes_to_an_input_meanwhile, resizes_in_between, writes_to_given_tensors)


CASES = [(p, learns) for p in PROGRAMS for learns in (False, True) if not (learns and p in REFUSED)]
"""With what autograd keeps as well, where it does not refuse the program."""


@pytest.mark.parametrize(("program", "learns"), CASES, ids=lambda of: getattr(of, "__name__", of))
def test_programs_that_look_in_between(
    parts: dict[str, Tensor], program: Callable[[dict[str, Tensor]], Tensor], learns: bool
) -> None:
    with torch.set_grad_enabled(learns):
        given = {name: tensor.clone() for name, tensor in parts.items()}
        given["w"].requires_grad_(learns)
        plain = {name: tensor.cpu().detach().clone() for name, tensor in parts.items()}
        ours = program(given).detach().cpu()
        assert relative(ours, program(plain)) <= 1e-5


def test_two_threads_hold_and_settle_in_turns(device: Any) -> None:
    x, w, b = small(device, 64, 32), small(device, 32, 32) / 6, small(device, 32)
    expected = torch.relu(torch.addmm(b, x, w)).cpu()
    handed: Queue[Tensor | None] = Queue()
    wrong: list[Tensor] = []

    def consume() -> None:
        while (y := handed.get()) is not None:
            if not torch.allclose(torch.relu_(y).cpu(), expected, atol=1e-5):
                wrong.append(y)

    readers = [Thread(target=consume) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(200):
        handed.put(torch.addmm(b, x, w))
        torch.relu(torch.addmm(b, x, w))
    for _ in readers:
        handed.put(None)
    for reader in readers:
        reader.join()
    assert not wrong


def test_two_devices_do_not_mix() -> None:
    if torch.ocl.device_count() < 2:
        pytest.skip("one device only")
    x, w, b = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
    here, there = (torch.addmm(*(t.to(f"ocl:{i}") for t in (b, x, w))) for i in (0, 1))
    moved = here.to("ocl:1")
    assert torch.allclose(torch.relu_(there + moved).cpu(), torch.relu(2 * torch.addmm(b, x, w)))
    with pytest.raises(RuntimeError, match="same device"):
        torch.conv2d(torch.randn(1, 1, 4, 4).to("ocl:0"), torch.randn(1, 1, 3, 3).to("ocl:1"))


@pytest.fixture
def asked() -> Iterator[None]:
    """Let rules run every step, as when somebody looks on."""

    def ignore(call: tuned.TunedCall) -> None:
        del call

    tuned.observe(ignore)
    yield
    tuned.observe(ignore, on=False)


@pytest.fixture
def failing(asked: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every linear layer run out of memory when it is enqueued."""

    def fail(*given: object) -> None:
        raise torch.OutOfMemoryError("no room for a workspace")

    monkeypatch.setattr(Multiplying, "alone", fail)
    yield
    assert not held.is_holding()


@pytest.mark.usefixtures("failing")
def test_errors_of_what_was_held_are_raised_by_the_next_command(device: Any) -> None:
    x, b = small(device, 4, 4), small(device, 4)
    for command in (lambda: x.exp(), lambda: x.cpu(), torch.ocl.synchronize, lambda: x + x):
        torch.addmm(b, x, x)
        with pytest.raises(torch.OutOfMemoryError, match="no room") as caught:
            command()
        told = [str(caught.value), *getattr(caught.value, "__notes__", ())]
        assert "addmm was held back" in "\n".join(told)
        x.clone()


@pytest.mark.usefixtures("asked")
def test_an_interrupt_of_what_was_held_is_not_lost(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Multiplying, "alone", interrupt)
    x, b = small(device, 4, 4), small(device, 4)
    y = torch.addmm(b, x, x)
    with pytest.raises(RuntimeError, match=r"KeyboardInterrupt\(\)\naddmm was held back"):
        y.cpu()
    torch.addmm(b, x, x)
    with pytest.raises(KeyboardInterrupt):
        x.exp()
    assert not held.is_holding()


def test_memory_that_only_a_held_launch_has_counts_as_free(device: Any) -> None:
    gc.collect()  # or it frees what earlier tests left, between the two readings
    x, b = small(device, 64, 64), small(device, 64)
    torch.ocl.synchronize(device.index)
    before = torch.ocl.memory_allocated(device.index)
    torch.addmm(b, x, x)
    assert held.is_holding()
    assert torch.ocl.memory_allocated(device.index) == before
    torch.ocl.synchronize(device.index)
    assert not held.is_holding()


def test_folded_weights_are_kept_until_anything_of_them_changes(device: Any) -> None:
    layers = nn.Sequential(nn.Conv2d(3, 5, 3).to(place(device)), normalisation(5, device))
    x = small(device, 2, 3, 9, 9)
    torch.ocl.keep_weights()
    try:
        with torch.no_grad():
            layers(x)
            assert "fold_batch_norm" not in names(lambda: layers(x))
            for tensor in layers.state_dict().values():
                if tensor.is_floating_point():
                    tensor.mul_(1.5)
                    same(lambda: layers(x))
    finally:
        torch.ocl.keep_weights(False)


def test_profilers_show_a_fused_kernel_under_the_last_operator(device: Any) -> None:
    x, b = small(device, 64, 64), small(device, 64)
    torch.relu(torch.addmm(b, x, x)).cpu()
    with torch.profiler.profile() as seen:
        y = torch.relu(torch.addmm(b, x, x))
        y.cpu()
    rows = {row.key: row for row in seen.key_averages()}
    assert rows["aten::relu"].device_time_total > 0
    assert rows["aten::addmm"].device_time_total == 0
