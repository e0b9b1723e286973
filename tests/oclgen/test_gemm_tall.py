"""Products of many rows by a small B: copies by 16 bytes, edges, and where the family serves."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_tall
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import GemmProblem

GPU = Limits("gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1)
WHOLE = gemm_tall.Config(item_m=2, item_n=20, local_m=16, local_n=1)
SHARED = gemm_tall.Config(item_m=1, item_n=12, local_m=16, local_n=2)


@pytest.mark.parametrize("config", [WHOLE, SHARED], ids=["whole", "shared"])
@pytest.mark.parametrize("k", [1, 6, 7, 8, 12, 24])
@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem(101, 16, 1),
        GemmProblem(101, 17, 1, trans_b=True, bias="n", activation="silu", residual=True),
        GemmProblem(101, 18, 1, "bf16", bias="m", batch=2),
        GemmProblem(101, 20, 1, "fp16", trans_b=True, bias="n", residual=True),
        GemmProblem(101, 19, 1, "fp16", trans_a=True, batch=2, shared_b=True),
    ],
    ids=GemmProblem.key,
)
def test_rows_of_any_length_move_by_16_bytes(
    device: Device, problem: GemmProblem, k: int, config: gemm_tall.Config
) -> None:
    problem = replace(problem, k=k)
    measurement = Bench(device, problem).measure(gemm_tall.plan(problem, config), 0.0)
    assert measurement.ok, measurement.reason
    text = gemm_tall.plan(problem, config).launches[0].source
    width = 4 if problem.dtype == "fp32" else 8
    assert f"ALIGNED_STORE{width}(" in text.split("void gemm_tall")[1]
    assert problem.trans_a or f"ALIGNED_LOAD{width}(" in text.split("void gemm_tall")[1]


@pytest.mark.parametrize("row", range(1, 129))
def test_work_items_read_rows_from_different_banks(row: int) -> None:
    """Work-items that one access serves, of 32 banks: 32 of a float, 16 of two, 8 of four."""
    width = next(each for each in (4, 2, 1) if row % each == 0)
    firsts = [lane * gemm_tall.pitch(row) for lane in range(32 // width)]
    banks = [(first + i) % 32 for first in firsts for i in range(width)]
    assert sorted(banks) == list(range(32))


@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem(1_236_785, 17, 24),
        GemmProblem(5_000, 32, 128, "bf16", trans_b=True),
        GemmProblem(70_000, 50, 3, trans_a=True),
    ],
    ids=GemmProblem.key,
)
def test_a_gpu_has_valid_guesses(problem: GemmProblem) -> None:
    valid = [one for one in gemm_tall.guesses(problem, GPU) if one.why_not(problem, GPU) is None]
    assert valid
    for config in valid:
        (launch,) = gemm_tall.plan(problem, config).launches
        assert launch.global_size[0] * config.item_m >= problem.m
        assert prod(launch.local_size) >= 32


def test_it_serves_where_both_sizes_of_b_are_small() -> None:
    assert gemm_tall.serves(GemmProblem(10_000, 128, 32))
    for n, k in ((129, 2), (2, 129), (64, 65)):
        assert not gemm_tall.serves(GemmProblem(10_000, n, k))
    assert gemm_tall.guesses(GemmProblem(100, 16, 16), GPU) == []
    assert (
        FAMILIES["gemm_tall"].guesses(GemmProblem(10_000, 16, 16), replace(GPU, kind="cpu")) == []
    )
