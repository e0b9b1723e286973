"""Parameters stay the objects they are when their modules move."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn

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


def test_data_may_come_from_another_device(device: Any) -> None:
    """As `tensor.data = tensor.to(device)` does between torch's own devices."""
    weight = nn.Parameter(torch.arange(3.0))
    optimizer = torch.optim.SGD([weight], 0.5)
    for where in (place(device), torch.device("cpu"), place(device)):
        before = weight.detach().cpu().clone()
        weight.data = weight.data.to(where)
        weight.grad = None
        (weight * torch.ones(3, device=where)).sum().backward()
        assert weight.device == where and weight.grad is not None
        optimizer.step()
        torch.testing.assert_close(weight.detach().cpu(), before - 0.5)

    class Named(Tensor):
        pass

    named = torch.ones(3).as_subclass(Named)
    named.data = torch.zeros(3, device=place(device))
    assert type(named) is Named and named.device == place(device)


def test_data_of_another_kind_is_refused(device: Any) -> None:
    there = torch.ones(3, device=place(device))
    for other in (torch.ones(3, device="meta"), torch.ones(3).to_sparse()):
        with pytest.raises(RuntimeError, match="incompatible tensor type"):
            there.data = other
        with pytest.raises(RuntimeError, match="incompatible tensor type"):
            other.data = there


def test_an_item_of_nothing_is_refused(device: Any) -> None:
    with pytest.raises(RuntimeError, match="Empty tensor not supported"):
        torch.ops.aten._local_scalar_dense(torch.empty(0, device=place(device)))
