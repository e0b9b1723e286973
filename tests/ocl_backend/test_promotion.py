"""Dtypes of tensors and numbers are promoted as torch promotes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from ocl_backend.ops.math.pointwise_kernels import promoted

DTYPES = ("bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "complex64")
TENSORS = [torch.empty(shape, dtype=getattr(torch, dtype)) for dtype in DTYPES for shape in (2, ())]


def of_torch(values: Sequence[Any]) -> Any:
    default = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    _, dtype = elementwise_dtypes(*values, type_promotion_kind=default)
    return dtype


@pytest.mark.parametrize("count", [1, 2, 3])
def test_operands_of_every_kind(count: int) -> None:
    for values in combinations_with_replacement([*TENSORS, True, 3, 2.5], count):
        if any(isinstance(value, torch.Tensor) for value in values):
            assert promoted(values) is of_torch(values), values
            assert promoted(values[::-1]) is of_torch(values), values


def test_the_default_dtype_is_that_of_numbers() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert promoted([torch.empty(2, dtype=torch.int32), 2.5]) is torch.bfloat16
    finally:
        torch.set_default_dtype(before)
