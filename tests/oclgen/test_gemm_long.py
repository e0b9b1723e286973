"""Products of a long reduction: copies by 16 bytes, edges, slices, and where the family serves."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_long
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import GemmProblem

GPU = Limits("gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1)
CONFIG = gemm_long.Config(item_m=4, item_n=2, local_m=5, local_n=9, local_k=2, tile_k=24, split_k=3)


@pytest.mark.parametrize("rows", [1, 5, 8, 18, 20])
@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem(1, 16, 203, trans_a=True),
        GemmProblem(1, 17, 203, trans_a=True, bias="n", activation="silu", residual=True),
        GemmProblem(1, 18, 208, "bf16", trans_a=True, bias="m", batch=2),
        GemmProblem(1, 4, 208, "fp16", trans_b=True, bias="n", residual=True),
        GemmProblem(1, 3, 208, "tf32", trans_a=True, trans_b=True, batch=2, shared_b=True),
    ],
    ids=GemmProblem.key,
)
@pytest.mark.parametrize("split_k", [1, 3])
def test_chunks_of_any_rows_move_by_16_bytes(
    device: Device, problem: GemmProblem, rows: int, split_k: int
) -> None:
    problem, config = replace(problem, m=rows), replace(CONFIG, split_k=split_k)
    measurement = Bench(device, problem).measure(gemm_long.plan(problem, config), 0.0)
    assert measurement.ok, measurement.reason


@pytest.mark.parametrize("k", [207, 211])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_rows_that_are_not_aligned_move_element_by_element(
    device: Device, dtype: str, k: int
) -> None:
    problem = GemmProblem(20, 18, k, dtype, trans_b=True)
    measurement = Bench(device, problem).measure(gemm_long.plan(problem, CONFIG), 0.0)
    assert measurement.ok, measurement.reason


@pytest.mark.parametrize("extent", range(1, 40))
@pytest.mark.parametrize("items", gemm_long.ITEMS)
def test_what_work_items_read_lies_within_their_memory(items: int, extent: int) -> None:
    for across in (True, False):
        for local in (1, 3, -(-extent // items)):
            side = gemm_long.Side(extent, across, items, local, 16)
            last = (items // side.vec * local - 1) * side.vec + side.vec - 1
            read = 15 * side.pitch + last if across else last * side.pitch + 15
            assert read < side.cells
            assert side.groups * items * local >= extent


@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem(32, 1, 255_581, trans_a=True),
        GemmProblem(9, 4, 1_320_935, "tf32", trans_a=True),
        GemmProblem(64, 64, 65_536, "bf16", trans_b=True),
        GemmProblem(128, 32, 2_048, batch=3),
    ],
    ids=GemmProblem.key,
)
def test_a_gpu_has_guesses_that_give_each_unit_work(problem: GemmProblem) -> None:
    guesses = gemm_long.guesses(problem, GPU)
    valid = [one for one in guesses if one.why_not(problem, GPU) is None]
    assert valid
    for config in valid:
        product, *others = gemm_long.plan(problem, config).launches
        groups = prod(product.global_size) // prod(product.local_size)
        assert groups == problem.batch * config.split_k
        assert groups > 0.9 * min(GPU.compute_units, problem.k // config.tile_k // 2)
        assert [launch.kernel for launch in others] == ["sum_planes"]


def test_it_serves_where_c_is_small() -> None:
    assert gemm_long.serves(GemmProblem(32, 128, 10_000))
    for m, n in ((129, 2), (2, 129), (64, 65)):
        assert not gemm_long.serves(GemmProblem(m, n, 10_000))
    assert gemm_long.guesses(GemmProblem(16, 16, 1_000), GPU) == []
    on_processor = replace(GPU, kind="cpu")
    assert FAMILIES["gemm_long"].guesses(GemmProblem(16, 16, 10_000), on_processor) == []


def test_chunks_are_whole_copies_and_whole_steps_of_all_work_items() -> None:
    problem = GemmProblem(16, 16, 10_000, "fp16", trans_a=True)
    for tile_k, local_k in ((24, 16), (20, 4)):
        reason = replace(CONFIG, tile_k=tile_k, local_k=local_k).why_not(problem, GPU)
        assert reason == f"tile_k={tile_k} is no multiple of local_k={local_k} and 8"
