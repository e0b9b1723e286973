"""Ranges of numbers that are drawn or evenly spaced, and shapes that are joined: at their ends."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import agree, place, refuse_alike

LONG = torch.iinfo(torch.int64)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.half])
@pytest.mark.parametrize("ends", [(-(2**40), 1), (0, 2**40)])
def test_integers_that_a_dtype_lacks_are_not_drawn(
    device: Any, dtype: Any, ends: tuple[int, int]
) -> None:
    refuse_alike(device, lambda x: x.random_(*ends), torch.zeros(3, dtype=dtype))


def test_integers_between_which_a_dtype_has_gaps_are_drawn_with_a_warning(device: Any) -> None:
    x = torch.empty(100, device=place(device))
    with pytest.warns(UserWarning, match="to - 1 is out of bounds"):
        x.random_(0, 2**30)
    assert x.min() >= 0 and x.max() <= 2**30


def test_integers_are_drawn_from_the_whole_range(device: Any) -> None:
    x = torch.empty(1000, dtype=torch.int64, device=place(device))
    for ends in ((LONG.min, None), (LONG.min, LONG.max)):
        x.random_(*ends)
        assert (x < LONG.min // 2).any()
        assert (x > LONG.max // 2).any()
    x.random_(LONG.min, 42)
    assert (x < LONG.min // 2).any()
    assert x.max() < 42


def test_integers_are_evenly_spaced_over_the_whole_range(device: Any) -> None:
    x = torch.linspace(LONG.min, LONG.max, 5, dtype=torch.int64, device=place(device))
    assert x.tolist() == [LONG.min, -(2**62), 0, 2**62 - 1, LONG.max]
    for start, end in ((-7, 6), (5, -30), (-1, 0)):
        agree(device, lambda x, s=start, e=end: torch.linspace(s, e, 11, out=x), torch.arange(11))


def test_complex_numbers_are_evenly_spaced_in_any_shape(device: Any) -> None:
    out = torch.zeros(4, 3, 2, dtype=torch.complex64)
    agree(device, lambda x: torch.linspace(1j, 5, 24, out=x.permute(2, 0, 1)), out)


def test_items_that_share_a_place_are_not_evenly_spaced(device: Any) -> None:
    refuse_alike(device, lambda x: torch.linspace(0, 1, 3, out=x.expand(3)), torch.zeros(1))


def test_counts_that_cannot_be_are_refused(device: Any) -> None:
    for counts in (torch.tensor([1, -2, 3]), torch.ones(3), torch.ones(2, 2, dtype=torch.int64)):
        refuse_alike(device, torch.repeat_interleave, counts)


def test_empty_rows_are_joined_along_any_dimension(device: Any) -> None:
    agree(device, lambda x: torch.cat([x, x.half()], 1), torch.zeros(0))


def test_parts_of_channels_last_images_are_joined_in_their_layout(device: Any) -> None:
    x = torch.arange(24.0).reshape(2, 2, 3, 2).to(memory_format=torch.channels_last)
    for dims in ((2, 3), (2, 2), (3, 0), (1, 1)):
        parts = [x.narrow(dims[0], 0, 1), x.narrow(dims[0], 1, 1)]
        there = torch.cat([part.to(place(device)) for part in parts], dims[1])
        on_device = x.to(place(device))
        parts_there = [on_device.narrow(dims[0], i, 1) for i in (0, 1)]
        joined = torch.cat(parts_there, dims[1])
        assert joined.stride() == torch.cat(parts, dims[1]).stride()
        assert torch.equal(there, joined)


def test_sparse_truths_without_dimensions_become_dense(device: Any) -> None:
    agree(device, lambda x: x.to_sparse().to_dense(), torch.tensor(True))
    agree(device, lambda x: x.to_sparse().to_dense(), torch.tensor(3, dtype=torch.uint8))


@pytest.mark.parametrize("size", [(), (1,)])
def test_one_item_takes_one_item(device: Any, size: tuple[int, ...]) -> None:
    zero = torch.zeros(1, dtype=torch.int64)
    for other in ((), (1,)):
        given = (torch.zeros(size), zero, torch.ones(other))
        agree(device, lambda x, i, y: x.index_copy(0, i, y), *given)


OVERLAPPING: dict[str, Any] = {
    "index_add": lambda x, i, y: x.expand(4).index_add_(0, i, y),
    "index_copy": lambda x, i, y: x.expand(4).index_copy_(0, i, y),
    "put": lambda x, i, y: x.expand(4).put_(i, y),
    "scatter": lambda x, i, y: x.expand(4).scatter_(0, i, y),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_places_that_share_memory_are_not_written(device: Any, name: str) -> None:
    index = torch.arange(4)
    refuse_alike(device, OVERLAPPING[name], torch.zeros(1), index, index.float())


def test_expanded_tensors_are_filled_with_a_warning(device: Any) -> None:
    x, index = torch.zeros(1, device=place(device)), torch.arange(4, device=place(device))
    with pytest.warns(UserWarning, match="index_fill_ on expanded tensors is deprecated"):
        x.expand(4).index_fill_(0, index, 2)
    with pytest.warns(UserWarning, match="index_put_ on expanded tensors is deprecated"):
        x.expand(4).index_put_((index,), x)
    assert x.item() == 2


def test_a_mask_takes_no_more_items_than_there_are(device: Any) -> None:
    mask = torch.tensor([True, False, True, True])
    torch.ocl.set_sync_errors(True)
    try:
        refuse_alike(device, torch.Tensor.masked_scatter, torch.zeros(4), mask, torch.ones(2))
    finally:
        torch.ocl.set_sync_errors(False)
    agree(device, torch.Tensor.masked_scatter, torch.zeros(4), mask, torch.arange(6.0)[::2])


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_integers_are_filled(device: Any, dtype: Any) -> None:
    """Also as new memory is in deterministic mode, where a fill that asks the CPU would recurse."""
    most = torch.iinfo(dtype).max
    torch.use_deterministic_algorithms(True)
    try:
        new = torch.empty(3, 2, dtype=dtype, device=place(device))
    finally:
        torch.use_deterministic_algorithms(False)
    assert new.cpu().tolist() == [[most] * 2] * 3
    assert new.zero_().cpu().tolist() == [[0] * 2] * 3
    assert new[:, :1].fill_(5).cpu().tolist() == [[5]] * 3
    assert new[:1].expand(4, 2).fill_(most - 1)[3].cpu().tolist() == [most - 1] * 2


FEW: dict[str, Any] = {
    "softmax": (lambda x, d: x.softmax(d), (2, 0), -1, (2, 0), -4),
    "log_softmax": (lambda x, d: x.log_softmax(d), (2, 0), 1, (2, 0), 2),
    "scatter": (lambda x, d: x.scatter(d, x.long(), 1.0), (2, 0), -1, (2, 0), -4),
    "unique": (lambda x, d: x.unique(dim=d), (0, 2), 0, (2, 0), 0),
    "tril": (lambda x, d: x.tril(d), (0, 2), 0, (0,), 0),
    "index_fill": (lambda x, d: x.index_fill(d, x.long(), 1), (), -1, (), -2),
    "median": (lambda x, d: x.median(d), (), -1, (), -2),
    "max": (lambda x, d: x.max(d), (), -1, (), -2),
    "grid_sample": (
        lambda x, d: torch.nn.functional.grid_sample(x, x.new_zeros(1, d, 2, 2)),
        (1, 0, 3, 4), 2, (1, 3, 0, 4), 2,
    ),
}  # fmt: skip
"""A call, and the shape and the number for which it is right, and for which it is wrong."""


@pytest.mark.parametrize("name", FEW)
def test_wrong_calls_of_few_items_are_refused_after_right_ones(device: Any, name: str) -> None:
    """Forms of calls, which the CPU is asked for once, know no shapes and not all numbers."""
    call, right, number, wrong, other = FEW[name]
    call(torch.zeros(right, device=place(device)), number)
    refuse_alike(device, lambda x: call(x, other), torch.zeros(wrong))


def test_nothing_is_moved_or_filled(device: Any) -> None:
    for where in ("cpu", place(device)):
        none = torch.zeros(0, dtype=torch.int64, device=where)
        assert none.roll(1, -5).shape == (0,)
        assert torch.ones((), device=where).index_fill(0, none, 2.0).item() == 1
