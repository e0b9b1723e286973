"""Programs that look at what is held back, or change it: right, with autograd and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor
from torch.nn import functional

from tests.ocl_backend.cpu_twin import relative
from tests.ocl_backend.fusion_cases import only_one, small


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
