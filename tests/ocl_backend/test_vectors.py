"""GPUs' accesses of whole vectors, at addresses that are aligned and at others, on any device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.optim import Adam

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import collapse
from ocl_backend.kernels.elementwise import ItemSharing, Kernel, Operand, source
from oclgen.limits import Limits
from oclgen.render import NARROW
from tests.ocl_backend.cpu_twin import agree, check, place, relative

STARTS = (0, 1, 2, 3)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)
GPU = Limits(kind="gpu", max_work_group=64)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.float64], ids=str)
def test_a_pointwise_operator_at_any_offset(as_gpu: Any, dtype: Any) -> None:
    a, b = (torch.randint(0, 5, (9_141,)).to(dtype) for _ in range(2))
    for start in STARTS:
        agree(as_gpu, lambda a, b, s=start: a[s:9_101] * b[1 : 9_102 - s], a, b)
        agree(as_gpu, lambda a, s=start: a.clone()[s:9_113].logical_not_(), a)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_several_vectors_that_are_loaded_at_once_at_any_offset(as_gpu: Any, dtype: Any) -> None:
    items = 8 * 4 * as_gpu.limits.compute_units * 512 + 1_021
    a, b = (torch.randint(0, 5, (items + 8,)).to(dtype) for _ in range(2))
    for start in (0, 1, 4):
        stop = start + items
        agree(as_gpu, lambda a, b, s=start, e=stop: a[s:e] * b[1 : e - s + 1], a, b)
        agree(as_gpu, lambda a, b, s=start, e=stop: a.clone()[s:e].add_(b[:items]), a, b)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_at_any_offset(as_gpu: Any, dtype: Any) -> None:
    a, row = torch.randint(0, 5, (68, 172)).to(dtype), torch.randint(0, 5, (172,)).to(dtype)
    for start in STARTS:
        stop = start + 140
        agree(as_gpu, lambda a, r, s=start, e=stop: a[:, s:e] + r[s:e] * a[:, :1], a, row)
        agree(as_gpu, lambda a, s=start, e=stop: a[:, s:e].float().sum(1), a)


@pytest.mark.parametrize("start", STARTS)
def test_normalisation_at_any_offset(as_gpu: Any, start: int) -> None:
    x, shape = torch.randn(12 * 5 * 44 + 3), (12, 5, 4, 11)
    weight, bias = torch.rand(5) + 0.5, torch.randn(5)

    def batch(x: Any, weight: Any, bias: Any) -> Any:
        inner = x[start : start + 2640].view(shape)
        return nn.functional.batch_norm(inner, None, None, weight, bias, training=True)

    def layer(x: Any, weight: Any, bias: Any) -> Any:
        inner = x[start : start + 2640].view(-1, 44)
        affine = tuple(t.repeat(10)[start : start + 44] for t in (weight, bias))
        return nn.functional.layer_norm(inner, (44,), *affine)

    check(as_gpu, batch, x, weight, bias, tolerance=3e-5)
    check(as_gpu, layer, x, weight, bias, tolerance=3e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("channels", [12, 44, 7])
@pytest.mark.parametrize("start", STARTS[:2])
def test_pixels_at_any_offset(as_gpu: Any, start: int, channels: int) -> None:
    items = 5 * 9 * 7 * channels
    x, weight, bias = torch.randn(items + 3), torch.rand(48) + 0.5, torch.randn(48)

    def batch(x: Any, weight: Any, bias: Any) -> Any:
        inner = x[start : start + items].view(5, 9, 7, channels).permute(0, 3, 1, 2)
        scale, shift = (t[start : start + channels] for t in (weight, bias))
        return nn.functional.batch_norm(inner, None, None, scale, shift, training=True)

    check(as_gpu, batch, x, weight, bias, tolerance=3e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("kernel", [2, 4, (3, 2), (2, 4)], ids=str)
def test_windows_that_tile_rows(as_gpu: Any, kernel: Any, dtype: Any) -> None:
    x = torch.randint(-9, 9, (6 * 13 * 20 + 3,)).to(dtype)  # ties: the first one counts
    x[[5, 300]] = float("nan")
    for start, height in ((0, 12), (0, 13), (1, 12)):

        def inner(x: Any, start: int = start, height: int = height) -> Any:
            return x[start : start + 120 * height].view(2, 3, height, 20)

        def pooled(x: Any, kernel: Any = kernel, inner: Any = inner) -> Any:
            return nn.functional.max_pool2d(inner(x), kernel, return_indices=True)

        agree(as_gpu, pooled, x)
        agree(
            as_gpu, lambda x, k=kernel, i=inner: nn.functional.avg_pool2d(i(x), k), x.nan_to_num()
        )
        check(as_gpu, lambda x, f=pooled: f(x)[0], x.nan_to_num())


@pytest.mark.parametrize("start", STARTS)
def test_adam_at_any_offset(as_gpu: Any, start: int) -> None:
    whole, grads = torch.randn(4_407), torch.randn(4_407)
    found = []
    for where in (torch.device("cpu"), place(as_gpu)):
        all_items = whole.clone().to(where)
        parameter = all_items[start : start + 4_401].detach().requires_grad_()
        parameter.grad = grads.to(where)[start : start + 4_401]
        Adam([parameter], lr=0.1).step()
        found.append(all_items)
    assert relative(found[1], found[0]) <= 3e-6  # what lies around it too


def kernel(*dtypes: Any) -> Kernel:
    out, *inputs = (Operand(f"t{i}", d, "input" if i else "output") for i, d in enumerate(dtypes))
    return Kernel("some", "float", (out, *inputs), "const T t0 = t1;")


@pytest.mark.parametrize(
    ("dtypes", "shape", "strides", "width"),
    [
        ((torch.float32, torch.float16), (8_003,), ((1,), (1,)), 4),
        ((torch.float32, torch.float64), (8_003,), ((1,), (1,)), 2),
        ((torch.float32, torch.float32), (4_000,), ((1,), (1,)), 1),
        ((torch.float32, torch.float32), (8_003,), ((1,), (2,)), 1),
        ((torch.float32, torch.float32), (400, 20), ((20, 1), (0, 1)), 4),
        ((torch.float32, torch.float32), (400, 20), ((20, 1), (1, 0)), 4),
        ((torch.float32, torch.float32), (400, 20), ((20, 1), (22, 1)), 2),
        ((torch.float32, torch.float32), (400, 21), ((24, 1), (24, 1)), 1),
    ],
)
def test_gpus_take_rows_of_whole_vectors(dtypes: Any, shape: Any, strides: Any, width: int) -> None:
    geometry = ItemSharing.of(collapse(shape, strides), GPU, kernel(*dtypes))
    assert geometry.width == width


@pytest.mark.parametrize(
    ("dtypes", "items", "steps"),
    [
        ((torch.float32, torch.float32), 1 << 22, 1),
        ((torch.float32, torch.bfloat16), 1 << 22, 1),
        ((torch.bfloat16, torch.bfloat16), 1 << 22, 2),
        ((torch.float16, torch.float16), 1 << 22, 2),
        ((torch.uint8, torch.uint8), 1 << 22, 4),
        ((torch.bfloat16, torch.bfloat16), 1 << 18, 1),
    ],
)
def test_narrow_vectors_are_as_wide_as_an_access_together(
    dtypes: Any, items: int, steps: int
) -> None:
    some, layout = kernel(*dtypes), collapse((items,), ((1,), (1,)))
    limits = replace(GPU, compute_units=132)
    assert ItemSharing.of(layout, limits, some).steps == steps
    text = source(some, 1, ("1", "1"), 4, steps, False)
    assert (f"t1_ahead[{steps}];" in text) == (steps > 1)
    assert "_ahead" not in source(some, 1, ("1", "1"), 4, steps, False, alone=True)


def test_quotients_are_correct_unless_all_that_is_written_is_narrow() -> None:
    """What is stored at an address counts, too, and a kernel that lists no result has one."""
    half, full = (kernel(dtype, torch.float32) for dtype in (torch.float16, torch.float32))
    there = Operand("there", torch.float32, "address")
    for each, body, is_narrow in (
        (half, "const T t0 = 1 / t1;", True),
        (half, "const T t0 = trunc(1 / t1);", False),
        (full, "const T t0 = 1 / t1;", False),
        (half, "const T t0 = 1 / t1; STORE_there(0, t0);", False),
    ):
        parameters = (*each.parameters, there)
        text = source(
            replace(each, body=body, parameters=parameters), 1, ("1", "1", "1"), 1, 1, False
        )
        assert (NARROW in text) == is_narrow, body
    written = Kernel("some", "float", (full.parameters[1], there), "STORE_there(0, 1 / t1);")
    assert NARROW not in source(written, 1, ("1", "1"), 1, 1, False)


@pytest.mark.parametrize(
    ("columns", "local"),
    [(1, (256, 1)), (3, (3, 85)), (19, (19, 13)), (96, (96, 2)), (200, (200, 1)), (300, (160, 1)),
     (1000, (256, 1))],
)  # fmt: skip
def test_rows_of_a_gpu_leave_few_work_items_idle(columns: int, local: tuple[int, int]) -> None:
    layout = collapse((4000, columns), ((2 * columns, 1), (3 * columns, 2)))
    limits = replace(GPU, max_work_group=256)
    geometry = ItemSharing.of(layout, limits, kernel(torch.float32, torch.float32))
    assert (geometry.width, geometry.local) == (1, local)
    across, down = geometry.global_size(layout)
    assert across % local[0] == down % local[1] == 0


@pytest.mark.parametrize(
    ("dtype", "widths"), [("float32", {2, 4}), ("float64", {2}), ("float16", {2, 4})]
)
def test_only_what_one_access_can_hold_asks_for_alignment(dtype: str, widths: set[int]) -> None:
    stored = dtype_of(getattr(torch, dtype))
    for width in (1, 2, 4, 8, 16):
        load = vectors.load(stored, "x", "i", "1", width)
        store = vectors.store(stored, "x", "i", "1", "v", width)
        assert ("(size_t)(x)" in load) == ("(size_t)(x)" in store[0]) == (width in widths)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((192, 40), ((192, 40), (64, 4))),
        ((7, 3, 5), ((8, 4, 5), (8, 4, 1))),
        ((1, 1000), ((1, 1024), (1, 256))),
        ((100, 1, 2), ((128, 1, 2), (64, 1, 1))),
    ],
)
def test_groups_of_a_gpu_have_neighbours(
    sizes: tuple[int, ...], expected: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    gpu = Limits("gpu", 48 * 1024, 256, (256, 256, 64), 2**30, 2**33)
    assert vectors.in_groups(sizes, gpu) == expected
    assert vectors.in_groups(sizes, replace(gpu, kind="cpu")) == (sizes, None)
