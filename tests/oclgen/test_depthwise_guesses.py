"""First guesses of depthwise convolutions on processors: what the lanes of a vector are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oclgen.families import FAMILIES, valid_configs
from oclgen.families.depthwise.depthwise import HEIGHTS
from oclgen.families.depthwise.patches import fitting
from oclgen.problem import DIRECTIONS, ConvProblem, Direction
from tests.oclgen.test_guesses import CPU

LAYER = ConvProblem(2, 30, 9, 9, 30, 3, 3, pad_h=1, pad_w=1, groups=30, layout="nhwc")


def first_guess(layer: ConvProblem) -> Any:
    family = "depthwise_weights" if layer.direction == "bwd_weights" else "depthwise"
    return next(valid_configs(FAMILIES[family], layer, CPU))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_channels_that_no_vector_divides_are_lanes_of_a_work_group(direction: Direction) -> None:
    layer = replace(LAYER, direction=direction)
    first = first_guess(layer)
    assert (first.vec_c, first.local_c) == (1, 16)
    even = first_guess(replace(layer, in_channels=32, out_channels=32, groups=32))
    assert (even.vec_c, even.local_c) == (16, 1)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_work_group_has_more_than_one_patch_of_a_plane(direction: Direction) -> None:
    assert first_guess(replace(LAYER, direction=direction, layout="nchw")).local_size == 16


@pytest.mark.parametrize(
    ("size", "rows"), [(7, 7), (9, 5), (10, 5), (13, 7), (14, 7), (16, 4), (17, 6), (28, 7)]
)
@pytest.mark.parametrize("channels", [30, 32])
def test_the_last_patch_of_a_column_lacks_one_row_at_most(
    size: int, rows: int, channels: int
) -> None:
    """Where it lacks more, compilers make loops that take up to ten times as long."""
    layer = replace(
        LAYER, in_channels=channels, out_channels=channels, groups=channels, height=size, width=size
    )
    assert first_guess(layer).patch_h == rows
    assert -size % rows <= 1


@pytest.mark.parametrize(("channels", "rows"), [(128, 7), (512, 4), (2048, 4)])
def test_a_window_whose_pixels_share_few_sets_of_the_cache_is_small(
    channels: int, rows: int
) -> None:
    layer = ConvProblem(1, channels, 14, 14, channels, 1, 1, groups=channels, layout="nhwc")
    assert first_guess(layer).patch_h == rows


@pytest.mark.parametrize(("results", "second"), [(14, 2), (9, 3), (28, 4), (17, 3), (20, 5)])
def test_the_second_guess_makes_all_patches_whole_where_one_does(results: int, second: int) -> None:
    assert fitting(results, HEIGHTS)[1] == second
