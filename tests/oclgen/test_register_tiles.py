"""Tiles of `gemm_register` on processors: what of a product's edges they waste, and what they cost.

Sizes and the tiles that were the fastest there are of one core with AVX2's vectors of 8.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oclgen.families import FAMILIES, valid_configs
from oclgen.families.gemm import gemm_register
from oclgen.families.gemm.gemm_parts import empty_slice
from oclgen.families.gemm.gemm_register_tiles import (
    MOST_BLOCKS,
    Preparation,
    Tile,
    blocks_of_item,
    cost,
    fitting,
    steps_at_once,
    tiles,
)
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import GemmProblem
from tests.guessed import valid_guesses
from tests.oclgen.test_guesses import CPU, GPU

AVX2 = replace(CPU, native_float_width=8, compute_units=2)
AS_IT_LIES, PACKED = Preparation(False, False), Preparation(False, True)


def first_guess(problem: GemmProblem) -> Any:
    return next(valid_configs(FAMILIES["gemm_register"], problem, AVX2))


@pytest.mark.parametrize("registers", [16, 32])
def test_sums_and_operands_of_a_tile_stay_in_registers(registers: int) -> None:
    for tile in tiles(registers):
        operands = 1 + (tile.vectors if tile.rows > 1 else 0)  # a single row reads B from memory
        assert tile.rows * tile.vectors + operands <= registers
    assert Tile(6, 2 if registers == 16 else 4) in tiles(registers)[:3]


@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "vectors"),
    [(8, 40, 1048, 2, 5), (192, 72, 1576, 4, 3), (176, 24, 104, 4, 3), (784, 98, 19, 6, 2)],
)
def test_the_cheapest_tile_is_the_fastest(m: int, n: int, k: int, rows: int, vectors: int) -> None:
    first = first_guess(GemmProblem(m, n, k, trans_b=m > 8))
    assert (first.item_m, first.item_n // first.vec_n) == (rows, vectors)


def test_an_edge_costs_tests_where_a_tile_has_more_columns_than_an_unpacked_b() -> None:
    problem = GemmProblem(8, 40, 1048)
    fits, crosses = Tile(2, 5), Tile(6, 2)
    assert cost(problem, fits, 8, AS_IT_LIES) < cost(problem, fits, 8, PACKED)
    whole, wide = replace(problem, n=48), Tile(2, 6)
    assert cost(problem, wide, 8, AS_IT_LIES) > cost(whole, wide, 8, AS_IT_LIES)
    assert cost(problem, crosses, 8, AS_IT_LIES) == cost(whole, crosses, 8, AS_IT_LIES)
    assert fitting(problem, AVX2, 8, AS_IT_LIES)[0] == fits


def test_a_panel_beyond_the_second_cache_is_dear_unless_k_is_sliced() -> None:
    problem, wide, narrow = GemmProblem(16, 104, 3896), Tile(2, 7), Tile(8, 1)
    assert cost(problem, wide, 16, PACKED) > cost(problem, narrow, 16, PACKED)
    sliced = Preparation(False, True, split_k=64)
    assert cost(problem, wide, 16, sliced) < cost(problem, narrow, 16, sliced)


def test_no_tile_is_guessed_that_costs_twice_the_least() -> None:
    problem = GemmProblem(1225, 7, 32)
    guessed = gemm_register.guesses(problem, AVX2)
    assert guessed
    assert all(config.pack_b for config in guessed), "each row of tiles would test 7 columns anew"


def test_few_rows_are_not_packed_where_tiles_fit_the_columns() -> None:
    assert not first_guess(GemmProblem(8, 40, 1048)).pack_b
    assert first_guess(GemmProblem(43, 114, 1295)).pack_b


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize(("n", "k"), [(228, 321), (1520, 88), (16, 1000)])
def test_a_b_along_k_is_packed_where_several_rows_of_tiles_read_it(
    lanes: int, n: int, k: int
) -> None:
    """A copy for one row of tiles writes and reads again what is gathered once."""
    device = replace(AVX2, native_float_width=lanes)
    for m, packed in ((1, False), (2, False), (6, False), (48, True), (200, True)):
        for batch in (1, 45):
            problem = GemmProblem(m, n, k, trans_b=True, batch=batch)
            config = next(valid_configs(FAMILIES["gemm_register"], problem, device))
            assert config.pack_b == packed
            assert config.item_m >= m or packed


def test_rows_of_b_that_push_each_other_out_are_packed() -> None:
    """256 floats are 1 KiB; a vector of AVX-512 is a line, which is read once."""
    apart, near = GemmProblem(256, 256, 256), GemmProblem(256, 264, 256)
    avx512 = replace(AVX2, native_float_width=16)
    for problem, limits, are_packed in (
        (apart, AVX2, True),
        (near, AVX2, False),
        (apart, avx512, False),
    ):
        found = gemm_register.guesses(problem, limits)
        assert all(config.pack_b for config in found) == are_packed, problem.key()


@pytest.mark.parametrize("trans_a", [False, True])
def test_steps_of_operands_that_lie_in_panels_are_written_out(trans_a: bool) -> None:
    for config in gemm_register.guesses(GemmProblem(600, 300, 402, trans_a=trans_a), AVX2):
        in_panels = config.pack_b and (config.pack_a or not trans_a)
        assert (config.unroll_k > 1) == in_panels, config


@pytest.mark.parametrize("split_k", [1, 2, 7, 30, 100])
def test_steps_that_are_written_out_leave_no_slice_empty(split_k: int) -> None:
    for k in range(3, 2**16, 997):
        steps = steps_at_once(GemmProblem(48, 48, k), Preparation(False, True, split_k), Tile(6, 2))
        assert empty_slice(k, split_k, 1) or not empty_slice(k, split_k, steps), k


def test_of_as_many_columns_a_tile_of_few_sums_is_not_guessed_behind_a_higher_one() -> None:
    for m in range(300, 540, 20):
        found = [(c.item_m, c.item_n) for c in gemm_register.guesses(GemmProblem(m, m, m), AVX2)]
        assert not ((4, 16) in found and (6, 16) in found[: found.index((4, 16))])


def test_tiles_enough_for_all_cores_need_no_slices() -> None:
    assert first_guess(GemmProblem(43, 114, 1295)).split_k == 1
    assert first_guess(GemmProblem(4, 16, 8192)).split_k > 1


def test_a_small_transposed_a_is_not_packed() -> None:
    assert not first_guess(GemmProblem(65, 236, 551, trans_a=True)).pack_a
    assert first_guess(GemmProblem(3072, 768, 196, trans_a=True)).pack_a


@pytest.mark.parametrize("size", [24, 96, 512, 2048])
def test_a_work_item_has_much_to_do_and_each_core_has_work_items(size: int) -> None:
    problem, tile = GemmProblem(size, size, size), Tile(6, 2)
    blocks = blocks_of_item(problem, AVX2, tile, 16)
    groups = ceil_div(ceil_div(size, 6), blocks) * ceil_div(size, 16)
    assert blocks == MOST_BLOCKS or groups >= 8 * AVX2.compute_units or size < 48
    assert blocks <= MOST_BLOCKS


@pytest.mark.parametrize("batch", [1, 45])
def test_few_rows_and_long_sums_begin_with_inner_products_instead(batch: int) -> None:
    def first(m: int, k: int, limits: Limits) -> str:
        problem = GemmProblem(m, 228, k, trans_b=True, batch=batch)
        return next(valid_guesses(problem, limits)).family

    assert {first(m, k, CPU) for m in (1, 2, 4) for k in (128, 2000)} == {"gemm_dot"}
    assert {first(m, k, CPU) for m, k in ((5, 2000), (1, 127))} == {"gemm_register"}
    assert "gemm_dot" not in {first(m, 2000, GPU) for m in (1, 4)}


def test_rows_of_a_wide_b_are_asked_for_ahead() -> None:
    wide, shared_set = GemmProblem(6, 7440, 240), GemmProblem(16, 1024, 1024)
    assert [first_guess(one).ahead for one in (wide, shared_set)] == [16, 8]
    near, along_k, packs = GemmProblem(6, 64, 64), replace(wide, trans_b=True), replace(wide, m=512)
    assert [first_guess(one).ahead for one in (near, along_k, packs)] == [0, 0, 0]
    config = first_guess(wide)
    texts = {
        gemm_register.plan(wide, replace(config, ahead=ahead)).launches[0].source
        for ahead in (0, 8, 16)
    }
    assert len(texts) == 3
    for problem, limits, changes in (
        (wide, GPU, {}),
        (wide, AVX2, {"pack_b": True}),
        (along_k, AVX2, {}),
    ):
        reason = replace(config, **changes).why_not(problem, limits)
        assert reason is not None and "ahead=16" in reason


@pytest.mark.parametrize(
    ("m", "n", "k", "slices"),
    [
        (23, 4056, 3744, 6),
        (40, 1944, 2496, 4),
        (23, 4056, 1200, 1),  # two slices, whose sum costs more
        (23, 272, 3744, 1),  # a small B
        (300, 4056, 3744, 1),  # many rows, for which B is packed
    ],
)
def test_a_panel_of_an_unpacked_b_stays_in_the_second_cache(
    m: int, n: int, k: int, slices: int
) -> None:
    problem = GemmProblem(m, n, k)
    guesses = gemm_register.guesses(problem, AVX2)
    assert {one.split_k for one in guesses if not one.pack_b} == {slices}
    along_k = gemm_register.guesses(replace(problem, trans_b=True), AVX2)
    assert {one.split_k for one in along_k} == {1}
