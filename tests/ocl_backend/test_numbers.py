"""Numbers that are assigned to a part of a tensor: one launch, and right for every later reader."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from ocl_backend.fusion import recall
from tests.ocl_backend.cpu_twin import place

DTYPES = torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8


def number(device: Any, value: float) -> Tensor:
    """What torch makes of a number that is assigned."""
    return torch.scalar_tensor(value, device=place(device))


def test_a_part_is_set_by_one_launch(device: Any) -> None:
    x = torch.zeros(8, 8).to(place(device))
    for _ in range(3):
        with torch.ocl.profile(file=None) as seen:
            x[1:3, 2:] = 5
        assert len(seen.commands) == 1
    assert x[1:3, 2:].eq(5).all() and x.sum() == 60


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parts_of_any_dtype_are_set(device: Any, dtype: Any) -> None:
    ours, theirs = (torch.zeros(4, 5, dtype=dtype, device=d) for d in (place(device), "cpu"))
    for x in (ours, theirs):
        for _ in range(3):
            x[1:, ::2] = 3
            x[0, 0] = 1
            x[:, 1] = True
    assert torch.equal(ours.cpu(), theirs)


def test_a_number_is_there_for_its_readers(device: Any) -> None:
    x = torch.ones(3).to(place(device))
    assert number(device, 3).item() == 3
    one, other = number(device, 3), number(device, 4)
    assert torch.equal((one + other + x).cpu(), torch.full((3,), 8.0))
    for value in range(5):  # recalled or not
        assert torch.equal(
            torch.where(x > 0, number(device, value), x).cpu(), torch.full((3,), value)
        )
        with torch.no_grad():  # the chain is loose
            held = number(device, value)
            assert torch.equal((x * held + held).cpu(), torch.full((3,), 2.0 * value))


def test_a_number_changes_before_it_is_copied_and_behind(device: Any) -> None:
    x = torch.zeros(3).to(place(device))
    held = number(device, 3)
    held.add_(1)
    x.copy_(held.expand(3))
    assert x.eq(4).all()
    held = number(device, 3)
    x.copy_(held.expand(3))
    held.add_(1)
    assert x.eq(3).all() and held.item() == 4


def test_a_number_is_copied_as_another_dtype(device: Any) -> None:
    x = torch.zeros(3, dtype=torch.int64).to(place(device))
    x.copy_(number(device, 2.5).expand(3))
    assert x.eq(2).all()
    bits = torch.zeros(3, dtype=torch.int32).to(place(device))
    bits.copy_(number(device, 1).view(torch.int32).expand(3))
    assert bits.eq(0x3F800000).all()


def test_another_thread_reads_a_number(device: Any) -> None:
    held, read = number(device, 9), list[float]()
    thread = Thread(target=lambda: read.append(held.item()))
    thread.start()
    thread.join()
    assert read == [9]


def test_memory_of_a_number_that_was_dropped_is_not_written(device: Any) -> None:
    torch.ocl.empty_cache()  # or the next tensor may lie elsewhere
    held = number(device, 9)
    address = held.data_ptr()
    del held
    ones = torch.empty(1, device=place(device)).fill_(1)
    assert ones.data_ptr() == address
    assert (ones + ones).item() == 2
    held = number(device, 9)
    held.untyped_storage().resize_(0)
    assert (ones + ones).item() == 2


def test_fusion_that_is_off_holds_no_number(device: Any) -> None:
    x = torch.zeros(3).to(place(device))
    with torch.ocl.fusion(False):
        x[1:] = 7
    recall.suspend(True)
    x[:1] = 5
    recall.suspend(False)
    assert x.tolist() == [5, 7, 7]


SHAPES = ((4, 5), (4, 5)), ((4, 5), (5,)), ((4, 1), (4, 5)), ((), (3,)), ((0, 3), (3,))


@pytest.mark.parametrize("dtype", (*DTYPES, torch.complex64), ids=str)
def test_masked_items_are_filled(device: Any, dtype: Any) -> None:
    for shape, mask_shape in SHAPES:
        x, mask = torch.randn(shape).mul(3).to(dtype), torch.rand(mask_shape) > 0.5
        for given in (x, x.mT if x.dim() == 2 and shape == mask_shape else x):
            where = mask if given is x else mask.mT
            ours = given.to(place(device)).masked_fill(where.to(place(device)), 2)
            theirs = given.masked_fill(where, 2)
            assert torch.equal(ours.cpu(), theirs)
            assert (ours.stride(), ours.dtype) == (theirs.stride(), theirs.dtype)


def test_masked_items_are_filled_by_one_launch(device: Any) -> None:
    x = torch.randn(4, 5).to(place(device))
    mask = x > 0
    with torch.ocl.profile(file=None) as seen:
        x.masked_fill(mask, -100.0)
    assert len(seen.commands) == 1


@pytest.mark.parametrize("name", ["float64", "float16", "bfloat16", "int64"])
def test_a_tensor_without_dimensions_of_the_cpu_keeps_its_dtype(device: Any, name: str) -> None:
    number = torch.tensor(2, dtype=getattr(torch, name))
    for dtype in (torch.bool, torch.int32, torch.float32):
        x = torch.ones(3, dtype=dtype)
        for compute in (torch.mul, torch.add, torch.div, torch.eq, torch.maximum):
            ours, theirs = compute(x.to(place(device)), number), compute(x, number)
            assert ours.dtype is theirs.dtype
            assert torch.equal(ours.cpu(), theirs)
