"""Complex numbers: made from parts, conjugated, and computed with on the CPU, which is counted."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)


def pair(device: Any, *shape: int) -> tuple[Any, Any]:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.complex64)
    return x, x.to(torch.device("ocl", device.index))


def test_parts_make_a_number(device: Any) -> None:
    x, ours = pair(device, 3, 5)
    assert torch.equal(torch.complex(ours.real, ours.imag).cpu(), x)
    polar = torch.polar(ours.real, ours.imag).cpu()
    torch.testing.assert_close(polar, torch.polar(x.real, x.imag))


def test_conjugation_is_resolved_as_on_the_cpu(device: Any) -> None:
    x, ours = pair(device, 4)
    assert torch.equal(torch.conj_physical(ours).cpu(), torch.conj_physical(x))
    assert torch.equal(ours.conj().resolve_conj().cpu(), x.conj().resolve_conj())
    assert torch.equal(ours.clone().conj_physical_().cpu(), x.conj())


def test_an_operator_without_complex_kernel_counts_as_such(device: Any) -> None:
    x, ours = pair(device, 4)
    torch.ocl.reset_fallbacks()
    torch.testing.assert_close(ours.sin().cpu(), x.sin())
    ours.sin_()
    torch.testing.assert_close(ours.cpu(), x.sin())
    assert torch.ocl.fallbacks() == {"aten::sin complex": 1, "aten::sin_ complex": 1}


ARITHMETIC = {
    "sums": lambda a, b: (a + 2j * b) - (3 - a) + (-b) * 2 + a / 2,
    "products": lambda a, b: a * b + a / b + 1 / a + a.real * b,
    "parts": lambda a, b: a.sgn() + a.exp() + torch.complex(a.abs(), b.angle()),
    "sums over dims": lambda a, b: a.sum(0) + b.mean(0) + a.mean() + b.sum(),
    "matrix products": lambda a, b: a @ b.t().conj() + (a.conj() @ b.t()) * (a == a).float(),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_stays_on_the_device(device: Any, name: str) -> None:
    x, ours = pair(device, 3, 3)
    y, yours = x.flip(0) + 1, (x.flip(0) + 1).to(ours.device)
    torch.ocl.reset_fallbacks()
    formula = ARITHMETIC[name]
    torch.testing.assert_close(formula(ours, yours).cpu(), formula(x, y), rtol=1e-4, atol=1e-4)
    assert torch.ocl.fallbacks() == {}


def test_division_survives_numbers_whose_square_overflows(device: Any) -> None:
    x = torch.tensor([3e30 + 4e30j, 1e-30 - 1e-30j])
    ours = x.to(torch.device("ocl", device.index))
    torch.testing.assert_close((1 / ours).cpu(), 1 / x)
    ours /= ours
    torch.testing.assert_close(ours.cpu(), torch.ones(2, dtype=x.dtype))
