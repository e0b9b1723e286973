"""Products of few rows that read whole rows of B: the last columns, and where the family leads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.families.gemm import gemm_register, gemm_stream
from oclgen.limits import Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import GemmProblem

CPU = Limits("cpu", 1 << 18, 8192, (8192,) * 3, 1 << 33, 1 << 34, 2, 8)
CONFIG = gemm_stream.Config(item_m=3, tile_n=32, vec_n=8, unroll_k=4, split_k=1)


@pytest.mark.parametrize("n", [8, 9, 15, 31, 33, 39, 63, 64, 65])
@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem(3, 1, 21, bias="n", activation="silu", residual=True),
        GemmProblem(4, 1, 8, trans_a=True, bias="m", residual=True, batch=2),
        GemmProblem(2, 1, 5, "bf16", bias="n"),
        GemmProblem(7, 1, 13, "fp16", batch=2, shared_b=True),
    ],
    ids=GemmProblem.key,
)
def test_the_last_vector_of_a_row_ends_at_n(device: Device, problem: GemmProblem, n: int) -> None:
    problem = replace(problem, n=n)
    for split_k in (1, 2):
        plan = gemm_stream.plan(problem, replace(CONFIG, split_k=split_k))
        measurement = Bench(device, problem).measure(plan, 0.0)
        assert measurement.ok, measurement.reason


@pytest.mark.parametrize("m", [1, 3, 8, 16])
@pytest.mark.parametrize("units", [1, 2, 64])
@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (257, 20_000), (16_001, 300)])
def test_guesses_are_valid(m: int, units: int, n: int, k: int) -> None:
    limits, problem = replace(CPU, compute_units=units), GemmProblem(m, n, k)
    assert gemm_stream.is_streamed(problem, limits)
    (config,) = gemm_stream.guesses(problem, limits)
    assert config.why_not(problem, limits) is None
    assert not gemm_register.guesses(problem, limits)


def test_it_leads_where_rows_are_few_and_b_is_far_from_a_processor() -> None:
    far = GemmProblem(8, 512, 4096)
    assert gemm_stream.is_streamed(far, CPU)
    assert gemm_stream.is_streamed(GemmProblem(1, 32, 2**16), CPU)
    for problem in (
        replace(far, k=4000),
        replace(far, m=17),
        replace(far, batch=2),
        replace(far, trans_b=True),
        GemmProblem(3, 32, 2**16),
    ):
        assert not gemm_stream.is_streamed(problem, CPU), problem.key()
    assert not gemm_stream.is_streamed(far, replace(CPU, kind="gpu"))


def test_sums_that_leave_the_caches_are_refused() -> None:
    reason = replace(CONFIG, item_m=16, tile_n=2048).why_not(GemmProblem(16, 4096, 64), CPU)
    assert reason is not None
    assert "131072" in reason
    assert "65536" in reason
    reason = replace(CONFIG, vec_n=16).why_not(GemmProblem(3, 9, 64), CPU)
    assert reason is not None
    assert "n=9" in reason
