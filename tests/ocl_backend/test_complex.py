"""Complex numbers: made from parts, conjugated, computed with by real kernels or on the CPU."""

from __future__ import annotations

from itertools import product
from math import inf, nan
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import agree, assert_same, place, refuse_alike


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


def test_exponentials_of_infinite_parts(device: Any) -> None:
    ends = (0.0, 1.0, -inf, inf, nan)
    x = torch.tensor([complex(real, imaginary) for real, imaginary in product(ends, ends)])
    with np.errstate(invalid="ignore"):  # torch's own differs by the processor's vectors
        expected = torch.tensor(np.exp(x.numpy()))
    assert_same(x.to(place(device)).exp(), expected)


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


@pytest.mark.parametrize("divided", [1 + 1j, 0j, 2 - 0j, complex(0, -inf), complex(nan, 1)])
def test_division_by_numbers_without_a_finite_square(device: Any, divided: complex) -> None:
    """0 and infinities, too. The CPU divides one number at a time: its vectors make NaNs here."""
    ends = (0.0, 1.0, -2.0, inf, -inf, 3e38, 1e-30)
    x = torch.full((1,), divided)
    by = torch.tensor([complex(real, imaginary) for real, imaginary in product(ends, ends)])
    expected = torch.cat([x / one for one in by.split(1)])
    assert_same(x.to(place(device)) / by.to(place(device)), expected)


BY_PARTS = {
    "joined": lambda x, i: torch.cat([x, x.real, torch.stack([x[0], x[1]])]),
    "chosen": lambda x, i: x.index_select(0, i) + x[i] + x.gather(0, i[:, None].expand(2, 3)),
    "by a mask": lambda x, i: x[x.real > 0].sum() + x.masked_fill(x.imag > 0, 2).sum(),
    "either": lambda x, i: torch.where(x.real > 0, x, x.real),
    "turned": lambda x, i: x.flip(0) + x.roll(1, 1) + x.tril() + x.triu(),
    "put": lambda x, i: x.clone().index_put_((i,), 2 * x[:2]) + x.masked_fill(x.real > 0, 1j),
    "filled": lambda x, i: x.masked_fill(x.real > 0, i[0]) + x.masked_fill(x.imag > 0, True),
    "scattered": lambda x, i: (
        x.scatter(0, i[:, None].expand(2, 3), x[:2])
        + x.scatter_add(0, i[:, None].expand(2, 3), x[:2])
        + x.index_add(0, i, x[:2]).index_copy_(0, i, x[1:])
    ),
    "scaled": lambda x, i: (
        x.index_add(0, i, x[:2], alpha=2j) + x.clone().index_add_(0, i, x[:2], alpha=1 - 1j)
    ),
    "summed": lambda x, i: x.cumsum(1) + torch.linalg.vector_norm(x, dim=1, keepdim=True),
    "layers": lambda x, i: torch.nn.functional.linear(x, x, x[:, 0]) + (x @ x[0]),
    "batches": lambda x, i: torch.baddbmm(x[None], x[None], x[None], beta=0.5, alpha=2j),
    "powers": lambda x, i: x**2 + x.square() + x**0.5 + x**-1 + (0 * x) ** 2.5 + x.log(),
    "pointwise": lambda x, i: torch.addcmul(x, x, x, value=2).lerp(x, 0.3) + x.isnan(),
    "vdot": lambda x, i: torch.vdot(x[0], x[1]) + torch.dot(x[0], x[1]),
    "range": lambda x, i: torch.linspace(1, 3j, 5, device=x.device),
}


@pytest.mark.parametrize("name", BY_PARTS)
def test_parts_go_through_real_kernels(device: Any, name: str) -> None:
    x, ours = pair(device, 3, 3)
    chosen = torch.tensor([2, 0])
    torch.ocl.reset_fallbacks()
    found = BY_PARTS[name](ours, chosen.to(ours.device))
    torch.testing.assert_close(found.cpu(), BY_PARTS[name](x, chosen), rtol=1e-4, atol=1e-4)
    assert torch.ocl.fallbacks() == {}


@pytest.mark.parametrize("exponent", [-1, -0.5, 1j, -1 + 1j, 0.5])
def test_powers_of_zero_are_those_of_the_cpu(device: Any, exponent: complex) -> None:
    x = torch.tensor([0j, 1 + 2j])
    found = x.to(torch.device("ocl", device.index)) ** exponent
    torch.testing.assert_close(found.cpu(), x**exponent, equal_nan=True)


def test_a_first_power_is_a_tensor_of_its_own(device: Any) -> None:
    x, ours = pair(device, 4)
    power = ours**1
    power += 1
    assert torch.equal(ours.cpu(), x)
    assert torch.equal(power.cpu(), x + 1)


def test_gradients_of_rotated_pairs(device: Any) -> None:
    """As transformers rotate positions: pairs as complex numbers, by joined angles."""

    def run(x: Any) -> list[Any]:
        x = x.clone().requires_grad_()
        angles = torch.polar(torch.ones_like(x[..., 0]), x.detach()[..., 0])
        angles = torch.cat([angles[:2], angles[2:]])
        turned = torch.view_as_real(torch.view_as_complex(x) * angles)
        turned.square().cumsum(0).sum().backward()
        return [turned, x.grad]

    x = torch.randn(3, 4, 2)
    torch.ocl.reset_fallbacks()
    for ours, theirs in zip(run(x.to(torch.device("ocl", device.index))), run(x), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4)
    assert torch.ocl.fallbacks() == {}


def test_random_numbers_have_half_of_the_variance_in_each_part(device: Any) -> None:
    x = torch.randn(20_000, dtype=torch.complex64, device=torch.device("ocl", device.index))
    assert [x.real.var().item(), x.imag.var().item()] == pytest.approx([0.5, 0.5], abs=0.03)


def test_random_numbers_are_those_of_their_parts(device: Any) -> None:
    where = torch.device("ocl", device.index)
    torch.manual_seed(3)
    parts = torch.randn(8, device=where)
    torch.manual_seed(3)
    numbers = torch.randn(4, dtype=torch.complex64, device=where)
    torch.testing.assert_close(torch.view_as_real(numbers).flatten(), parts * 0.5**0.5)


@pytest.mark.sampled(4)  # each builds 45 programs, and all promote by one function
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_a_real_operand_of_another_width_promotes_as_on_the_cpu(device: Any, name: str) -> None:
    operator = getattr(torch, name)
    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64)
    for real, wide in product(kinds, (torch.complex64, torch.complex128)):
        for shapes in (((2,), (2,)), ((2,), ()), ((), (2,))):
            x, y = (torch.full(s, 2).to(t) for s, t in zip(shapes, (real, wide), strict=True))
            if torch.result_type(x, y) is torch.complex32:
                continue  # for which the CPU divides nothing
            for a, b in ((x, y), (y, x)):
                ours = operator(a.to(place(device)), b.to(place(device)))
                assert_same(ours, operator(a, b))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.float32], ids=str)
def test_a_real_operand_has_no_imaginary_part(device: Any, dtype: Any) -> None:
    x, y = torch.arange(4) * (1 + 2j), torch.tensor([1, 0, 3, 5]).to(dtype)
    mask = torch.tensor([True, False, True, False])

    def both(x: Any, y: Any, mask: Any) -> list[Any]:
        chosen = [torch.where(mask, x, y), torch.where(mask, y, x)]
        return [*chosen, x * y] if dtype is torch.bool else [*chosen, x * y, x - y, y - x]

    agree(device, both, x, y, mask)


def test_a_real_tensor_is_compared_with_a_complex_number(device: Any) -> None:
    x = torch.tensor([1.0, 2.0, 0.0])
    for number in (torch.tensor(2 + 0j), torch.tensor(1 + 1j)):
        agree(device, lambda x, n=number: (x.eq(n), x.ne(n)), x)


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
def test_a_real_tensor_takes_no_complex_numbers(device: Any, name: str) -> None:
    x = torch.arange(4) * (1 + 2j)
    refuse_alike(device, lambda x: getattr(x.abs(), name)(x), x)


@pytest.mark.parametrize("numbers", [{"alpha": 6 + 7j, "beta": 3 + 4j}, {"beta": 0.5}])
def test_a_product_of_no_terms_is_the_scaled_bias(device: Any, numbers: dict[str, Any]) -> None:
    def compute(where: Any) -> list[Any]:
        bias = torch.full((2, 3), 11 + 1j, device=where)
        a, b = bias.new_empty(2, 0), bias.new_empty(0, 3)
        return [
            torch.addmm(bias, a, b, **numbers),
            torch.addmv(bias[:, 0], a, b[:, 0], **numbers),
            torch.baddbmm(bias[None], a[None], b[None], **numbers),
        ]

    for ours, theirs in zip(compute(place(device)), compute("cpu"), strict=True):
        assert torch.equal(ours.cpu(), theirs)


@pytest.mark.filterwarnings("ignore:.*runs on the CPU")
def test_an_operator_on_the_cpu_writes_to_a_lazily_conjugated_output(device: Any) -> None:
    for where in (place(device), "cpu"):
        a = torch.eye(3, dtype=torch.complex64, device=where) * 2
        for out in (torch.full((3, 2), 1 + 2j, device=where).conj(), torch.ones_like(a).conj()):
            right = out.clone() if out.shape == (3, 2) else torch.full_like(out, 3 + 1j)
            torch.linalg.solve_triangular(a, right, upper=False, out=out)
            assert torch.equal(out.resolve_conj().cpu(), (right / 2).resolve_conj().cpu())
