"""What families say of a processor's registers, and what the model of processors makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.families import FAMILIES
from oclgen.limits import Limits
from oclgen.predictor.features import of_variant
from oclgen.predictor.processors import of_registers
from oclgen.problem import DIRECTIONS, LAYOUTS, ConvProblem, GemmProblem, Problem
from oclgen.registers import Registers, covered, outer_product, product_of_tiles
from oclgen.variant import Variant
from tests.guessed import valid_guesses

AVX512 = Limits("cpu", 1 << 18, 8192, (8192,) * 3, 1 << 33, 1 << 34, 2, 16)
AVX2 = replace(AVX512, native_float_width=8)
GPU = Limits("gpu", 48_000, 1024, (1024, 1024, 64), 1 << 34, 1 << 36, 132, 1)
LAYER = ConvProblem(4, 32, 14, 14, 48, 1, 1)
REGISTER = FAMILIES["gemm_register"].DEFAULT
TILE = replace(REGISTER, item_m=6, item_n=32, vec_n=16, local_m=1, local_n=1, order="m")
DECLARING = {
    "gemm_register", "gemm_dot", "gemm_columns", "gemm_stream", "conv_register",
    "conv_register_weights",
    "conv_pixels_weights", "conv_lines_weights",
    "conv_as_gemm_register", "depthwise", "depthwise_weights", "winograd_blocked",
    "winograd_blocked_weights",
}  # fmt: skip


def test_an_outer_product_multiplies_each_vector_with_each_broadcast() -> None:
    loop = outer_product(16, vectors=2, scalars=6)
    assert (loop.sums, loop.operands, loop.multiply_adds) == (12, 3, 12)
    assert (loop.vectors, loop.scalars) == (2, 6)
    assert [loop.of_vector(width) for width in (32, 16, 8, 4)] == [1, 1, 2, 4]


def test_lanes_that_lie_apart_are_loaded_one_by_one() -> None:
    loop = outer_product(16, vectors=2, scalars=6, gathered=True)
    assert (loop.vectors, loop.scalars) == (0, 6 + 2 * 16)


def test_blocks_at_the_edge_are_not_filled() -> None:
    assert covered((7, 6), (32, 16)) == pytest.approx(7 / 12)
    assert covered((12, 6)) == 1.0


def test_registers_are_spilled_where_vectors_are_too_wide_or_too_many() -> None:
    """12 sums, 2 vectors of B and a broadcast; each takes two registers of AVX2."""
    problem = GemmProblem(96, 128, 64)
    wide, narrow = (of_variant(problem, _product(TILE), limits) for limits in (AVX512, AVX2))
    assert wide["registers to spare"] == 32 - 15
    assert narrow["registers to spare"] == 16 - 30
    assert narrow["steps of a multiply-add"] > wide["steps of a multiply-add"]
    assert wide["lanes used"] == narrow["lanes used"] == 1.0
    half = replace(TILE, item_n=16, vec_n=8)
    assert of_variant(problem, _product(half), AVX512)["lanes used"] == 0.5


def test_a_packed_operand_lies_on_fewer_pages() -> None:
    """Rows of B are two pages apart; a panel of 32 columns has 128 bytes a step."""
    problem = GemmProblem(96, 2048, 256)
    apart = of_variant(problem, _product(TILE), AVX512)
    packed = of_variant(problem, _product(replace(TILE, pack_b=True)), AVX512)
    assert 2 ** apart["pages of a panel"] == 256
    assert 2 ** packed["pages of a panel"] == 8


def test_a_layer_of_1x1_is_described_as_its_product() -> None:
    config = next(iter(FAMILIES["conv_as_gemm_register"].guesses(LAYER, AVX512)))
    assert config.computed(LAYER) == GemmProblem(48, 196, 32, batch=4, shared_a=True)
    described = of_variant(LAYER, Variant("conv_as_gemm_register", config), AVX512)
    assert 2 ** described["n"] == pytest.approx(196)
    assert described["n has an edge"] == 1.0
    assert "n" not in of_variant(LAYER, Variant("conv_as_gemm_register", config), GPU)


def test_a_gpu_is_told_nothing_of_vectors() -> None:
    assert "registers to spare" not in of_variant(GemmProblem(96, 128, 64), _product(TILE), GPU)


@pytest.mark.parametrize("limits", [AVX512, AVX2], ids=["avx512", "avx2"])
def test_families_made_for_processors_declare_their_registers(limits: Limits) -> None:
    shapes = (LAYER, ConvProblem(2, 32, 9, 9, 32, 3, 3, pad_h=1, pad_w=1))
    depthwise = replace(shapes[1], groups=32)
    problems: list[Problem] = [
        GemmProblem(17, 24, 19),
        GemmProblem(17, 24, 24, trans_b=True),
        replace(LAYER, height=16, width=16, direction="bwd_weights"),
        *(
            replace(shape, layout=layout, direction=direction)
            for shape in (*shapes, depthwise)
            for layout in LAYOUTS
            for direction in DIRECTIONS
        ),
    ]
    seen = set()
    for problem in problems:
        for variant in valid_guesses(problem, limits):
            if (loop := variant.config.in_registers(problem)) is not None:
                seen.add(variant.family)
                assert loop.sums * loop.multiply_adds * loop.width > 0
                assert loop.vectors + loop.scalars > 0
                assert 0 < loop.used <= 1
    assert seen == DECLARING


def _product(config: object) -> Variant:
    return Variant("gemm_register", config)


def test_work_items_are_as_many_lanes_as_a_register_has() -> None:
    loop = Registers(16, 4, 2, 4, 5, 0, of_items=True)
    assert (loop.of_vector(8), loop.lanes(8), loop.lanes(32)) == (1, 8, 16)
    explicit = replace(loop, of_items=False)
    assert (explicit.of_vector(8), explicit.lanes(8)) == (2, 16)


def test_a_tile_hides_twice_the_loads_of_a_vector_and_half_of_them_its_latency() -> None:
    """Four sums and four operands fill the eight tiles; a single sum waits for its latency."""
    square, single = (
        of_registers(64.0, product_of_tiles(16, tiles, tiles, 1.0), AVX512) for tiles in (2, 1)
    )
    assert square["registers to spare"] == 8 - 4 - 3
    assert square["loads of a multiply-add"] == -1.0
    assert square["steps of a multiply-add"] == 0.0
    assert single["steps of a multiply-add"] == 2.0
