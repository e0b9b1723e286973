"""Special functions against mpmath, in both precisions: series, recurrences and quadratures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.kernels.pointwise_table import UNARY
from ocl_backend.kernels.special_table import SPECIAL

special = torch.special
TABLE = UNARY | SPECIAL
EVERYWHERE = (-21.3, -5.5, -0.7, 1e-3, 0.4, 2.3, 7.1, 19.9, 33.0)
POSITIVE = (1e-6, 0.03, 0.7, 2.2, 6.0, 24.9, 25.1, 140.0)
UNIT = (1e-20, 1e-4, 0.2, 0.3, 0.55, 0.9)

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[float, ...]]] = {
    "digamma": (torch.digamma, mpmath.digamma, EVERYWHERE),
    "lgamma": (torch.lgamma, lambda x: mpmath.log(abs(mpmath.gamma(x))),
               (*EVERYWHERE, -1e-30, -0.01, 1e-30, 0.5, 1 + 2**-15, 1.5, 2 - 2**-15, 5.99, 1e6)),
    "trigamma": (lambda x: torch.polygamma(1, x), lambda x: mpmath.psi(1, x),
                 (*EVERYWHERE, -1000.25, 1e-19, 3.99, 4.0, 1e6)),
    "polygamma": (lambda x: torch.polygamma(2, x), lambda x: mpmath.psi(2, x), EVERYWHERE),
    "far zeta": (lambda x: special.zeta(2, 1e22 * x) * 1e22, lambda x: 1 / mpmath.mpf(x), (1, 3)),
    "zeta": (lambda x: special.zeta(x + 1, 1.5), lambda x: mpmath.zeta(x + 1, 1.5), POSITIVE[1:]),
    "erfinv": (torch.erfinv, mpmath.erfinv, UNIT),
    "ndtri": (special.ndtri, lambda p: -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * p), UNIT[1:]),
    "erfcx": (special.erfcx, lambda x: mpmath.exp(x**2) * mpmath.erfc(x), EVERYWHERE[2:]),
    "log_ndtr": (special.log_ndtr, lambda x: mpmath.log(mpmath.ncdf(x)), EVERYWHERE[:5]),
    "i0e": (special.i0e, lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), EVERYWHERE),
    "i1e": (special.i1e, lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), EVERYWHERE),
    "k0": (special.scaled_modified_bessel_k0, lambda x: mpmath.besselk(0, x) * mpmath.exp(x),
           POSITIVE),
    "k1": (special.scaled_modified_bessel_k1, lambda x: mpmath.besselk(1, x) * mpmath.exp(x),
           POSITIVE),
    "j0": (special.bessel_j0, lambda x: mpmath.besselj(0, x), EVERYWHERE),
    "j1": (special.bessel_j1, lambda x: mpmath.besselj(1, x), EVERYWHERE),
    "y0": (special.bessel_y0, lambda x: mpmath.bessely(0, x), POSITIVE),
    "y1": (special.bessel_y1, lambda x: mpmath.bessely(1, x), POSITIVE),
    "airy_ai": (special.airy_ai, mpmath.airyai, EVERYWHERE[1:7]),
    "igamma": (lambda x: torch.igamma(x, torch.full_like(x, 3.3)),
               lambda a: mpmath.gammainc(a, 0, 3.3, regularized=True), POSITIVE[1:5]),
    "igammac": (lambda x: torch.igammac(x, torch.full_like(x, 3.3)),
                lambda a: mpmath.gammainc(a, 3.3, regularized=True), POSITIVE[1:5]),
}  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_right_to_its_precision(device: Any, name: str) -> None:
    ours, exact, points = FUNCTIONS[name]
    doubles = "cl_khr_fp64" in device.limits.extensions
    for dtype in (torch.float32, *[torch.float64] * doubles):
        x = torch.tensor(points, dtype=dtype)
        want = torch.tensor([float(exact(value)) for value in x.tolist()], dtype=torch.float64)
        got = ours(x.to(torch.device("ocl", device.index))).cpu().double()
        close = 64 * torch.finfo(dtype).eps
        torch.testing.assert_close(got, want, rtol=close, atol=close)


@pytest.mark.parametrize("name", ["lgamma", "erfinv"])
def test_functions_that_are_made_of_statements_have_vectors(name: str) -> None:
    """A function that is called is computed for each lane of a processor's vector."""
    text = TABLE[name].text(torch.float32)
    assert name not in text
    assert "if" not in text
    assert TABLE[name].text(torch.float64) == f"{name}(self)"


def test_the_logarithm_of_the_gamma_function_at_its_poles_and_zeros(device: Any) -> None:
    inf = float("inf")
    x = torch.tensor([0.0, -0.0, -1.0, -2.0, -1e9, inf, -inf, 1e38, 1.0, 2.0, float("nan")])
    x = torch.cat([x, torch.tensor([1 + 2**-23, 1 - 2**-24, 2 + 2**-22, 2 - 2**-23])])
    ours = torch.lgamma(x.to(torch.device("ocl", device.index))).cpu()
    theirs = torch.lgamma(x.double()).float()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_of_digamma_end_at_zero(device: Any, order: int) -> None:
    x = torch.tensor([torch.inf, torch.nan], device=torch.device("ocl", device.index))
    last, nothing = torch.polygamma(order, x).tolist()
    assert last == 0
    assert nothing != nothing


@pytest.mark.parametrize("name", ["gcd", "lcm"])
def test_divisors_of_any_sign(device: Any, name: str) -> None:
    a = torch.tensor([0, 0, 12, -12, 7, -(2**62)])
    b = torch.tensor([0, -5, 18, 18, -1, 2**40])
    place = torch.device("ocl", device.index)
    function = getattr(torch, name)
    assert torch.equal(function(a.to(place), b.to(place)).cpu(), function(a, b))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64])
def test_divisors_of_the_least_and_the_largest_integer(device: Any, dtype: Any) -> None:
    ends = torch.iinfo(dtype)
    numbers = [ends.min, ends.max, ends.min + 1, 0, 1, 6]
    pairs = [(a, b) for a in numbers for b in numbers if (a, b) != (ends.min + 1, ends.min)]
    a, b = torch.tensor(pairs, dtype=dtype).unbind(1)
    place = torch.device("ocl", device.index)
    assert torch.equal(torch.gcd(a.to(place), b.to(place)).cpu(), torch.gcd(a, b))


@pytest.mark.parametrize("name", [name for name in dir(special) if "polynomial" in name])
def test_polynomials_follow_their_recurrences(device: Any, name: str) -> None:
    x = torch.linspace(-1.5, 1.5, 7).unsqueeze(1)
    n = torch.tensor([-1.0, -0.5, 0.0, 1.0, 2.7, 6.0])
    place = torch.device("ocl", device.index)
    function = getattr(special, name)
    torch.testing.assert_close(function(x.to(place), n.to(place)).cpu(), function(x, n))
