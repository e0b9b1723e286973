"""Where a processor waits for memory: lines that two work-items write, and short rows in place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.families import FAMILIES
from oclgen.families.conv.conv_register import FEW_PRODUCTS
from oclgen.families.gemm.gemm_register_tiles import RUN, SHORT
from oclgen.family import BaseConfig
from oclgen.limits import Limits
from oclgen.problem import ConvProblem, GemmProblem

AVX2 = Limits("cpu", 2**18, 8192, (8192,) * 3, 2**33, 2**34, 1, 8)
FLOAT, LINE = 4, 64
LAYER = ConvProblem(8, 16, 80, 80, 64, 1, 1, groups=4, layout="nhwc")


@pytest.mark.parametrize("layer", [LAYER, replace(LAYER, in_channels=64, direction="bwd_data")])
def test_a_few_products_in_channels_last_fill_lines(layer: ConvProblem) -> None:
    found = FAMILIES["conv_register"].guesses(layer, AVX2)
    assert found
    assert all(FLOAT * one.block >= LINE for one in found)


def test_channels_that_fill_no_line_and_many_products_are_guessed_as_before() -> None:
    few = replace(LAYER, out_channels=32)
    many = replace(LAYER, in_channels=4 * (FEW_PRODUCTS + 1))
    for layer in (few, many):
        found = FAMILIES["conv_register"].guesses(layer, AVX2)
        assert any(FLOAT * one.block < LINE for one in found)


def test_tiles_of_short_sums_have_long_rows_where_each_lies_on_a_page_of_its_own() -> None:
    long = GemmProblem(34, 10_380, 6, batch=7)
    for problem in (long, replace(long, k=SHORT)):
        found = FAMILIES["gemm_register"].guesses(problem, AVX2)
        assert found
        assert all(FLOAT * one.item_n >= RUN for one in found)
    for problem in (replace(long, k=SHORT + 1), replace(long, n=1000), replace(long, batch=1)):
        found = FAMILIES["gemm_register"].guesses(problem, AVX2)
        assert any(FLOAT * one.item_n < RUN for one in found)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_narrow_vectors_have_guesses_too(width: int) -> None:
    narrow = replace(AVX2, native_float_width=width)
    assert FAMILIES["gemm_register"].guesses(GemmProblem(34, 10_380, 6, batch=7), narrow)
    assert FAMILIES["conv_register"].guesses(LAYER, narrow)


def test_rows_in_place_are_asked_for_where_no_cache_holds_them() -> None:
    """Packed rows lie as they are read, and those of a small A are near."""
    gemm_pairs = FAMILIES["gemm_pairs"]
    in_place = replace(gemm_pairs.DEFAULT, pack_a=False)
    far = GemmProblem(300_000, 32, 32, "bf16")

    def asks(problem: GemmProblem, config: BaseConfig) -> bool:
        return "ASK_FOR(pa0" in gemm_pairs.plan(problem, config).launches[-1].source

    assert asks(far, in_place)
    assert not asks(far, gemm_pairs.DEFAULT)
    assert not asks(replace(far, m=3_000), in_place)
