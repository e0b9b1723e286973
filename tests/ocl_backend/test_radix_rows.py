"""Rows of processors that are sorted by their digits, against torch's CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from ocl_backend.ops.sort import radix_rows
from tests.ocl_backend.cpu_twin import place

LEAST = radix_rows.LEAST
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SIZES = (LEAST, LEAST + 1, 3 * radix_rows.STRETCH + 5)
"""The last is merged from stretches where the device has several cores."""


def _drawn(dtype: Any, shape: tuple[int, ...]) -> Tensor:
    if dtype in INTEGERS:
        info = torch.iinfo(dtype)
        x = torch.randint(info.min, info.max, shape, dtype=dtype)
        x[..., 3], x[..., 5] = info.min, info.max
        return x
    x = torch.randn(shape).to(dtype)
    for at, value in enumerate(("nan", "-inf", "inf", "0.0", "-0.0", "-0.0", "0.0", "-nan")):
        x[..., 7 * at :: 29] = float(value)
    return x


def _served(device: Any, dtype: Any) -> Any:
    if device.limits.kind != "cpu":
        pytest.skip("GPUs sort blocks in local memory")
    if dtype is torch.float64 and "cl_khr_fp64" not in device.limits.extensions:
        pytest.skip("this device has no fp64")
    return place(device)


def _is_alike(ours: Tensor, theirs: Tensor) -> bool:
    return torch.equal(torch.nan_to_num(ours.cpu(), 7), torch.nan_to_num(theirs, 7))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_rows_are_sorted_in_order_of_equal_items(
    device: Any, dtype: Any, size: int, descending: bool
) -> None:
    """Zeros of either sign are equal, and so is all that is no number, which counts as largest."""
    x = _drawn(dtype, (2, size))
    values, order = x.to(_served(device, dtype)).sort(stable=True, descending=descending)
    expected, places = x.sort(stable=True, descending=descending)
    assert torch.equal(order.cpu(), places)
    assert _is_alike(values, expected)
    numbers = ~expected.isnan()
    assert torch.equal(torch.signbit(values.cpu())[numbers], torch.signbit(expected)[numbers])


def test_digits_that_all_items_share_are_passed_over(device: Any) -> None:
    """Few values of many bytes, one value alone, and bools."""
    for x in (torch.arange(500) % 3 + 2**40, torch.full((500,), -7), torch.arange(500) % 2 == 0):
        values, order = x.to(_served(device, x.dtype)).sort(stable=True)
        expected, places = x.sort(stable=True)
        assert torch.equal(values.cpu(), expected)
        assert torch.equal(order.cpu(), places)


@pytest.mark.parametrize("dim", [0, 1])
def test_lines_that_lie_apart(device: Any, dim: int) -> None:
    """Numbers are drawn twice at times, so that only stable orders are comparable."""
    x = torch.randn(300, 200).t()[3:, 1:]
    values, order = x.to(_served(device, x.dtype))[:, :].sort(dim=dim, stable=True)
    expected, places = x.sort(dim=dim, stable=True)
    assert torch.equal(values.cpu(), expected)
    assert torch.equal(order.cpu(), places)


def test_stretches_keep_all_cores_busy(device: Any) -> None:
    """A row of a device's own is cut, but not below what is worth a merge."""
    index = _served(device, torch.float32).index
    cores, least = device.limits.compute_units, radix_rows.STRETCH
    assert radix_rows.stretch(index, 1, cores * least * 2) == 2 * least
    assert radix_rows.stretch(index, cores, 9 * least) == 9 * least
    assert radix_rows.stretch(index, 1, least - 1) == least - 1
