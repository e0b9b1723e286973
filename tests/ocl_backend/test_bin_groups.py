"""Counts by bins, and sums of weights, in tables of a GPU's groups."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import agree, ocl, place
from tests.ocl_backend.test_selected_groups import groups  # noqa: F401  (a fixture)


@pytest.mark.parametrize("bins", [1, 100, 3000, 9000])
def test_equal_bins(groups: Any, bins: int) -> None:  # noqa: F811
    x = torch.randn(20_011, generator=torch.Generator().manual_seed(1))
    x[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    agree(groups, lambda x: x.histc(bins, -2.1, 3.3), x)
    if bins == 100:
        agree(groups, lambda x: x[3:].histc(bins), x)
        agree(groups, lambda x: x.double().histc(bins, -2.1, 3.3), x)
        agree(groups, lambda x: torch.histogram(x, bins, range=(-1.0, 2.0)), x)
        agree(groups, lambda x: torch.histogram(x, 9, range=(-1.0, 2.0), weight=x.abs() % 3), x[3:])


def test_whole_numbers_and_weights(groups: Any) -> None:  # noqa: F811
    generator = torch.Generator().manual_seed(2)
    x, weight = torch.randint(0, 70, (9001,), generator=generator), torch.rand(9001) + 1
    agree(groups, torch.bincount, x)
    agree(groups, lambda x: x.to(torch.uint8).bincount(minlength=9000), x)
    agree(groups, torch.bincount, x, weight)
    limits = groups.limits
    if limits.extensions >= {"cl_khr_fp64", "cl_khr_int64_base_atomics"}:
        agree(groups, lambda x, w: x.bincount(w.double()), x, weight)


def kernels(call: Any) -> set[str]:
    """Return the names of a call's launches."""
    with ocl.profile(file=None) as profile:
        call()
    return {command.name for command in profile.commands}


def test_counts_take_tables_and_ordered_sums_do_not(groups: Any) -> None:  # noqa: F811
    x = torch.arange(5000, device=place(groups)) % 50
    weight = torch.rand(5000, device=place(groups))
    assert "bin_groups" in kernels(lambda: torch.bincount(x))
    assert "bin_groups" in kernels(lambda: torch.bincount(x, weight))
    torch.use_deterministic_algorithms(True)
    try:
        assert "bin_groups" in kernels(lambda: torch.bincount(x))
        assert "bin_groups" not in kernels(lambda: torch.bincount(x, weight))
    finally:
        torch.use_deterministic_algorithms(False)
