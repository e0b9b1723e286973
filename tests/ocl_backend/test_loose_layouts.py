"""Loose chains of comparisons, and of images in channels_last."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.ocl_backend.test_loose import DTYPES, Results, check, drawn

pytestmark = pytest.mark.usefixtures("any_device")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [8, 7])
def test_comparisons_that_were_dropped_are_not_written(dtype: Any, rows: int) -> None:
    """As the mask of shifted windows is made."""

    def mask(regions: Any) -> Results:
        apart = regions.unsqueeze(1) - regions.unsqueeze(2)
        return (apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0),)

    check(mask, [drawn(dtype, (4, rows))[0].round()], 1, exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_that_live_on_are_written(dtype: Any) -> None:
    def call(x: Any, y: Any) -> Results:
        return x < y, (x * 2).ne_(y), torch.where(x >= y, x, y)

    check(call, drawn(dtype, (3, 12), (3, 12)), 3, exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_images_in_channels_last_are_walked_as_they_lie(dtype: Any) -> None:
    """As layers are scaled and added to what they read, in images that lie as rows of channels."""

    def scaled(x: Any, scale: Any, residual: Any) -> Results:
        image = x.permute(0, 3, 1, 2)
        return (scale * image * 2 + residual.to(memory_format=torch.channels_last),)

    given = drawn(dtype, (2, 3, 5, 8), (8, 1, 1), (2, 8, 3, 5))
    given[2] = given[2].to(memory_format=torch.channels_last)
    check(scaled, given, 1, exact=True)

    def turned(x: Any, other: Any) -> Results:
        return ((x.mT * 2 + other).mT * 3, x.mT + 1)

    check(turned, drawn(dtype, (4, 6, 10), (4, 10, 6)), 3, exact=True)
