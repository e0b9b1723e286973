"""Scans of dense rows on processors, by vectors."""

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
