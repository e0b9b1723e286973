"""Which configs of rows in lanes are valid, and which are guessed; so of few rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.attention_problem import AttentionProblem
from oclgen.families.attention import attention_lanes, attention_rows
from oclgen.limits import KIB, Limits
from tests.oclgen.attention_cases import BASE

AVX512 = Limits("cpu", 32 * KIB, 4096, (4096,) * 3, 2**32, 2**34, 16, 16)
AVX2 = replace(AVX512, native_float_width=8)


def test_a_tile_of_lanes_is_whole_blocks() -> None:
    config = replace(attention_lanes.DEFAULT, sums=4, tile=6)
    assert "tile=6 must be a multiple of sums=4" in str(config.why_not(BASE, AVX512))
    assert "vec=2 must be of" in str(replace(config, vec=2).why_not(BASE, AVX512))


@pytest.mark.parametrize(
    ("rows", "limits", "shape"),
    [
        (12, AVX512, (3, 8)), (16, AVX512, (1, 12)), (17, AVX512, (3, 8)), (197, AVX512, (3, 8)),
        (8, AVX2, (2, 6)), (9, AVX2, (3, 4)), (197, AVX2, (3, 4)),
    ],
)  # fmt: skip
def test_sums_of_a_block_are_guessed_to_fit_into_registers(
    rows: int, limits: Limits, shape: tuple[int, int]
) -> None:
    problem = AttentionProblem(1, 8, 8, rows, rows, 64, 64)
    first = attention_lanes.guesses(problem, limits)[0]
    assert (first.vectors, first.sums) == shape


@pytest.mark.parametrize(
    ("rows", "limits", "dim", "shape"),
    [
        (1, AVX512, 64, (4, 1, 4)), (4, AVX512, 64, (4, 1, 4)), (5, AVX512, 64, (4, 2, 4)),
        (12, AVX512, 64, (4, 3, 4)), (13, AVX512, 64, (16, 1, 1)), (4, AVX512, 32, (4, 1, 4)),
        (8, AVX512, 32, (8, 1, 2)), (9, AVX512, 32, (16, 1, 1)), (4, AVX2, 64, (4, 1, 2)),
        (12, AVX2, 64, (4, 3, 2)), (13, AVX2, 64, (8, 3, 1)), (5, AVX2, 32, (8, 1, 1)),
    ],
)  # fmt: skip
def test_items_of_few_rows_fill_a_vector(
    rows: int, limits: Limits, dim: int, shape: tuple[int, int, int]
) -> None:
    problem = AttentionProblem(8, 8, 8, rows, 300, dim, dim)
    first = attention_lanes.guesses(problem, limits)[0]
    assert (first.vec, first.vectors, first.fold) == shape
    assert first.wide == limits.native_float_width
    assert attention_lanes.guesses(replace(problem, head_dim=63), limits)[0].fold == 1
    assert attention_lanes.guesses(replace(problem, direction="bwd"), limits)[0].fold == 1


def test_items_side_by_side_are_whole_vectors() -> None:
    config = replace(attention_lanes.DEFAULT, fold=2)
    assert config.why_not(BASE, AVX512) is None
    assert "fold=3 must be of" in str(replace(config, fold=3).why_not(BASE, AVX512))
    assert "fold=4 must be of" in str(replace(config, vec=8, fold=4).why_not(BASE, AVX512))
    for other in (replace(BASE, direction="bwd_q"), replace(BASE, head_dim=23)):
        assert "only for forward passes" in str(config.why_not(other, AVX512))


@pytest.mark.parametrize(
    ("vec", "sums", "at_once"), [(16, 8, (8, 4)), (16, 12, (4, 2)), (8, 4, (4, 2)), (8, 5, (1, 1))]
)
def test_sums_of_rows_share_out_a_vector_of_rows(
    vec: int, sums: int, at_once: tuple[int, int]
) -> None:
    config = attention_lanes.Config(vec, vectors=3, sums=sums, tile=sums)
    assert config.rows_at_once == at_once
    assert config.columns * at_once[0] <= 3 * sums


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("rows", "at_once"), [(1, 1), (2, 2), (3, 3), (4, 4)])
def test_few_rows_are_left_to_rows_up_to_a_number(dtype: str, rows: int, at_once: int) -> None:
    """Queries, or heads of one query that share keys: these are few rows of one head, too."""
    problem = AttentionProblem(8, 8, 8, rows, 300, 64, 64, dtype=dtype)
    shared = replace(problem, queries=1, heads=8 * rows)
    for few in (problem, shared):
        assert attention_rows.guesses(few, AVX512)[0].rows == at_once
    for more in (replace(problem, queries=5), replace(shared, heads=40)):
        assert not attention_rows.guesses(more, AVX512)


def test_few_rows_of_few_heads_are_shared_out_among_cores() -> None:
    problem = AttentionProblem(1, 6, 3, 4, 300, 64, 64)
    one = replace(AVX512, compute_units=1)
    assert not attention_rows.guesses(problem, one)  # 8 rows: attention_lanes
    assert attention_rows.guesses(problem, replace(one, compute_units=4))[0].rows == 2
    assert attention_rows.guesses(problem, AVX512)[0].rows == 1
