"""What is estimated of a variant's time on a GPU: tiles, steps, copies and patches."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from oclgen.families import FAMILIES, families_for, suitable_configs
from oclgen.limits import Limits
from oclgen.predictor import gpus
from oclgen.predictor.features import of_variant
from oclgen.predictor.model import predict
from oclgen.problem import DIRECTIONS, LAYOUTS, ConvProblem, Direction, GemmProblem, Memory, Problem
from oclgen.variant import Variant

GPU = Limits("gpu", 48_000, 1024, (1024, 1024, 64), 1 << 34, 1 << 36, 132, 1)
LAYER = ConvProblem(8, 64, 28, 28, 96, 3, 3, pad_h=1, pad_w=1, dtype="bf16", layout="nhwc")


def variant_of(family: str, **values: Any) -> Variant:
    return Variant(family, replace(FAMILIES[family].DEFAULT, **values))


def estimated_ms(problem: Problem, variant: Variant) -> float:
    return gpus.least_ms(of_variant(problem, variant, GPU))


def test_tiles_beyond_the_edge_take_their_time() -> None:
    """65 rows are two tiles of 64, as 128 are."""
    variant = variant_of("gemm_mma", tile_m=64)
    few, full, fewer = (
        estimated_ms(GemmProblem(rows, 65536, 1024, "bf16"), variant) for rows in (65, 128, 64)
    )
    assert few == pytest.approx(full, rel=0.05)
    assert few > 1.2 * fewer


@pytest.mark.parametrize(("packed", "factor"), [(False, 1.5), (True, 1.0)])
def test_rows_that_tma_does_not_copy_take_longer(packed: bool, factor: float) -> None:
    variant = variant_of("gemm_tma", pack_a=packed, pack_b=packed)
    even, uneven = (
        estimated_ms(GemmProblem(2048, 2048, k, "bf16", trans_b=True), variant)
        for k in (4096, 4095)
    )
    assert uneven >= factor * even * 0.99
    assert (uneven < 1.1 * even) is packed


def test_rows_of_a_convolution_on_matrix_units_are_pixels_in_channels_last() -> None:
    variant = variant_of("conv_mma", tile_m=64, tile_n=64)
    pixels, planes = (
        of_variant(replace(LAYER, layout=layout), variant, GPU) for layout in ("nhwc", "nchw")
    )
    assert (pixels["used of m"], pixels["used of n"]) == (1.0, 0.75)
    assert (planes["used of m"], planes["used of n"]) == (0.75, 1.0)


def test_the_tiles_of_the_product_within_winograd_are_known() -> None:
    layer = replace(LAYER, dtype="fp32", layout="nchw")
    told = of_variant(layer, Variant("winograd_staged", FAMILIES["winograd_staged"].DEFAULT), GPU)
    assert "config tile_k" in told
    assert told["used of m"] > 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_large_filters_are_chosen_in_blocks(direction: Direction, layout: Memory) -> None:
    """Of all first guesses the model takes that which multiplies a fifth, and copies more."""
    layer = ConvProblem(
        16, 128, 24, 24, 128, 9, 9, pad_h=4, pad_w=4, direction=direction, layout=layout
    )
    able = replace(GPU, instructions=frozenset({"cp_async"}))
    for limits in (GPU, able):
        firsts = [
            Variant(family.NAME, config)
            for family in families_for(layer)
            for config in islice(suitable_configs(family, layer, limits), 1)
        ]
        times = predict(layer, firsts, limits)
        assert times is not None
        chosen = firsts[times.index(min(times))]
        assert chosen.values().get("taps"), chosen.to_text()


def test_patches_say_what_they_waste_and_read() -> None:
    """Patches of 2x4 results of 3x3 read windows of 4x6; four cover a row of 14."""
    layer = ConvProblem(2, 32, 14, 14, 32, 3, 3, pad_h=1, pad_w=1, groups=32)
    told = of_variant(layer, variant_of("depthwise", patch_h=2, patch_w=4), GPU)
    assert told["used of patches"] == 14 / 16
    assert 2 ** told["reads of a result"] == pytest.approx(24 / 8)
    assert told["results of a work-item"] == 3.0
