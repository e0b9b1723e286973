"""What is planted in the results of a network is found."""

from __future__ import annotations

from math import inf, isnan, nan
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.networks.compare import LeftOutError, Passes, compare, judge
from tests.networks.made import Made


def passes(**changed: Any) -> Passes:
    given = {name: torch.arange(1.0, 9.0, dtype=torch.float64) for name in Passes._fields}
    return Passes(**(given | changed))


def off_by(part: float) -> Any:
    return torch.arange(1.0, 9.0, dtype=torch.float64) * (1 + part)


@pytest.mark.parametrize("name", Passes._fields)
def test_a_result_that_is_off_is_wrong(name: str) -> None:
    exact = passes()
    assert judge(passes(**{name: off_by(1e-6)}), exact, exact).right
    wrong = judge(passes(**{name: off_by(0.01)}), exact, exact)
    assert not wrong.right
    assert wrong.errors[name] == pytest.approx(0.01)
    missing = judge(passes(**{name: torch.ones(3, dtype=torch.float64)}), exact, exact)
    assert (missing.right, missing.errors[name]) == (False, inf)
    undefined = judge(passes(**{name: off_by(nan)}), exact, exact)
    assert not undefined.right
    assert isnan(undefined.errors[name])


def test_what_the_cpu_itself_misses_is_allowed_ten_times() -> None:
    plain = passes(output=off_by(1e-3))
    assert judge(passes(output=off_by(9e-3)), plain, passes()).right
    assert not judge(passes(output=off_by(2e-2)), plain, passes()).right


def test_a_network_that_the_cpu_cannot_run_is_left_out() -> None:
    with pytest.raises(LeftOutError, match="shapes cannot be multiplied"):
        compare(lambda: Made(torch.nn.Linear(3, 2), (torch.ones(2, 4),)), torch.device("cpu"), 0)
    verdict = compare(
        lambda: Made(torch.nn.Linear(4, 2), (torch.randn(2, 4),)), torch.device("cpu"), 0
    )
    assert verdict.right
