"""Results that are dropped before any call reads them: what is held back keeps none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import place

CALLS: dict[str, Callable[[Any], Any]] = {
    "copy": torch.clone,
    "sum": lambda x: x + x,
    "conversion": lambda x: x.to(torch.bfloat16),
    "concatenation": lambda x: torch.cat((x, x)),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_next_result_takes_their_memory(device: Any, name: str) -> None:
    x = torch.randn(1 << 16, device=place(device))
    with torch.no_grad():
        places = {CALLS[name](x).data_ptr() for _ in range(24)}
    assert len(places) < 8


def test_a_result_that_was_read_is_still_part_of_its_reader(device: Any) -> None:
    x = torch.randn(32, 64, device=place(device))
    with torch.no_grad():
        for _ in range(4):
            lost = (x * 3).data_ptr()
            kept = (x + 1) * 2 - x
    assert lost
    torch.testing.assert_close(kept.cpu(), (x.cpu() + 1) * 2 - x.cpu())
