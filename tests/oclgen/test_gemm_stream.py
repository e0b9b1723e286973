"""When `gemm_stream` serves processors, and with what; `gemm_cases` has its configs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.families.gemm import gemm_register, gemm_stream
from oclgen.limits import KIB, Limits
from oclgen.problem import GemmProblem
from search_spaces.space import space_of

CORES = Limits("cpu", 256 * KIB, 8192, (8192,) * 3, 2**30, 2**33, 2, 16)
LARGE = GemmProblem(1, 4096, 4096)


@pytest.mark.parametrize(
    ("problem", "serves"),
    [
        (LARGE, True),
        (replace(LARGE, m=8, trans_a=True), True),
        (replace(LARGE, m=9), False),  # sums take longer than memory
        (replace(LARGE, trans_b=True), False),
        (replace(LARGE, n=1024, k=4095), False),  # B lies in a cache
        (replace(LARGE, n=2048, dtype="bf16"), True),
        (replace(LARGE, n=256, k=32768), False),  # short rows
        (replace(LARGE, batch=2), False),
    ],
)
def test_it_has_few_rows_and_a_large_b_for_itself(problem: GemmProblem, serves: bool) -> None:
    assert bool(gemm_stream.guesses(problem, CORES)) == serves
    assert bool(gemm_register.guesses(problem, CORES)) != serves
    assert gemm_stream.guesses(problem, replace(CORES, kind="gpu")) == []
    for config in gemm_stream.guesses(problem, CORES):
        assert config.why_not(problem, CORES) is None


@pytest.mark.parametrize(
    ("cores", "columns", "tile_n", "slices"),
    [
        (1, 4096, 4096, 1),
        (1, 5000, 4096, 1),  # most columns
        (2, 4096, 2048, 1),  # half of each row for each core
        (2, 4090, 2048, 1),
        (64, 4096, 512, 8),  # rows are not cut further, but the reduction is
    ],
)
def test_cores_share_rows_and_then_the_reduction(
    cores: int, columns: int, tile_n: int, slices: int
) -> None:
    problem = replace(LARGE, n=columns, k=8192)
    (config,) = gemm_stream.guesses(problem, replace(CORES, compute_units=cores))
    assert (config.tile_n, config.split_k, config.vec_n) == (tile_n, slices, 16)


def test_sums_of_all_rows_have_room() -> None:
    (config,) = gemm_stream.guesses(replace(LARGE, m=8, n=50_000), CORES)
    assert config.local_bytes <= gemm_stream.SUM_BYTES


def test_it_is_searched_where_it_serves() -> None:
    assert len(space_of("gemm_stream", LARGE, CORES)) > 10
    assert len(space_of("gemm_stream", replace(LARGE, m=9), CORES)) == 1  # the default
