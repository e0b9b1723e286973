"""Parameters stay the objects they are when their modules move."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from tests.ocl_backend.cpu_twin import place


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.scores = nn.Linear(4, 7, bias=False)
        self.scores.weight = self.words.weight


def test_weights_stay_tied_there_and_back(device: Any) -> None:
    model = Tied().to(place(device))
    assert model.scores.weight is model.words.weight
    assert len(list(model.parameters())) == 1
    model.scores(model.words(torch.tensor([1, 2], device=place(device)))).sum().backward()
    model = model.half().cpu()
    assert model.scores.weight is model.words.weight
    assert model.words.weight.dtype is torch.float16
    assert model.words.weight.grad is not None


def test_another_move_is_possible_after_a_failed_one(device: Any) -> None:
    model = Tied()
    with pytest.raises(ZeroDivisionError):
        model._apply(lambda _: 1 / 0)
    assert model.to(place(device)).scores.weight is model.words.weight


def test_an_optimizer_may_be_made_before_the_move(device: Any) -> None:
    model: Any = nn.Linear(3, 2)
    model.weight.mark = "mine"
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model.to(place(device))
    assert model.weight.mark == "mine" and model.weight.device == place(device)
    for where in (place(device), torch.device("cpu")):
        model.to(where)
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        model(torch.ones(4, 3, device=where)).sum().backward()
        optimizer.state.clear()
        optimizer.step()
        torch.testing.assert_close(model.weight, before - 0.4)


def test_hooks_of_parameters_move_with_them(device: Any) -> None:
    model: Any = nn.Linear(3, 2)
    seen: list[Any] = []
    doubled = model.weight.register_hook(lambda grad: 2 * grad)
    model.bias.register_post_accumulate_grad_hook(lambda bias: seen.append(bias.device))
    model.to(place(device))
    x = torch.ones(4, 3, device=place(device))
    model(x).sum().backward()
    assert seen == [place(device)] and model.weight.grad.eq(8).all()
    doubled.remove()
    model(x).sum().backward()
    assert model.weight.grad.eq(12).all()


def test_lazy_and_recurrent_modules_move(device: Any) -> None:
    x = torch.ones(4, 2, 3, device=place(device))
    lazy = nn.LazyLinear(5).to(place(device))
    assert lazy(x).shape == (4, 2, 5) and lazy.weight.device == place(device)
    layers = nn.LSTM(3, 4)
    known: list[Any] = list(layers.parameters())
    layers.to(place(device))(x)[0].sum().backward()
    assert all(one is other for one, other in zip(known, layers._flat_weights, strict=True))
    assert all(weight.grad.device == place(device) for weight in known)


def test_new_parameters_are_made_where_torch_is_asked_for_them(device: Any) -> None:
    model = nn.Linear(3, 2)
    old = model.weight
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.to(place(device))
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert model.weight is not old and old.device.type == "cpu"
