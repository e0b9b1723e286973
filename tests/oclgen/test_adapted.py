"""What families change of a variant that won for another problem, on processors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oclgen.families import FAMILIES, suitable_configs
from oclgen.families.conv.conv_register import LARGE_WEIGHTS
from oclgen.keys import parse_key
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.variant import Variant
from tests.oclgen.test_guesses import CPU, GPU

LINE = ConvProblem(33, 96, 1, 168, 384, 1, 2, pad_w=1, dilation_w=2, direction="bwd_data")
PIXELS = ConvProblem(30, 8, 35, 35, 320, 3, 3, pad_h=1, pad_w=1, groups=8, layout="nhwc")


def adapted(name: str, problem: Problem, **changes: Any) -> Any:
    variant = Variant(name, replace(FAMILIES[name].DEFAULT, **changes))
    return variant.for_another(problem, CPU).config


def orders_of(problem: ConvProblem) -> set[tuple[bool, bool]]:
    found: Any = FAMILIES["conv_register"].guesses(problem, CPU)
    return {(one.taps_outer, one.channels_fastest) for one in found}


def test_a_filter_of_one_row_has_its_taps_outside_of_the_channels() -> None:
    assert orders_of(LINE) == {(True, True)}
    taken = adapted("conv_register", LINE, item_x=14, vecs=2)
    assert (taken.item_x, taken.vecs) == (14, 2)
    assert (taken.taps_outer, taken.channels_fastest) == (True, True)


def test_planes_of_whole_pages_have_their_taps_inside() -> None:
    layer = ConvProblem(6, 96, 32, 32, 11, 1, 7, pad_w=3)
    assert orders_of(layer) == {(False, False), (True, True)}


def test_neighbours_share_a_position_unless_weights_are_large() -> None:
    assert orders_of(PIXELS) == {(True, True)}
    large = replace(PIXELS, in_channels=512, out_channels=512, groups=1)
    assert LARGE_WEIGHTS < 4 * 9 * 512**2
    assert orders_of(large) == {(True, True), (True, False)}


@pytest.mark.parametrize(("n", "item_n"), [(49, 48), (64, 64), (8, 64)])
def test_a_tile_has_no_more_columns_than_an_unpacked_b(n: int, item_n: int) -> None:
    wide = {"item_m": 6, "item_n": 64, "vec_n": 16}
    product = GemmProblem(160, n, 960)
    assert adapted("gemm_register", product, **wide, pack_b=False).item_n == item_n
    assert adapted("gemm_register", product, **wide, pack_b=True).item_n == 64


def test_a_product_of_pixels_is_adapted_as_its_product() -> None:
    layer = parse_key("conv:8,160,7,7,960,1,1:s1,1:p0,0:d1,1:g1:fp32:bwd_data:-:none")
    taken = adapted(
        "conv_as_gemm_register", layer, item_m=6, item_n=64, vec_n=16, pack_a=True, pack_b=False
    )
    assert (taken.item_m, taken.item_n) == (6, 48)


@pytest.mark.parametrize("name", ["depthwise", "depthwise_weights"])
def test_a_patch_of_wider_rows_has_fewer(name: str) -> None:
    direction = "fwd" if name == "depthwise" else "bwd_weights"
    layer: Any = parse_key(f"conv:8,144,56,56,144,3,3:s1,1:p1,1:d1,1:g144:fp32:{direction}:-:none")
    wide = {"patch_h": 14, "patch_w": 56, "vec": 16, "guarded": False}
    assert adapted(name, layer, **wide).patch_h * 4 <= 32
    assert adapted(name, replace(layer, height=28, width=28), **wide).patch_h == 14
    pixels = replace(layer, layout="nhwc")
    assert adapted(name, pixels, patch_h=56).patch_h == 56


def test_a_gpu_keeps_what_won() -> None:
    variant = Variant("gemm_register", replace(FAMILIES["gemm_register"].DEFAULT, item_n=64))
    product = GemmProblem(160, 49, 960)
    assert variant.for_another(product, GPU).config.item_n == 64


def test_the_default_of_conv_register_is_ranked_with_no_guess() -> None:
    found = list(suitable_configs(FAMILIES["conv_register"], PIXELS, CPU))
    assert found
    assert FAMILIES["conv_register"].DEFAULT not in found
