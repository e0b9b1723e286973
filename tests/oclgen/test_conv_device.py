"""The convolution families on every OpenCL device, against the float64 reference."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oclgen.families import FAMILIES
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import DIRECTIONS, LAYOUTS, ConvProblem, Memory
from search_spaces.space import Space, space_of
from tests.oclgen.conv_cases import (
    DEPTHWISE_PIXELS,
    DEPTHWISE_SHAPES,
    EPILOGUES,
    EVERY_WAY,
    HALVES,
    PIXELS,
    SHAPES,
    label,
    pairs,
    variants,
)

VARIED = (
    tuple(
        replace(shape, direction=direction)
        for shape in (SHAPES[2], *DEPTHWISE_SHAPES[1:3])
        for direction in DIRECTIONS
    )
    + DEPTHWISE_PIXELS[:6]
)


def check(device: Device, name: str, problem: ConvProblem, config: Any) -> None:
    if reason := config.why_not(problem, device.limits):
        pytest.skip(reason)
    # a best time of 0 makes it stop after the one verified run
    result = Bench(device, problem).measure(FAMILIES[name].plan(problem, config), limit_ms=0.0)
    assert result.ok, f"{problem.key()} {config}: {result.invalidity}: {result.reason}"


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("name", "problem"),
    pairs((*EVERY_WAY, *PIXELS, *DEPTHWISE_PIXELS, *EPILOGUES, *HALVES)),
    ids=label,
)
def test_the_default(device: Device, name: str, problem: ConvProblem) -> None:
    check(device, name, problem, FAMILIES[name].DEFAULT)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "problem", "config"),
    [
        (name, problem, config)
        for name, problem in pairs(VARIED)
        if "as_gemm" not in name
        for config in variants(name, problem)
    ],
    ids=label,
)
def test_variants(device: Device, name: str, problem: ConvProblem, config: Any) -> None:
    check(device, name, problem, config)


@pytest.mark.parametrize("images", [3, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.sampled(1)
def test_the_last_images_of_a_batch_are_stored_once(
    device: Device, images: int, layout: Memory
) -> None:
    """Of seven images three a work-item: the last one begins with two that the one before has."""
    problem = ConvProblem(7, 5, 4, 5, 9, 3, 3, 2, 1, 1, bias=True, residual=True, layout=layout)
    config = replace(FAMILIES["conv_register"].DEFAULT, images=images, item_x=3)
    check(device, "conv_register", problem, config)


@pytest.mark.parametrize("depth", [3, 17])
def test_phases_of_few_taps_fill_their_last_tiles(device: Device, depth: int) -> None:
    """A phase of one tap wants more channels for that than the phase of most taps."""
    problem = ConvProblem(2, 8, 9, 9, depth, 3, 3, 2, 2, 1, 1, direction="bwd_data")
    config = replace(FAMILIES["conv_gemm"].DEFAULT, tile_k=16, buffers=2, taps_outer=False)
    check(device, "conv_gemm", problem, config)


@pytest.mark.parametrize("problem", VARIED, ids=label)
def test_random_configs(device: Device, problem: ConvProblem) -> None:
    names = [name for name, _ in pairs((problem,))]

    @settings(max_examples=2, deadline=None, derandomize=True, database=None)
    @given(st.sampled_from(names), st.data())
    def holds(name: str, data: st.DataObject) -> None:
        space = valid(device, name, problem)
        if len(space):
            row = data.draw(st.integers(0, len(space) - 1))
            check(device, name, problem, space.config(row))

    holds()


@cache
def valid(device: Device, name: str, problem: ConvProblem) -> Space:
    return space_of(name, problem, device.limits)
