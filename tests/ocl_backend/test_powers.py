"""Powers by numbers that are a few products, or a root."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import place


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_powers_that_are_products_are_those_of_the_cpu(device: Any, dtype: Any) -> None:
    special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e30, -1e-30]
    x = torch.cat([torch.randn(1000) * 3, torch.tensor(special)]).to(dtype)
    ours = x.to(place(device))
    for exponent in (2, 0.5, 3, -1, -0.5, -2, 1, 0, 1.5, 2.0):
        within = 1e-3 if dtype is torch.float16 else 3e-7 if dtype is torch.float32 else 4e-16
        found = ours**exponent
        torch.testing.assert_close(found.cpu(), x**exponent, rtol=within, atol=0, equal_nan=True)
        assert torch.equal(found.isnan(), ours.clone().pow_(exponent).isnan())
    whole = torch.arange(-3, 4)
    assert (whole.to(place(device)) ** 2).tolist() == (whole**2).tolist()
    assert (whole.to(place(device)) ** 2.0).dtype is torch.float32
