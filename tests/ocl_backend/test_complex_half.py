"""Complex numbers of two halves, for which the CPU lacks most kernels; CUDA has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from tests.ocl_backend.cpu_twin import place

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")

ROUNDING = 2**-9
"""Of two halves, beside what the argument's own rounding does."""

CALLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a power": lambda x, _: x**2,
    "powers": torch.pow,
    "a quotient": torch.div,
    "a product": torch.mul,
    "a difference of products": lambda x, y: torch.addcmul(-x * y, x, y * 1.01),
    "a product of matrices": lambda x, y: x @ y.T,
    "exponentials": lambda x, _: torch.exp(x),
    "a sum of rows": lambda x, _: x.sum(1),
    "angles": lambda x, _: torch.angle(x),
    "a norm": lambda x, _: torch.linalg.vector_norm(x),
    "in place": lambda x, y: x.clone().div_(y),
    "into an output": lambda x, y: torch.div(x, y, out=torch.empty_like(x)),
    "with complex64": lambda x, y: x / y.to(torch.complex64),
}
"""Of operands whose results are below 8 in modulus."""


@pytest.mark.parametrize("name", CALLS)
def test_it_computes_in_complex64_and_rounds_once(device: Any, name: str) -> None:
    torch.manual_seed(0)
    x, y = (torch.polar(torch.rand(3, 4) + 0.5, torch.randn(3, 4)) for _ in range(2))
    x, y = (z.to(torch.complex32) for z in (x, y))
    expected = CALLS[name](x.to(torch.complex64), y.to(torch.complex64))
    narrow = torch.complex32 if expected.is_complex() else torch.float16
    for _ in range(2):  # the second call finds its form among the known ones
        found = CALLS[name](x.to(place(device)), y.to(place(device)))
        assert found.dtype is (torch.complex64 if "complex64" in name else narrow)
        assert found.shape == expected.shape
        wide = found.cpu().to(expected.dtype)
        assert ((wide - expected).abs() <= ROUNDING * expected.abs().clamp(min=1)).all()


def test_gradients_are_complex_halves_too(device: Any) -> None:
    x = torch.tensor([1 + 2j, -0.5j, 3]).to(place(device), torch.complex32).requires_grad_()
    (x**2).sum().abs().backward()
    assert x.grad is not None
    assert x.grad.dtype is torch.complex32


def test_what_the_cpu_refuses_of_complex64_is_refused(device: Any) -> None:
    x = torch.ones(3, dtype=torch.complex32, device=place(device))
    with pytest.raises(RuntimeError):
        torch.floor(x)
    with pytest.raises(RuntimeError):
        torch.maximum(x, x)
