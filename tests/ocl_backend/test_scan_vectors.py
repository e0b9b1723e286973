"""Scans on processors: rows by vectors, other lines in the lanes of vectors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import agree, place
from tests.ocl_backend.fusion_cases import names

DTYPES = ["float32", "float16", "bfloat16", "float64", "int32", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (3, 8), (9001,), (2, 4100), (300, 13)])
def test_sums_of_small_integers_are_exact(device: Any, shape: tuple[int, ...], dtype: str) -> None:
    x = torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(1))
    x = x.abs() if dtype == "uint8" else x
    agree(device, lambda x: x.to(getattr(torch, dtype)).cumsum(-1), x, tolerance=0)
    agree(device, lambda x: x.to(getattr(torch, dtype))[..., 1:].cumsum(-1), x, tolerance=0)


@pytest.mark.parametrize("size", [7, 1001, 8201])
def test_products_and_logarithms_of_sums(device: Any, size: int) -> None:
    x = torch.randn(2, size, generator=torch.Generator().manual_seed(2))
    x[0, size // 2] = -torch.inf
    agree(device, lambda x: (1 + x.clamp(-3, 3) / 100).cumprod(-1), x, tolerance=1e-4)
    agree(device, lambda x: x.logcumsumexp(-1), x)
    x[1, size // 2] = torch.nan
    agree(device, lambda x: x.logcumsumexp(-1), x)


def test_totals_of_a_long_row_are_not_rounded_to_16_bits(device: Any) -> None:
    x = torch.full((20_000,), 0.1001).half()
    found = x.to(place(device)).cumsum(0).cpu().double()
    torch.testing.assert_close(found, x.double().cumsum(0), rtol=6e-4, atol=0)


def test_a_long_row_is_read_twice_and_written_once(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("GPUs have groups")
    x = torch.ones(9001, device=place(device))
    x.cumsum(0)
    stretches = ["scan_total_kernel", "scan_scan_kernel", "scan_carry_kernel"]
    assert names(lambda: x.cumsum(0)) == stretches
    column = x.view(9001, 1, 1)
    assert names(lambda: column.cumsum(0)) == stretches
    rows = torch.ones(4 * device.limits.compute_units, 9001, device=place(device))
    rows.cumsum(1)
    assert names(lambda: rows.cumsum(1)) == ["scan_scan_kernel"]


LINES = {
    "cumsum": lambda x, dim: x.cumsum(dim),
    "cumprod": lambda x, dim: x.clamp(-1, 1).cumprod(dim),
    "cummax": lambda x, dim: x.cummax(dim),
    "cummin": lambda x, dim: x.cummin(dim),
}


@pytest.mark.parametrize("dtype", [*DTYPES, "int64"])
@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_lines_along_any_dimension(device: Any, dim: int, name: str, dtype: str) -> None:
    """Many lines of a few items, and few lines of many, lie in rows, turned or cut out."""
    numbers = torch.randint(-1, 2, (3, 700, 65), generator=torch.Generator().manual_seed(4))
    x = numbers.abs() if dtype in ("uint8", "bool") else numbers
    x = x.to(getattr(torch, dtype))
    if dtype == "bool" and name == "cumprod":
        pytest.skip("bools are not clamped")
    for given in (x, x.mT.contiguous().mT, x.permute(2, 1, 0).contiguous().permute(2, 1, 0)):
        agree(device, lambda x: LINES[name](x, dim), given, tolerance=0)
        agree(device, lambda x: LINES[name](x[:, 1:, 5:7], dim), given, tolerance=0)


def test_numbers_that_are_none_and_equal_ones_move_the_place(device: Any) -> None:
    x = torch.randn(2, 4001, generator=torch.Generator().manual_seed(5))
    x[0, 30:50] = x.max()
    x[0, 2900] = x[1, 2000] = torch.nan
    for rows in (x, x.T.contiguous().T, x[:, :2990]):
        agree(device, lambda x: (*x.cummax(1), *x.cummin(1)), rows, tolerance=0)
    agree(device, lambda x: (*x.cummax(0), *x.cummin(0)), x, tolerance=0)


def test_lines_that_are_not_rows_are_one_launch(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("GPUs have groups")
    x = torch.ones(50, 64 * device.limits.compute_units, device=place(device))
    x.cumsum(0)
    assert names(lambda: x.cumsum(0)) == ["scan_lines"]
    x.cummax(0)
    assert names(lambda: x.cummax(0)) == ["extremes_of_lines"]
