"""Reductions with a GPU's geometry, on any device: lanes, vectors and pieces."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import reduction_kernels as reduction
from ocl_backend.kernels.dimensions import Dimensions, contiguous_strides
from ocl_backend.kernels.reduction_arrangement import Arrangement, Reading
from ocl_backend.ops.reduce import reductions
from oclgen.limits import Limits
from tests.ocl_backend.cpu_twin import agree, place, relative

STARTS = (0, 1, 2, 4)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.uint8)
DIMS = ((0, 2), (1,), (0,), (1, 2), (2,))
H200 = Limits(kind="gpu", compute_units=132, max_work_group=1024)


def few(dtype: Any, *shape: int) -> Any:
    """Small numbers, whose sums are exact."""
    return torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_items_at_any_offset(as_gpu: Any, dtype: Any) -> None:
    x = few(dtype, 70_011)
    for start in STARTS:
        for size in (70_001, 9_003, 301, 3):
            agree(as_gpu, lambda x, s=start, n=size: x[s : s + n].sum(), x)
        agree(as_gpu, lambda x, s=start: x[s : s + 20_005].amax(), x)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_rows_at_any_offset(as_gpu: Any, dtype: Any) -> None:
    x, uneven = few(dtype, 67, 1_172), few(dtype, 41, 173)
    for start in STARTS:
        for stop in (start + 1_140, start + 37):
            agree(as_gpu, lambda x, s=start, e=stop: x[:, s:e].sum(1), x)
        agree(as_gpu, lambda x, s=start: x[:, s:].sum(1), uneven)
        agree(as_gpu, lambda x, s=start: x[:, s:].amax(1), uneven)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("items", [64, 7])
def test_dot_products_of_rows_are_summed_in_full(as_gpu: Any, dtype: Any, items: int) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(2, 9, 3, items).to(dtype) for _ in "xy")
    exact = (x.double() * y.double()).sum(-1)
    there = [tensor.to(place(as_gpu)) for tensor in (x, y)]
    for start in (0, 1):
        moved = [tensor[:, start:].transpose(1, 2) for tensor in there]
        for pair in (moved, (moved[0], moved[1].contiguous())):
            dots = reductions.dots_of_rows(*pair)
            assert dots.dtype is torch.float32
            assert relative(dots.double(), exact[:, start:].transpose(1, 2)) <= 1e-6


@pytest.mark.parametrize("dtype", DTYPES[::2], ids=str)
def test_columns_at_any_offset(as_gpu: Any, dtype: Any) -> None:
    x, uneven, tall = few(dtype, 1_037, 172), few(dtype, 35, 161), few(dtype, 9_001, 12)
    for start in STARTS:
        for columns in (164, 20, 7):
            agree(as_gpu, lambda x, s=start, e=start + columns: x[:, s:e].sum(0), x)
        agree(as_gpu, lambda x, s=start: x[:, s:].amax(0), uneven)
        agree(as_gpu, lambda x, s=start: x.flatten()[s : s + 107_976].view(-1, 12).sum(0), tall)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("shape", [(13, 6, 484), (5, 1_031, 36), (7, 5, 49)], ids=str)
def test_any_dimensions(as_gpu: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    x = few(torch.float32, *shape)
    for operator in (torch.sum, torch.amax, torch.mean):
        agree(as_gpu, lambda x, f=operator: f(x, dims), x)
    agree(as_gpu, lambda x: torch.var(x.double(), dims), x)
    agree(as_gpu, lambda x: (x > 3).any(dims[0]), x)
    agree(as_gpu, lambda x: (x.argmax(dims[0]), x.argmin(dims[0])), x)


def test_sums_stay_blocked(as_gpu: Any) -> None:
    """A long sum of equal numbers is as exact as partial sums make it."""
    x = torch.full((300_000, 4), 0.1)
    agree(as_gpu, lambda x: (x.sum(), x.sum(0)), x)


def arranged(shape: Any, dims: Any, dtype: Any, aligned: bool = True) -> Arrangement:
    kept = tuple(1 if dim in dims else size for dim, size in enumerate(shape))
    out = tuple(0 if d in dims else s for d, s in enumerate(contiguous_strides(kept)))
    spec = reduction.Spec(
        reductions.SUM, "float", "float", (dtype, dtype, None), shape, dims,
        (contiguous_strides(shape), out), 1.0, aligned,
    )  # fmt: skip
    return reduction.arranged(spec, H200)


@pytest.mark.parametrize(
    ("shape", "dims", "dtype", "columns", "width", "lanes", "pieces"),
    [
        ((1 << 27,), (0,), torch.float32, False, 4, 256, 132 * 16),
        ((1 << 27,), (0,), torch.float64, False, 2, 256, 132 * 16),
        ((4_096, 1_024), (1,), torch.float32, False, 4, 32, 1),
        ((4_096, 1_023), (1,), torch.float32, False, 1, 32, 1),
        ((21_397, 549), (1,), torch.float32, False, 1, 8, 1),
        ((21_397, 549), (1,), torch.bfloat16, False, 1, 8, 1),
        ((64, 549), (1,), torch.float32, False, 1, 128, 1),
        ((1 << 16, 33), (1,), torch.float32, False, 1, 8, 1),
        ((1 << 17, 1_024), (0,), torch.bfloat16, True, 4, 8, 264),
        ((1 << 17, 64), (0,), torch.float32, True, 4, 16, 1_024),
        ((1 << 17, 63), (0,), torch.float32, True, 1, 8, 512),
        ((64, 64, 784), (0, 2), torch.float32, False, 4, 256, 6),
        ((64, 64, 784), (1,), torch.float32, True, 4, 8, 1),
    ],
)
def test_every_unit_of_a_gpu_has_vectors_to_read(
    shape: Any, dims: Any, dtype: Any, columns: bool, width: int, lanes: int, pieces: int
) -> None:
    found = arranged(shape, dims, dtype)
    assert (found.columns, found.width, found.lanes, found.pieces) == (
        columns,
        width,
        lanes,
        pieces,
    )
    assert arranged(shape, dims, dtype, aligned=False).width == 1


@pytest.mark.parametrize(("inner", "across"), [(12_544, 256), (784, 32), (196, 8), (48, 8), (8, 2)])
def test_lanes_along_a_row_have_several_vectors(inner: int, across: int) -> None:
    assert arranged((64, 64, inner), (0, 2), torch.float32).across == across


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("items", [32, 100, 549, 1_024, 1_771, 4_095])
def test_lanes_of_a_row_load_batches_all_of_them(items: int, dtype: Any) -> None:
    """No lane is idle, and what it loads are batches of loads that are in flight together."""
    found = arranged((20_000, items), (1,), dtype)
    own = items / (found.lanes * found.width)
    assert found.across == found.lanes <= 8
    assert min(3, own) <= found.unroll <= 8
    batches = -(-own // found.unroll)
    assert (batches - 1) * found.unroll < own


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("items", [8, 31, 33, 64, 129, 549, 1_030, 4_095])
def test_rows_of_middle_length(as_gpu: Any, dtype: Any, items: int) -> None:
    x = few(dtype, 37, items)
    agree(as_gpu, lambda x: (x.sum(1), x.amax(1), x.argmin(1)), x)
    if dtype.is_floating_point:
        agree(as_gpu, lambda x: (x.double().var(1), x.double().norm(dim=1)), x)


def test_pieces_are_whole_rounds_of_loads() -> None:
    row = Dimensions((100_003,), ((1,),))
    reading = Reading(dtype_of(torch.float32), aligned=True, by_position=False)
    found = Arrangement.of(Dimensions((1,), ((0,), (0,))), row, reading, H200)
    assert found.pieces > 1
    assert found.item_span % (found.across * found.width * found.unroll) == 0
    assert found.item_span * found.item_spans >= 100_003
