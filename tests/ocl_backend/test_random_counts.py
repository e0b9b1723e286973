"""Poisson's and binomial numbers: their distribution, their seeds, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, lgamma, log, log1p, nan, sqrt
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import agree, place

COUNT = 1 << 16
RATES = (0.05, 1.0, 9.99, 10.0, 40.0, 2_000.0)
TRIALS = ((1, 0.3), (7, 0.5), (400, 0.02), (40, 0.4), (40, 0.75), (3_000, 0.9), (100_000, 0.002))


def generator(device: Any, seed: int) -> Any:
    return torch.Generator(place(device)).manual_seed(seed)


def poisson_of(rate: float) -> Callable[[int], float]:
    return lambda k: exp(k * log(rate) - rate - lgamma(k + 1))


def binomial_of(n: int, p: float) -> Callable[[int], float]:
    def chance(k: int) -> float:
        ways = lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
        return exp(ways + k * log(p) + (n - k) * log1p(-p)) if k <= n else 0.0

    return chance


def assert_distributed(
    drawn: Any, mean: float, variance: float, chance: Callable[[int], float]
) -> None:
    """Fail where moments or counts of values are five deviations away from the exact ones."""
    drawn, count = drawn.cpu().double(), drawn.numel()
    assert torch.equal(drawn, drawn.floor()) and drawn.min() >= 0
    assert abs(float(drawn.mean()) - mean) < 5 * sqrt(variance / count)
    fourth = variance * (3 * variance + 1)
    assert abs(float(drawn.var()) - variance) < 5 * sqrt(fourth / count)
    low = max(0, int(mean - 5 * sqrt(variance)) - 1)
    width = max(1, int(sqrt(variance) / 8))
    found = torch.bincount(((drawn - low).clamp(min=0) / width).long())
    squares, bins = 0.0, 0
    for place_of, observed in enumerate(found.tolist()):
        start = 0 if place_of == 0 else low + place_of * width
        expected = count * sum(map(chance, range(start, low + (place_of + 1) * width)))
        if expected > 8:
            squares, bins = squares + (observed - expected) ** 2 / expected, bins + 1
    assert bins >= 2
    assert squares - bins < 5 * sqrt(2 * bins)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rate", RATES)
def test_poisson(device: Any, dtype: Any, rate: float) -> None:
    rates = torch.full((COUNT,), rate, dtype=dtype, device=place(device))
    torch.ocl.reset_fallbacks()
    drawn = torch.poisson(rates, generator(device, 11))
    assert torch.ocl.fallbacks() == {}
    assert drawn.dtype is dtype
    assert_distributed(drawn, rate, rate, poisson_of(rate))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("trials", "chance"), TRIALS)
def test_binomial(device: Any, dtype: Any, trials: int, chance: float) -> None:
    count = torch.full((COUNT,), float(trials), dtype=dtype, device=place(device))
    torch.ocl.reset_fallbacks()
    drawn = torch.binomial(count, torch.full_like(count, chance), generator(device, 12))
    assert torch.ocl.fallbacks() == {}
    assert drawn.dtype is dtype and drawn.max() <= trials
    exact = binomial_of(trials, chance)
    assert_distributed(drawn, trials * chance, trials * chance * (1 - chance), exact)


def test_large_rates_keep_their_deviation(device: Any) -> None:
    for rate in (1e6, 1e7):
        drawn = torch.poisson(torch.full((COUNT,), rate, device=place(device))).cpu().double()
        assert abs(float(drawn.mean()) - rate) < 5 * sqrt(rate / COUNT)
        assert abs(float(drawn.var()) / rate - 1) < 5 * sqrt(2 / COUNT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_poisson_of_narrow_rates_and_their_order(device: Any, dtype: Any) -> None:
    rates = torch.arange(0, 96).to(dtype).repeat(500, 1).to(place(device))
    for given in (rates, rates.T.contiguous().T):
        drawn = torch.poisson(given, generator(device, 3))
        assert drawn.dtype is dtype and drawn.is_contiguous()
        means = drawn.cpu().double().mean(0)
        exact = torch.arange(0.0, 96, dtype=torch.float64)
        assert ((means - exact).abs() <= 6 * (exact / 500).sqrt()).all()
        assert torch.equal(drawn, torch.poisson(rates, generator(device, 3)))


def test_a_seed_gives_the_same_numbers_and_draws_move_on(device: Any) -> None:
    rates = torch.rand(1_000, device=place(device)) * 30
    state = generator(device, 4)
    first, second = torch.poisson(rates, state), torch.poisson(rates, state)
    assert torch.equal(first, torch.poisson(rates, generator(device, 4)))
    assert not torch.equal(first, second)
    assert not torch.equal(torch.poisson(rates), torch.poisson(rates))


def test_rates_and_chances_at_the_ends(device: Any) -> None:
    agree(device, torch.poisson, torch.zeros(3, 5))
    agree(device, torch.poisson, torch.zeros(0))
    counts = torch.tensor([3.0, 0.0, -2.0, 5.0, 9.0, 2.5])
    chances = torch.tensor([1.5, 0.5, 0.5, 0.0, 1.0, 1.0])
    agree(device, torch.binomial, counts, chances)
    here = place(device)
    wrong = torch.binomial(torch.tensor([nan, 3.0], device=here), torch.tensor([0.5, nan]).to(here))
    assert wrong.isnan().all()
    assert torch.poisson(torch.tensor([inf], device=here)).isinf().all()
    assert torch.binomial(counts[:, None].to(here), chances[:2].to(here)).shape == (6, 2)


@pytest.mark.parametrize("rate", [-1.0, nan])
def test_a_rate_that_is_none_is_noted(device: Any, rate: float) -> None:
    torch.poisson(torch.tensor([2.0, rate], device=place(device)))
    with pytest.raises(torch.AcceleratorError, match="invalid Poisson rate"):
        torch.ocl.synchronize(place(device))


def test_wrong_dtypes_are_refused_as_by_the_cpu(device: Any) -> None:
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        torch.poisson(torch.ones(3, dtype=torch.int64, device=place(device)))
    one = torch.ones(3, device=place(device))
    with pytest.raises(RuntimeError, match="Found dtype Float but expected Double"):
        torch.binomial(one.double(), one)
