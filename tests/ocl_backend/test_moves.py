"""Rolls and gradients of slices: what torch's CPU gives, by one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from tests.ocl_backend.cpu_twin import place

aten = torch.ops.aten
SHAPE = 2, 5, 6, 8
DTYPES = torch.float32, torch.bfloat16, torch.int64, torch.bool
MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "roll": lambda x: x.roll((2, -3), (1, 2)),
    "roll along rows": lambda x: x.roll((1, 3, 20), (0, -1, -1)),
    "roll of a view": lambda x: x[:, 1:, :, 2:].roll(2, 1),
    "roll of turned dimensions": lambda x: x.transpose(1, 3).roll(2, 2),
    "select": lambda x: aten.select_backward(x[:, 2], SHAPE, 1, 2),
    "select from the end": lambda x: aten.select_backward(x[..., -3], SHAPE, -1, -3),
    "select of turned dimensions": lambda x: aten.select_backward(x.mT[1], (2, 5, 8, 6), 0, 1),
    "slice": lambda x: aten.slice_backward(x[:, 1:4], SHAPE, 1, 1, 4, 1),
    "slice by steps": lambda x: aten.slice_backward(x[:, :, 1::2], SHAPE, 2, 1, 9, 2),
    "slice of rows": lambda x: aten.slice_backward(x[..., -3:], SHAPE, 3, -3, 8, 1),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_items_move_by_one_launch(device: Any, name: str, dtype: Any) -> None:
    x = torch.randn(SHAPE).mul(3).to(dtype)
    there = x.to(place(device))
    with torch.ocl.profile(file=None) as seen:
        ours = MOVES[name](there)
    theirs = MOVES[name](x)
    assert len(seen.commands) == 1
    assert torch.equal(ours.cpu(), theirs)
    assert ours.shape == theirs.shape


def test_nothing_moves_and_nothing_is_selected(device: Any) -> None:
    x = torch.randn(SHAPE)
    there = x.to(place(device))
    assert torch.equal(there.roll((5, 12), (1, 2)).cpu(), x)
    assert there[:0].roll(1, 1).shape == (0, *SHAPE[1:])
    empty = aten.slice_backward(there[:, 3:3], SHAPE, 1, 3, 3, 1)
    assert torch.equal(empty.cpu(), torch.zeros(SHAPE))
    with pytest.raises(IndexError):
        aten.select_backward(there[:, 2], SHAPE, 1, 5)


def test_a_wrong_gradient_of_a_slice_is_refused(device: Any) -> None:
    there = torch.randn(SHAPE).to(place(device))
    with pytest.raises(RuntimeError):
        aten.slice_backward(there[:, 1:4], SHAPE, 1, 3, 6, 1)


def test_complex_items_move(device: Any) -> None:
    x = torch.randn(SHAPE, dtype=torch.complex64)
    ours = aten.select_backward(x[:, 2].to(place(device)), SHAPE, 1, 2)
    assert torch.equal(ours.cpu(), aten.select_backward(x[:, 2], SHAPE, 1, 2))
