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
    torch.testing.assert_close(ours.exp().cpu(), x.exp())
    ours.exp_()
    torch.testing.assert_close(ours.cpu(), x.exp())
    assert torch.ocl.fallbacks() == {"aten::exp complex": 1, "aten::exp_ complex": 1}
