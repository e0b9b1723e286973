"""First guesses of depthwise convolutions: lanes of a vector on processors, patches on GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oclgen.families import FAMILIES, valid_configs
from oclgen.families.depthwise.guessed import MOST_VECTORS, gpu_patches
from oclgen.problem import DIRECTIONS, ConvProblem, Direction
from tests.oclgen.test_guesses import CPU

LAYER = ConvProblem(2, 30, 9, 9, 30, 3, 3, pad_h=1, pad_w=1, groups=30, layout="nhwc")


def first_guess(layer: ConvProblem) -> Any:
    family = "depthwise_weights" if layer.direction == "bwd_weights" else "depthwise"
    return next(valid_configs(FAMILIES[family], layer, CPU))


def of_channels(layer: ConvProblem, count: int) -> ConvProblem:
    return replace(layer, in_channels=count, out_channels=count, groups=count)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("channels", "vec_c"), [(3, 1), (5, 4), (12, 8), (30, 16), (32, 16)])
def test_vectors_of_channels_are_as_wide_as_a_register_or_as_there_are_channels(
    direction: Direction, channels: int, vec_c: int
) -> None:
    first = first_guess(of_channels(replace(LAYER, direction=direction), channels))
    assert (first.vec_c, first.local_c) == (vec_c, 16 if vec_c == 1 else 1)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_work_group_has_more_than_one_patch_of_a_plane(direction: Direction) -> None:
    assert first_guess(replace(LAYER, direction=direction, layout="nchw")).local_size == 16


@pytest.mark.parametrize(
    ("size", "patch"), [(7, (7, 7)), (8, (4, 8)), (13, (7, 7)), (20, (5, 5)), (32, (4, 8))]
)
def test_patches_of_few_channels_fit_the_image(size: int, patch: tuple[int, int]) -> None:
    first = first_guess(of_channels(replace(LAYER, height=size, width=size), 7))
    assert (first.patch_h, first.patch_w) == patch


@pytest.mark.parametrize(("size", "rows"), [(7, 7), (8, 8), (20, 10), (27, 14), (40, 10)])
def test_rows_of_a_patch_in_planes_fit_the_image(size: int, rows: int) -> None:
    layer = replace(LAYER, layout="nchw", height=size, width=size)
    assert first_guess(layer).patch_h == rows


def test_a_patch_in_planes_has_as_many_results_as_stay_in_registers() -> None:
    layer = replace(LAYER, layout="nchw", height=128, width=128)
    first = first_guess(layer)
    assert first.patch_h * first.patch_w <= MOST_VECTORS * CPU.native_float_width


@pytest.mark.parametrize("kernel", [3, 9, 11])
def test_patches_of_many_taps_are_as_small_as_a_text_allows(kernel: int) -> None:
    layer = replace(LAYER, kernel_h=kernel, kernel_w=kernel, pad_h=4, pad_w=4)
    assert first_guess(layer).vec_c == 16


@pytest.mark.parametrize(("channels", "rows"), [(144, 4), (512, 1), (2048, 1)])
def test_pixels_that_share_few_sets_of_the_cache_are_met_row_by_row(
    channels: int, rows: int
) -> None:
    layer = ConvProblem(
        1, channels, 14, 14, channels, 3, 3, pad_h=1, pad_w=1, groups=channels, layout="nhwc",
        dtype="bf16", direction="bwd_weights",
    )  # fmt: skip
    assert first_guess(layer).patch_h == rows


@pytest.mark.parametrize(("units", "rows"), [(2, 28), (4, 14), (16, 3)])
def test_rows_of_a_work_item_leave_each_core_some_work_groups(units: int, rows: int) -> None:
    layer = of_channels(replace(LAYER, height=28, width=28), 128)
    found: Any = FAMILIES["depthwise"].guesses(layer, replace(CPU, compute_units=units))
    guess = next(iter(found))
    assert guess.patch_h == rows


def test_rows_that_share_few_sets_of_the_cache_are_few() -> None:
    layer = ConvProblem(
        3, 64, 32, 32, 64, 1, 1, 2, 2, groups=64, layout="nhwc", direction="bwd_data"
    )
    assert first_guess(layer).patch_h <= 4


@pytest.mark.parametrize(("channels", "split"), [(32, 4), (1024, 1), (16384, 8)])
def test_planes_of_a_gradient_of_weights_are_as_many_as_give_cores_work(
    channels: int, split: int
) -> None:
    layer = of_channels(replace(LAYER, direction="bwd_weights"), channels)
    limits = replace(CPU, compute_units=2)
    first = next(valid_configs(FAMILIES["depthwise_weights"], layer, limits))
    assert first.split == split


@pytest.mark.parametrize(
    ("size", "kernel", "patch"),
    [(14, 3, (1, 8, 2)), (56, 3, (1, 2, 2)), (14, 5, (1, 8, 2)), (56, 5, (2, 2, 2))],
)
def test_strided_words_have_a_whole_short_row_or_the_smallest_window_on_a_gpu(
    size: int, kernel: int, patch: tuple[int, int, int]
) -> None:
    layer = ConvProblem(
        2, 32, size, size, 32, kernel, kernel, 2, 2, kernel // 2, kernel // 2,
        groups=32, dtype="fp16", layout="nhwc",
    )  # fmt: skip
    assert gpu_patches(layer) == [patch]
    assert all(vec == 1 for *_, vec in gpu_patches(replace(layer, dtype="fp32")))
    assert len(gpu_patches(replace(layer, stride_h=1, stride_w=1))) > 1
