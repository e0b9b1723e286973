"""Sums of 400,000 products, which one fp32 accumulator would round beyond the tolerance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.families import FAMILIES, default_of, families_for, valid_configs
from oclgen.family import LONGEST_SUM
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.variant import Variant

PRODUCT = GemmProblem(16, 16, 401_408)
STEM = ConvProblem(8, 3, 224, 224, 16, 3, 3, pad_h=1, pad_w=1, direction="bwd_weights")
PIXELS = ConvProblem(8, 16, 224, 224, 16, 1, 1, direction="bwd_weights", layout="nhwc")
CUT = {
    "gemm_register", "gemm_staged", "gemm_async", "gemm_long", "gemm_stream",
    "conv_gemm", "conv_async", "conv_register_weights", "conv_pixels_weights",
    "conv_lines_weights",
    "conv_as_gemm_register", "conv_as_gemm_staged", "conv_as_gemm_async",
}  # fmt: skip
LIMITS = {
    "cpu": Limits("cpu", 32 * KIB, 4096, (4096,) * 3, 2**31, 2**33, compute_units=2),
    "gpu": Limits(
        "gpu", 48 * KIB, 1024, (1024, 1024, 64), 2**34, 2**36, compute_units=4,
        instructions=frozenset({"cp_async"}),
    ),
}  # fmt: skip


def test_families_whose_items_add_a_whole_slice_are_these() -> None:
    assert {name for name, one in FAMILIES.items() if one.Config.SLICES} == CUT


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("problem", [PRODUCT, STEM, PIXELS], ids=["product", "stem", "pixels"])
def test_guesses_and_defaults_cut_long_sums(problem: Problem, kind: str) -> None:
    limits = LIMITS[kind]
    served = [one for one in families_for(problem) if one.Config.SLICES]
    assert served
    for family in served:
        whole = replace(family.DEFAULT, **{family.Config.SLICES: 1})
        if whole.conflict(problem, limits) is None:
            why = whole.why_not(problem, limits)
            assert why is not None and f"use {family.Config.SLICES}=2" in why, family.NAME
        for config in valid_configs(family, problem, limits):
            assert getattr(config, config.SLICES) * LONGEST_SUM >= config.products(problem)


def test_work_groups_that_share_all_tiles_add_their_share() -> None:
    default = FAMILIES["gemm_async"].DEFAULT
    shared = replace(default, groups=8)
    assert default.products(PRODUCT) == PRODUCT.k
    assert shared.products(PRODUCT) == PRODUCT.k // 8
    many = replace(PRODUCT, m=16 * default.tile_m)
    assert shared.products(many) == PRODUCT.k


def test_a_winner_for_a_short_sum_is_cut_for_a_long_one() -> None:
    variant = Variant("gemm_register", FAMILIES["gemm_register"].DEFAULT)
    assert variant.for_another(PRODUCT, LIMITS["cpu"]).config.split_k == 2
    assert variant.for_another(replace(PRODUCT, k=4096), LIMITS["cpu"]) == variant


def test_storage_of_16_bits_bounds_no_sum() -> None:
    half = replace(PRODUCT, dtype="bf16")
    default = FAMILIES["gemm_register"].DEFAULT
    assert default.with_short_sums(half) == default
    assert default.with_short_sums(PRODUCT).split_k == 2


@pytest.mark.parametrize(
    ("family", "problem"), [("gemm_register", PRODUCT), ("conv_register_weights", STEM)]
)
def test_long_sums_of_defaults_stay_within_the_tolerance(
    family: str, problem: Problem, device: Device
) -> None:
    config = default_of(FAMILIES[family], problem, device.limits)
    if why := config.why_not(problem, device.limits):
        pytest.skip(why)
    measured = Bench(device, problem, seed=1).measure(FAMILIES[family].plan(problem, config))
    assert measured.ok, measured.reason
