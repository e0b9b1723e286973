"""Which configs of rows in lanes are valid, and which are guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.attention_problem import AttentionProblem
from oclgen.families.attention import attention_lanes
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
        (12, AVX512, (1, 12)), (40, AVX512, (1, 24)), (71, AVX512, (1, 24)), (64, AVX512, (2, 12)),
        (104, AVX512, (2, 12)), (197, AVX512, (2, 12)), (8, AVX2, (1, 6)), (20, AVX2, (2, 6)),
    ],
)  # fmt: skip
def test_one_vector_is_guessed_where_two_are_half_empty(
    rows: int, limits: Limits, shape: tuple[int, int]
) -> None:
    problem = AttentionProblem(1, 8, 8, rows, rows, 64, 64)
    first = attention_lanes.guesses(problem, limits)[0]
    assert (first.vectors, first.sums) == shape
