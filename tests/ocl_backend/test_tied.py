"""Parameters that modules share stay shared when they move."""

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
