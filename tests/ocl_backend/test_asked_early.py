"""What a first step asks for before it waits: programs behind images, and those of gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from tests.ocl_backend.cpu_twin import place
from tests.ocl_backend.late import Late, unmet


def test_images_go_behind_what_waits(device: Any, late: Late) -> None:
    """A loader's next batch: the caller may change it, and goes on to ask for more programs."""
    n = unmet()
    images = torch.randn(1 << 17)  # more than what is always staged
    expected = images.clone()
    before = torch.ones(n, device=place(device)).cumsum(0)
    waits = late.waits
    there = images.to(place(device))
    images.zero_()
    assert late.waits == waits
    assert torch.equal(there.cpu(), expected)
    assert late.waits > waits
    assert before[-1].item() == n


def test_a_first_gradient_of_a_convolution_waits_for_nothing(device: Any, late: Late) -> None:
    """The CPU is not asked for it, as for no gradient: it would be given the operands' values."""
    n = unmet()
    x = torch.randn(2, 3, n, n, device=place(device), requires_grad=True)
    weight = torch.randn(4, 3, 3, 3, device=place(device), requires_grad=True)
    waits = late.waits
    torch.nn.functional.conv2d(x, weight).sum().backward()
    assert late.waits == waits
    assert x.grad is not None and weight.grad is not None
    torch.testing.assert_close(
        weight.grad.cpu(),
        torch.nn.grad.conv2d_weight(x.detach().cpu(), weight.shape, torch.ones(2, 4, n - 2, n - 2)),
        rtol=1e-3,
        atol=1e-3,
    )
