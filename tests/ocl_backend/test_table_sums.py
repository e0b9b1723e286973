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


def shared(shape: tuple[int, ...], dim: int, rows: int, limits: Limits = GPU) -> Tables | None:
    """Return the tables of an index_add of fp32 values `shape` to `rows` slices along `dim`."""
    target = contiguous_strides([rows if d == dim else n for d, n in enumerate(shape)])
    value = contiguous_strides(shape)
    dims = [
        Dim(n, 0 if d == dim else target[d], value[d], (int(d == dim),))
        for d, n in enumerate(shape)
    ]
    return tables(dims, rows, 4, limits)


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


def test_a_table_fits_into_local_memory() -> None:
    for rows in (1, 2, 3, 60, 64, 65, 130, 256):
        found = shared((100_000, 300), 0, rows)
        assert found is not None
        assert found.room >= rows
        assert found.room * found.lanes * found.sharers * 4 <= 32 << 10


SHAPES = [(700, 30), (3, 700), (1000,), (5, 900, 3), (70, 6, 2)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("busy", [1, 100_000], ids=["whole", "slices"])
def test_sums_agree_with_the_cpu(
    device: Any, dtype: str, shape: tuple[int, ...], busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_sums, "are_possible", lambda _: True)
    monkeypatch.setattr(table_sums, "busy_items", lambda _: busy)
    monkeypatch.setattr(table_sums, "MEETING", 1)
    table_sums._prepared.cache_clear()
    generator = torch.Generator().manual_seed(torch.seed() % 2**31)
    dim, rows = shape.index(max(shape)), 5
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
