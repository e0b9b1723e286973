"""Softmax of few long rows, which a core of a processor walks by itself."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from ocl_backend.kernels.softmax_rows import LONG_ROW
from tests.ocl_backend.cpu_twin import place

BACKWARD = {
    "softmax": torch.ops.aten._softmax_backward_data,
    "log_softmax": torch.ops.aten._log_softmax_backward_data,
}
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-3}


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("items", [4097, 22_005, LONG_ROW, LONG_ROW + 1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_one_long_row(device: Any, dtype: Any, items: int, name: str) -> None:
    torch.manual_seed(items)  # of 150 draws of 65,536 items, one is off by 1.02 bounds, as torch's
    x = torch.randn(1, items).mul(4).to(dtype)
    there = x.to(place(device)).requires_grad_()
    ours, theirs = getattr(torch, name)(there, -1), getattr(torch, name)(x.double(), -1)
    bound = BOUNDS[dtype]
    torch.testing.assert_close(ours.detach().cpu().double(), theirs, rtol=bound, atol=bound)
    grad = torch.randn(1, items).to(dtype)
    (found,) = torch.autograd.grad(ours, there, grad.to(place(device)))
    # of the rounded result, as torch has it: half a bit of a logarithm is 1 % of a probability,
    # which multiplies the sum of all items of `grad`
    result = ours.detach().cpu().double()
    wanted = BACKWARD[name](grad.double(), result, -1, torch.float64)
    torch.testing.assert_close(found.cpu().double(), wanted, rtol=2 * bound, atol=2 * bound)


def test_a_processor_needs_one_launch(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("work-groups of a GPU share a long row")
    x = torch.randn(1, 20_000, device=place(device))
    with torch.ocl.profile(file=None) as seen:
        torch.softmax(x, -1)
        torch.ocl.synchronize(place(device))
    assert len(seen.commands) == 1
