"""Copies of rows of neighbours: a processor makes them of vectors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.dtypes import DTYPES
from tests.ocl_backend.cpu_twin import place


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("items", [5, 23, 4099])
def test_rows_of_any_length_are_copied_and_converted(device: Any, source: Any, items: int) -> None:
    """Vectors, what they leave of a row, and rows that several work-items share."""
    whole = (torch.arange(3 * 2 * (items + 2)) % 251 - 125).to(source)
    rows = whole.view(3, 2, items + 2)[:, :, 1:-1]
    there = whole.to(place(device)).view(3, 2, items + 2)[:, :, 1:-1]
    assert torch.equal(there.contiguous().cpu(), rows.contiguous())
    for target in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        assert torch.equal(there.to(target).cpu(), rows.to(target))
    around = torch.zeros_like(whole.to(place(device)))
    around.view(3, 2, items + 2)[:, :, 1:-1] = there
    want = torch.zeros_like(whole)
    want.view(3, 2, items + 2)[:, :, 1:-1] = rows
    assert torch.equal(around.cpu(), want)
