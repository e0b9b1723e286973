"""Who combines values at computed places on processors, and which results that gives."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.kernels import scatter
from ocl_backend.kernels.dimensions import contiguous_strides
from ocl_backend.kernels.gathered_rows import found
from ocl_backend.kernels.owners import Dim, Owners, owners, with_long_rows
from oclgen.limits import Limits
from tests.ocl_backend.cpu_twin import place

CPU = Limits(
    kind="cpu", local_bytes=1 << 15, max_work_group=4096, max_work_items=(4096, 4096, 4096),
    max_alloc_bytes=1 << 30, global_bytes=1 << 32, compute_units=2, native_float_width=8,
    extensions=frozenset(),
)  # fmt: skip
MANY = replace(CPU, compute_units=64)


def added(shape: tuple[int, ...], dim: int, size: int, limits: Limits = CPU) -> Owners | None:
    """Return the owners of an index_add of fp32 values `shape` to `size` slices along `dim`."""
    target = contiguous_strides([size if d == dim else n for d, n in enumerate(shape)])
    value = contiguous_strides(shape)
    dims = [
        Dim(n, 0 if d == dim else target[d], value[d], (int(d == dim),))
        for d, n in enumerate(shape)
    ]
    return owners(dims, [target[dim]], 4, limits)


def test_rows_are_shared_out_by_columns_where_they_are_long() -> None:
    owned = added((4096, 768), 0, 50_000)
    assert owned is not None
    assert (owned.way, owned.parts, owned.columns, owned.width) == ("columns", 2, 768, 16)
    assert owned.share == 384
    assert [dim.size for dim in owned.walked] == [2, 4096]


def test_columns_of_an_owner_are_whole_vectors_and_all() -> None:
    owned = added((4096, 1003), 0, 50_000)
    assert owned is not None
    assert owned.share == 512
    assert owned.parts * owned.share >= owned.columns


def test_dimensions_without_meetings_are_shared_out_first() -> None:
    owned = added((8, 1000, 64), 1, 100)
    assert owned is not None
    assert (owned.way, owned.parts, owned.columns) == ("apart", 8, 64)
    assert [dim.size for dim in owned.walked] == [8, 1000]


def test_short_rows_are_tested() -> None:
    owned = added((1_000_000, 16), 0, 100_000)
    assert owned is not None
    assert (owned.way, owned.parts, owned.columns) == ("tested", 2, 16)
    assert 1 << owned.block >= 64  # four lines: neighbours rarely write to the same


def test_single_items_have_one_owner() -> None:
    owned = added((1_000_000,), 0, 1000)
    assert owned is not None
    assert (owned.parts, owned.columns, owned.share) == (1, 1, 1)


def test_one_owner_walks_what_one_work_item_walks_anyway() -> None:
    owned = added((300,), 0, 50, MANY)
    assert owned is not None
    assert owned.parts == 1


def test_many_threads_do_not_all_look_at_each_item() -> None:
    assert added((1_000_000,), 0, 1000, MANY) is None
    assert added((1_000_000, 16), 0, 1000, MANY) is not None  # a look pays for 16 items
    assert added((4096, 768), 0, 1000, replace(CPU, kind="gpu")) is None


def test_blocks_are_no_shorter_than_steps() -> None:
    """Places that are multiples of a step would else have a single owner."""
    dims = [Dim(1_000_000, 0, 16, (1,)), Dim(16, 1, 1, (0,))]
    owned = owners(dims, [4096], 4, CPU)
    assert owned is not None
    assert {(place >> owned.block) % 2 for place in range(0, 40 * 4096, 4096)} == {0, 1}


@pytest.mark.parametrize(("rows", "walked"), [(100_000, [2, 5, 50_000]), (99_991, [99_991, 5])])
def test_short_rows_are_walked_along_the_longest_dimension(rows: int, walked: list[int]) -> None:
    """Where owners can share that out in equal parts: one index then serves a part's items."""
    owned = added((rows, 5), 1, 5)
    assert owned is not None
    assert owned.way == "apart"
    assert [dim.size for dim in owned.walked] == walked


def test_places_that_meet_do_not_pass_each_other() -> None:
    meeting = [Dim(1000, 0, 4, (4,)), Dim(4, 1, 1, (1,))]
    assert with_long_rows(meeting) == meeting
    apart = [Dim(1000, 4, 4, (0,)), Dim(4, 0, 1, (1,))]
    assert with_long_rows(apart) == apart[::-1]


def test_an_index_that_stays_along_a_loop_is_read_before_it() -> None:
    body = found("STILL\nfor (;;) {\nFIND\n}", (0, 1, 2), "at")
    before, within = body.split("for (;;)")
    assert "LOAD_index_0(index_0_at)" in before
    assert "begin += index_0 * step_of_0" in before
    assert "LOAD_index_1(index_1_at + k)" in within
    assert "LOAD_index_2(index_2_at + k * inner_index_2)" in within


def test_every_item_is_walked_once() -> None:
    generator = torch.Generator().manual_seed(torch.seed() % 2**31)
    for _ in range(300):
        shape = tuple(torch.randint(1, 40, (3,), generator=generator).tolist())
        dim, units = torch.randint(0, 3, (2,), generator=generator).tolist()
        owned = added(shape, dim, 7, replace(CPU, compute_units=2 + units))
        assert owned is not None
        walked = prod(part.size for part in owned.walked)
        shared = 1 if owned.way == "apart" else owned.parts
        assert walked * owned.columns == prod(shape) * shared, (shape, dim)


CASES: dict[str, Any] = {
    "rows": ((700, 300), (40, 300), lambda x, i, v: x.index_add_(0, i[:, 0], v)),
    "short rows": ((9000, 5), (40, 5), lambda x, i, v: x.index_add_(0, i[:, 0], v)),
    "columns": ((5, 9000), (5, 40), lambda x, i, v: x.index_add_(1, i[0], v)),
    "transposed": (
        (300, 70),
        (40, 70),
        lambda x, i, v: x.index_add_(0, i[:, 0], v.T.contiguous().T),
    ),
    "items": ((20_000,), (40,), lambda x, i, v: x.index_put_((i,), v, accumulate=True)),
    "a number": ((20_000,), (40,), lambda x, i, v: x.index_put_((i,), v[3], accumulate=True)),
    "batch": ((6, 900, 30), (6, 40, 30), lambda x, i, v: x.scatter_add_(1, i, v)),
    "short last": ((900, 5), (900, 40), lambda x, i, v: x.index_add_(1, i[0], v)),
    "last": ((6, 30, 900), (6, 30, 40), lambda x, i, v: x.scatter_add_(-1, i, v)),
    "spread": ((9000, 20), (40, 20), lambda x, i, v: x.scatter_add_(0, i[:, :1].expand_as(v), v)),
    "largest": ((9000, 20), (40, 20), lambda x, i, v: x.scatter_reduce_(0, i, v, "amax")),
    "into a view": ((9000, 20), (80, 45), lambda x, i, v: x[::2, 1:41:2].index_add_(0, i[:, 0], v)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint8"])
@pytest.mark.parametrize("name", CASES)
def test_sums_agree_with_the_cpu_and_have_one_order(device: Any, name: str, dtype: str) -> None:
    shape, size, function = CASES[name]
    generator = torch.Generator().manual_seed(torch.seed() % 2**31)
    index = torch.randint(0, 40, shape, generator=generator)
    value = torch.randint(-9, 9, shape, generator=generator).to(getattr(torch, dtype))
    # eighths are exact in each dtype, but not their sums in 16 bits: those are rounded once
    value = value / 8 if value.is_floating_point() else value
    start = torch.zeros(size, dtype=value.dtype)
    ours = [function(start.to(place(device)), *on(device, index, value)).cpu() for _ in range(2)]
    wide = torch.float64 if value.is_floating_point() else torch.int64
    theirs = function(start.to(wide), index, value.to(wide)).to(value.dtype)
    assert torch.equal(ours[0], theirs)
    assert torch.equal(ours[1], theirs)


@pytest.mark.parametrize("deterministic", [False, True], ids=["atomics", "sorted places"])
def test_other_ways_remain_where_owners_are_not_worth_it(
    device: Any, deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scatter, "combine_owned", lambda *_: False)
    index, value = torch.randint(0, 7, (3000,)), torch.randint(-9, 9, (3000,)).float()
    torch.use_deterministic_algorithms(deterministic)
    try:
        ours = torch.zeros(7, device=place(device)).index_add_(0, *on(device, index, value))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(ours.cpu(), torch.zeros(7).index_add_(0, index, value))


def test_an_index_out_of_range_is_noted_by_owners(device: Any) -> None:
    index = torch.tensor([0, 9, 1])
    torch.ocl.set_sync_errors(True)
    try:
        with pytest.raises(RuntimeError, match="index 9 is out of bounds"):
            torch.zeros(4, device=place(device)).index_add_(0, *on(device, index, torch.ones(3)))
    finally:
        torch.ocl.set_sync_errors(False)


@pytest.mark.parametrize("shape", [(700, 3), (700, 8), (90, 40, 6)])
def test_columns_of_short_rows_are_read_and_added_to(device: Any, shape: tuple[int, ...]) -> None:
    x = torch.randint(-9, 9, shape).float()
    index = torch.tensor([2, -1, 0, -3, 2])
    ours, columns = on(device, x, index)
    assert torch.equal(ours[..., columns].cpu(), x[..., index])
    for each in (ours, x):
        where = columns if each is ours else index
        each.transpose(0, -1).index_put_((where,), each.new_ones(()), accumulate=True)
    assert torch.equal(ours.cpu(), x)
    torch.ocl.set_sync_errors(True)
    try:
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            ours.index_select(-1, torch.tensor([0, shape[-1]], device=ours.device))
    finally:
        torch.ocl.set_sync_errors(False)


def test_rows_of_half_precision_are_rounded_once(device: Any) -> None:
    """300 additions of 1 to 1024 in bf16 would change nothing, one after the other."""
    weight = torch.ones(300, 20, dtype=torch.bfloat16)
    index = torch.zeros(300, dtype=torch.int64)
    start = torch.full((3, 20), 1024.0, dtype=torch.bfloat16)
    ours = start.to(place(device)).index_add_(0, *on(device, index, weight))
    assert float(ours[0, 0]) == 1328  # 1324, rounded
    grad = torch.ops.aten.embedding_dense_backward(*on(device, weight, index), 3, -1, False)
    assert float(grad[0, 0]) == 300


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("columns", [1, 19, 64])
def test_few_values_reach_a_large_narrow_target(device: Any, dtype: Any, columns: int) -> None:
    """Of which only the rows that are met are widened, summed and rounded, others kept."""
    torch.manual_seed(0)
    value = torch.randint(-3, 4, (300, columns)).to(dtype)
    index, start = torch.randint(0, 40, (300,)) * 50, torch.randint(0, 9, (2000, columns)).to(dtype)
    ours = start.to(place(device)).index_add_(0, *on(device, index, value))
    assert torch.equal(ours.cpu(), start.clone().index_add_(0, index, value))


def on(device: Any, *tensors: Any) -> list[Any]:
    """Return the tensors on the device."""
    return [tensor.to(place(device)) for tensor in tensors]


@pytest.mark.on_each_device(1)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_vectors_of_rows_begin_at_any_item(device: Any, dtype: str) -> None:
    """A row of nine items lies where no vector is aligned; PoCL's instructions demand that."""
    kind = getattr(torch, dtype)
    values = torch.arange(2 * 3 * 10 * 9).remainder(5).view(2, 3, 10, 9).to(kind)
    index = torch.tensor([0, 3, 3, 5, 1, 0, 2, 2, 4, 5])
    for dim, rows in ((2, values), (0, values.movedim(2, 0).contiguous())):
        target = torch.zeros([6 if i == dim else size for i, size in enumerate(rows.shape)])
        target = target.to(kind)
        ours = target.to(place(device)).index_add_(
            dim, index.to(place(device)), rows.to(place(device))
        )
        assert torch.equal(ours.cpu(), target.index_add(dim, index, rows))
