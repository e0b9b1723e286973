"""float16 and bfloat16: where an operator rounds on its way, its bits are the CPU's."""

from __future__ import annotations

import struct
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from ocl_backend.dtypes import rounded
from tests.ocl_backend.cpu_twin import agree, place

BOTH = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def drawn(dtype: Any, size: float) -> Tensor:
    draw = torch.Generator().manual_seed(7)
    return (torch.randn(4096, generator=draw) * size).to(dtype)


@BOTH
@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_a_quotient_is_rounded_before_it_is_cut(device: Any, dtype: Any, mode: str) -> None:
    x, y = drawn(dtype, 100), drawn(dtype, 5).flip(0)
    y[:2] = torch.tensor([0, -0.0])
    agree(device, lambda x, y: torch.div(x, y, rounding_mode=mode), x, y, tolerance=0)
    agree(device, lambda x: torch.div(x, 2.3, rounding_mode=mode), x, tolerance=0)
    agree(device, lambda x, y: x.clone().div_(y, rounding_mode=mode), x, y, tolerance=0)


@BOTH
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder"])
def test_a_number_beside_a_tensor_has_its_dtype(device: Any, dtype: Any, name: str) -> None:
    x = drawn(dtype, 5)
    x[:3] = torch.tensor([0.1, 1 / 3, 2.3]).to(dtype)
    function = getattr(torch, name)
    for number in (0.1, 1 / 3, 2.3, 2, True):
        agree(device, lambda x, n=number: function(x, n), x, tolerance=0)
    agree(device, lambda x: function(x, torch.tensor(2.3, dtype=torch.float64)), x, tolerance=0)


def test_a_number_that_is_compared_equals_a_tensor_of_it(device: Any) -> None:
    assert (torch.tensor([0.1], dtype=torch.float16).to(place(device)) == 0.1).item()
    assert (torch.tensor([0.1], dtype=torch.bfloat16).to(place(device)) == 0.1).item()
    assert (torch.tensor([torch.inf], dtype=torch.float16).to(place(device)) == 1e6).item()


@BOTH
def test_the_next_number_is_one_of_the_dtype(device: Any, dtype: Any) -> None:
    limits = torch.finfo(dtype)
    few = [0.0, -0.0, 1.0, -1.0, 2.0, limits.max, limits.tiny, torch.inf, -torch.inf, torch.nan]
    x = torch.tensor(few, dtype=dtype)
    ends = torch.tensor([torch.inf, -torch.inf, 0.0, -0.0, 1.0, torch.nan], dtype=dtype)
    agree(device, lambda x, y: torch.nextafter(x[:, None], y), x, ends, tolerance=0)
    x = drawn(dtype, 1)
    agree(device, torch.nextafter, x, x.flip(0), tolerance=0)
    least = torch.nextafter(torch.zeros(2, dtype=dtype), torch.ones(2, dtype=dtype))
    agree(device, lambda x, y: torch.nextafter(x, -y), least, least, tolerance=0)


@pytest.mark.parametrize("number", [0.0, -0.0, 0.1, -1 / 3, 65519.9, 65520, -1e39, 1e-8, 3.3e38])
def test_numbers_are_rounded_as_tensors_are(number: float) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        held = torch.tensor(number, dtype=torch.float64).to(dtype).item()
        assert struct.pack("d", rounded(dtype, number)) == struct.pack("d", held), (dtype, number)
    assert all(rounded(dtype, torch.nan) != 0 for dtype in (torch.float16, torch.bfloat16))
