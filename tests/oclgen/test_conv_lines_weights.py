"""Gradients of weights of single taps in planes with pixels in lanes, on every device."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from oclgen.families.conv import conv_lines_weights
from oclgen.families.gemm.gemm_pairs import INSTRUCTION
from oclgen.limits import Limits
from oclgen.opencl.device import Device
from oclgen.opencl.probe import TILES
from oclgen.problem import ConvProblem
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.conv_cases import check_sums, label

CPU = Limits("cpu", 2**15, 4096, (4096,) * 3, 2**31, 2**34, 8, 8)
LAYER = ConvProblem(4, 40, 20, 20, 24, 1, 1, direction="bwd_weights")
CHANGES: dict[str, Any] = {
    "item_k": 2, "item_c": 3, "vec": 8, "loop_k": 2, "loop_c": 2, "tile": 32, "split": 3,
}  # fmt: skip
SHAPES = tuple(
    replace(shape, direction="bwd_weights")
    for shape in (
        ConvProblem(3, 5, 16, 17, 7, 1, 1),
        ConvProblem(2, 9, 17, 16, 11, 1, 1),
        ConvProblem(1, 3, 1, 263, 40, 1, 1),
        ConvProblem(2, 1, 1, 257, 1, 1, 1),
        ConvProblem(3, 34, 16, 16, 19, 1, 1),
    )
)


def check(device: Device, problem: ConvProblem, config: conv_lines_weights.Config) -> None:
    """Compare with float64 what the family computes; it must be able to."""
    assert config.why_not(problem, device.limits) is None
    check_sums(device, problem, Variant(conv_lines_weights.NAME, config))


def test_every_parameter_changes_the_text() -> None:
    base = conv_lines_weights.DEFAULT
    assert set(CHANGES) == {field.name for field in fields(base)}
    before = [one.source for one in conv_lines_weights.plan(LAYER, base).launches]
    for parameter, value in CHANGES.items():
        plan = conv_lines_weights.plan(LAYER, replace(base, **{parameter: value}))
        assert [one.source for one in plan.launches] != before, parameter


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tile": 30}, ("tile=30", "vec=4")),
        ({"item_k": 25}, ("item_k=25", "24")),
        ({"item_c": 41}, ("item_c=41", "40")),
        ({"item_k": 6, "item_c": 6}, ("item_k=6 item_c=6", "36", "32")),
        ({"item_k": 4, "loop_k": 90, "loop_c": 90}, ("loop_k=90", "518400", "262144")),
        ({"split": 5}, ("split=5", "4 images")),
    ],
)
def test_refusals_name_the_numbers(changes: dict[str, int], named: tuple[str, ...]) -> None:
    reason = replace(conv_lines_weights.DEFAULT, **changes).why_not(LAYER, CPU)
    assert reason is not None
    for name in named:
        assert name in reason


def test_single_taps_of_planes_are_served() -> None:
    assert conv_lines_weights.serves(LAYER)
    for other in (
        replace(LAYER, layout="nhwc"),
        replace(LAYER, direction="fwd"),
        replace(LAYER, kernel_w=3),
        replace(LAYER, stride_h=2),
        replace(LAYER, pad_w=1),
        replace(LAYER, groups=2),
        replace(LAYER, width=12),
        replace(LAYER, in_channels=65),
        replace(LAYER, out_channels=19),
    ):
        assert not conv_lines_weights.serves(other)


def test_processors_that_multiply_16_bits_are_left_to_others() -> None:
    half = replace(LAYER, dtype="bf16")
    assert conv_lines_weights.guesses(LAYER, CPU)
    assert conv_lines_weights.guesses(half, CPU)
    assert not conv_lines_weights.guesses(LAYER, replace(CPU, kind="gpu"))
    for instruction in (TILES, INSTRUCTION):
        able = replace(CPU, instructions=frozenset({instruction}))
        assert not conv_lines_weights.guesses(half, able)
        assert conv_lines_weights.guesses(LAYER, able)
    assert len(space_of(conv_lines_weights.NAME, LAYER, CPU)) >= 50
    assert len(seeds_of(conv_lines_weights.NAME, LAYER, CPU)) >= 3


def test_more_cores_have_more_work_items() -> None:
    one, many = (
        conv_lines_weights.guesses(LAYER, replace(CPU, compute_units=units))[0] for units in (1, 64)
    )
    assert one.split == 1
    assert one.loop_k * one.item_k >= LAYER.out_channels
    assert many.loop_k == 1
    assert many.split > 1


@pytest.mark.parametrize("problem", SHAPES, ids=label)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_every_shape(device: Device, problem: ConvProblem, dtype: str) -> None:
    problem = replace(problem, dtype=dtype)
    check(device, problem, conv_lines_weights.DEFAULT)
    few = {
        **CHANGES,
        "item_k": min(2, problem.out_channels),
        "item_c": min(3, problem.in_channels),
        "split": problem.batch,
    }
    changed = replace(conv_lines_weights.DEFAULT, **few)
    check(device, problem, changed)
    check(device, replace(problem, free=frozenset({"batch"})), changed)


@pytest.mark.parametrize("units", [1, 4])
def test_guesses(device: Device, units: int) -> None:
    limits = replace(device.limits, kind="cpu", compute_units=units)
    for problem in (SHAPES[1], SHAPES[4]):
        for config in conv_lines_weights.guesses(problem, limits):
            check(device, problem, config)
