"""Sums of values by row in tables of local memory, and which values are worth them."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.kernels import table_sums
from ocl_backend.kernels.dimensions import contiguous_strides
from ocl_backend.kernels.owners import Dim
from ocl_backend.kernels.places import Places
from ocl_backend.kernels.table_sums import Tables, add_by_tables, tables
from oclgen.limits import Limits
from tests.ocl_backend.cpu_twin import place

GPU = Limits(
    kind="gpu", local_bytes=48 << 10, max_work_group=1024, max_work_items=(1024, 1024, 64),
    max_alloc_bytes=1 << 34, global_bytes=1 << 36, compute_units=132,
)  # fmt: skip


def shared(
    shape: tuple[int, ...], dim: int, rows: int, limits: Limits = GPU, may_share: bool = False
) -> Tables | None:
    """Return the tables of an index_add of fp32 values `shape` to `rows` slices along `dim`."""
    target = contiguous_strides([rows if d == dim else n for d, n in enumerate(shape)])
    value = contiguous_strides(shape)
    dims = [
        Dim(n, 0 if d == dim else target[d], value[d], (int(d == dim),))
        for d, n in enumerate(shape)
    ]
    return tables(dims, rows, 4, limits, may_share)


def test_many_values_of_few_rows_have_tables_that_keep_the_device_busy() -> None:
    found = shared((35_254, 179), 0, 2)
    assert found is not None
    assert (found.lanes, found.sharers, found.lanes_first, found.columns) == (256, 1, True, 179)
    assert found.slices * 256 >= 132 * 256
    assert found.slices * found.share >= 35_254


def test_neighbours_read_neighbours_also_where_values_of_a_column_are_dense() -> None:
    found = shared((400, 20_000), 1, 8)
    assert found is not None
    assert not found.lanes_first
    assert found.sharers >= 32


def test_few_meetings_and_large_tables_are_left_to_atomics() -> None:
    assert shared((1000, 64), 0, 100) is None
    assert shared((1_000_000, 64), 0, 5000) is None
    assert shared((100_000, 64), 0, 250) is not None
    assert shared((100_000, 64), 0, 250, replace(GPU, local_bytes=16 << 10)) is None


@pytest.mark.parametrize("may_share", [False, True])
def test_a_table_fits_into_local_memory(may_share: bool) -> None:
    for rows in (1, 2, 3, 60, 64, 65, 130, 256):
        found = shared((100_000, 300), 0, rows, may_share=may_share)
        assert found is not None
        assert found.room >= rows
        assert found.tables == found.sharers or may_share
        assert found.room * found.lanes * found.tables * 4 <= 32 << 10


def test_shared_tables_of_many_rows_keep_more_work_items_busy() -> None:
    for shape, rows in (((200_000,), 100), ((29_861, 96), 100), ((338_560,), 32)):
        apart, together = (shared(shape, 0, rows, may_share=some) for some in (False, True))
        assert apart is not None
        assert together is not None
        assert together.tables < together.sharers
        busy = [one.slices * one.sharers * one.columns for one in (apart, together)]
        assert busy[1] >= 2 * busy[0]


SHAPES = [(700, 30), (3, 700), (1000,), (5, 900, 3), (70, 6, 2)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("busy", [1, 100_000], ids=["whole", "slices"])
@pytest.mark.parametrize("rows", [5, 70], ids=["own", "shared"])
def test_sums_agree_with_the_cpu(
    device: Any, dtype: str, shape: tuple[int, ...], busy: int, rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(table_sums, "are_possible", lambda _: True)
    monkeypatch.setattr(table_sums, "busy_items", lambda _: busy)
    monkeypatch.setattr(table_sums, "MEETING", 1)
    table_sums._prepared.cache_clear()
    generator = torch.Generator().manual_seed(torch.seed() % 2**31)
    dim = shape.index(max(shape))
    index = torch.randint(0, rows, (shape[dim],), generator=generator)
    value = torch.randint(-9, 9, shape, generator=generator).to(getattr(torch, dtype))
    # eighths are exact in each dtype, but not their sums in 16 bits: those are rounded once
    value = value / 8 if value.is_floating_point() else value
    start = torch.ones([rows if d == dim else n for d, n in enumerate(shape)], dtype=value.dtype)
    target, moved = start.to(place(device)), index.to(place(device))
    along = moved.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    steps = tuple(0 if d == dim else step for d, step in enumerate(target.stride()))
    places = Places(shape, steps, (along,), (rows,), (target.stride(dim),), (dim,), "index_add")
    assert add_by_tables(target, places, value.to(place(device)))
    table_sums._prepared.cache_clear()
    wide = torch.float64 if value.is_floating_point() else torch.int64
    theirs = start.to(wide).index_add_(dim, index, value.to(wide)).to(value.dtype)
    assert torch.equal(target.cpu(), theirs)


def test_slices_are_as_many_as_there_are_values_for() -> None:
    for shape in ((64 * 7, 1), (5000, 3), (300_000, 2)):
        found = shared(shape, 0, 7)
        assert found is not None
        assert found.slices * 2 * 7 <= prod(shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_floats_share_no_table_where_an_order_is_asked_for(
    device: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def noted(*given: Any) -> Tables | None:
        asked.append(given[-1])
        return None

    monkeypatch.setattr(table_sums, "are_possible", lambda _: True)
    monkeypatch.setattr(table_sums, "tables", noted)
    target, index = torch.ones(50, dtype=dtype, device=place(device)), torch.arange(4000) % 50
    places = Places((4000,), (0,), (index.to(place(device)),), (50,), (1,), (0,), "index_add")
    try:
        for is_ordered in (False, True):
            table_sums._prepared.cache_clear()
            torch.use_deterministic_algorithms(is_ordered)
            assert not add_by_tables(target, places, 1)
    finally:
        torch.use_deterministic_algorithms(False)
        table_sums._prepared.cache_clear()
    assert asked == [True, not dtype.is_floating_point]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64], ids=str)
def test_few_slices_are_added_in_one_launch(
    device: Any, monkeypatch: pytest.MonkeyPatch, dtype: Any
) -> None:
    if device.limits.max_work_group < 256:
        pytest.skip("groups of 256 work-items do not fit")
    wide = replace(device.limits, kind="gpu", max_work_group=256, compute_units=132)
    monkeypatch.setattr(device, "limits", wide)
    x, values = (torch.randint(-4, 5, (n, 700)).to(dtype) for n in (2, 400))
    index = torch.randint(0, 2, (400,))
    given = [tensor.to(place(device)) for tensor in (x, index, values)]
    places = index.view(-1, 1).expand(-1, 700)
    there = places.to(place(device))
    ours = given[0].index_add(0, *given[1:]), given[0].scatter_add(0, there, given[2])
    for found in ours:
        assert torch.equal(found.cpu(), x.index_add(0, index, values))
    with torch.ocl.profile(file=None) as seen:
        given[0].index_add(0, *given[1:])
    names = [command.name for command in seen.commands]
    assert "copy" in names[0]
    assert names[1:] == ["table_sums", "add_slices_kernel"]
