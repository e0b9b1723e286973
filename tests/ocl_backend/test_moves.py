"""Rolls and gradients of slices: what torch's CPU gives, by one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from ocl_backend.kernels import elementwise
from ocl_backend.kernels.gathered_rows import Form, _kernel
from ocl_backend.kernels.places import Places
from ocl_backend.ops.tensor.shape import _flipping
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


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64], ids=str)
def test_rolls_of_many_items(device: Any, dtype: Any) -> None:
    x = torch.randn(6, 30, 5, 14).mul(3).to(dtype)
    there = x.to(place(device))
    for shifts, dims in (((7,), (0,)), ((-1,), (1,)), ((3, 2), (2, 3)), ((1, 4, -2, 5), range(4))):
        for rolled, expected in ((there, x), (there[..., 2:9], x[..., 2:9]), (there.mT, x.mT)):
            ours = rolled.roll(shifts, tuple(dims))
            assert torch.equal(ours.cpu(), expected.roll(shifts, tuple(dims)))
    assert torch.equal(there.roll(999).cpu(), x.roll(999))


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_gradients_of_long_slices(device: Any, dtype: Any) -> None:
    shape = 40, 30, 17
    x = torch.randn(shape).to(dtype)
    there = x.to(place(device))
    for dim, start, step in ((2, 3, 1), (2, 0, 5), (1, 4, 7), (0, 39, 1)):
        part = [slice(None)] * dim + [slice(start, None, step)]
        theirs = aten.slice_backward(x[tuple(part)], shape, dim, start, 9999, step)
        ours = aten.slice_backward(there[tuple(part)], shape, dim, start, 9999, step)
        assert torch.equal(ours.cpu(), theirs)


def test_items_that_lie_apart_are_copied_and_converted(device: Any) -> None:
    x = torch.randn(6, 37, 2, 23).mul(50)
    for source in (torch.float16, torch.bfloat16, torch.int64, torch.int16):
        narrow = x.to(source)
        there = narrow.to(place(device))
        for call in (
            lambda t: t.permute(3, 0, 2, 1)[::2],
            lambda t: t[..., 1::3],
            lambda t: t[..., :1].expand(6, 37, 2, 9),
            lambda t: t.permute(1, 3, 0, 2),
        ):
            assert torch.equal(call(there).contiguous().cpu(), call(narrow).contiguous())
            for target in (torch.float32, torch.float16, torch.uint8):
                if source.is_floating_point and target is torch.uint8:
                    continue  # negative ones are undefined
                assert torch.equal(call(there).to(target).cpu(), call(narrow).to(target))


def test_chains_whose_last_dimension_has_one_item(device: Any) -> None:
    x, y = torch.randn(3, 211, 1), torch.randn(211, 1)
    wide = torch.randn(3, 211, 9)[..., :1]
    for given in (x, wide):
        theirs = ((given * 2 - y).exp(), given + y)
        there, other = given.to(place(device)), y.to(place(device))
        if given is wide:
            there = torch.cat([there] * 9, -1)[..., 4:5]
        ours = ((there * 2 - other).exp(), there + other)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a.cpu(), b)


def test_sums_into_a_turned_target_and_gathers_of_eight(device: Any) -> None:
    x, rows = torch.randn(80, 2).half(), torch.randint(-2, 3, (343, 80)).half()
    index = torch.randint(2, (343,))
    there = x.to(place(device)).mT.index_add(0, index.to(place(device)), rows.to(place(device)))
    theirs = x.mT.index_add(0, index, rows)
    torch.testing.assert_close(there.cpu(), theirs, rtol=4e-3, atol=0.1)
    for count in (5, 8, 21):
        line, at = torch.randn(33).bfloat16(), torch.randint(-33, 33, (count,))
        ours = line.to(place(device))[at.to(place(device))]
        assert torch.equal(ours.cpu(), line[at])
    wrong = torch.tensor([1] * 9 + [33] + [2] * 9, device=place(device))
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        line.to(place(device)).index_select(0, wrong).cpu()


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.bool, torch.complex64], ids=str
)
def test_items_turn_round(device: Any, dtype: Any) -> None:
    for shape in ((245,), (7, 101), (300, 3), (5, 7, 9), (1,), ()):
        x = torch.randn(shape).mul(3).to(dtype)
        wide = torch.cat([x, x], -1)[..., 1:] if shape else x
        for given in (x, x.mT if len(shape) > 1 else x, wide):
            for dims in ((0,), (-1,), (0, -1)) if len(shape) > 1 else ((0,), ()):
                ours = given.to(place(device)).flip(dims)
                assert torch.equal(ours.cpu(), given.flip(dims))


def test_a_processor_turns_rows_round_by_vectors(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("vectors of sixteen are a processor's")
    text = elementwise.source(_flipping(torch.int16), 1, ("-1", "1"), 16, 1, False, True)
    assert "(vload16(0, self_data + self_at - 15)).sfedcba9876543210" in text


def test_places_that_need_64_bits_are_found_in_64(device: Any) -> None:
    def text(narrow: bool) -> str:
        one = torch.float32
        form = Form(one, (torch.int64,), one, 0, (True, True), narrow)
        return _kernel(form, 1024).body

    assert "int8 from" in text(True) and "long8 from" not in text(True)
    assert "long8 from" in text(False) and "(int)" not in text(False)
    x, index = torch.randn(33), torch.randint(33, (21,))
    there, at = x.to(place(device)), index.to(place(device))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Places, "reach", 2**31)
        assert torch.equal(there[at].cpu(), x[index])


def test_places_reach_as_far_as_their_items(device: Any) -> None:
    index = torch.zeros(3, 4, dtype=torch.int64)
    places = Places((3, 4), (0, 1), (index,), (50,), (4,), (0,), "gather")
    assert 49 * 4 + 3 <= places.reach < 1000
