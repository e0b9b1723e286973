"""Gradients of weights in channels_last with input channels in lanes, on every device."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from oclgen.families.conv import conv_pixels_weights
from oclgen.families.gemm.gemm_pairs import INSTRUCTION
from oclgen.limits import Limits
from oclgen.opencl.device import Device
from oclgen.opencl.probe import TILES
from oclgen.problem import ConvProblem
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.channels_last import difference
from tests.oclgen.conv_cases import SHAPES, check_sums, label

CPU = Limits("cpu", 2**15, 4096, (4096,) * 3, 2**31, 2**34, 8, 8)
LAYER = ConvProblem(4, 40, 14, 14, 24, 3, 3, 2, 2, 1, 1, direction="bwd_weights", layout="nhwc")
CHANGES: dict[str, Any] = {
    "item_k": 2, "vec": 4, "vecs": 2, "loop_k": 2, "tile": 16, "split": 3,
}  # fmt: skip
EVERY_SHAPE = tuple(
    replace(shape, direction="bwd_weights", layout="nhwc")
    for shape in (
        *SHAPES,
        # rows longer than a tile, whose ends leave out taps
        ConvProblem(2, 19, 3, 70, 11, 3, 5, pad_h=1, pad_w=2),
        # one row of all pixels, and groups
        ConvProblem(2, 18, 9, 8, 7, 1, 1),
        ConvProblem(2, 24, 7, 9, 15, 3, 2, 1, 2, 1, 1, groups=3),
    )
    if shape.in_channels > shape.groups
)


def check(device: Device, problem: ConvProblem, config: conv_pixels_weights.Config) -> None:
    """Compare with float64 what the family computes; it must be able to."""
    assert config.why_not(problem, device.limits) is None
    check_sums(device, problem, Variant(conv_pixels_weights.NAME, config))


def test_every_parameter_changes_the_text() -> None:
    base = conv_pixels_weights.DEFAULT
    assert set(CHANGES) == {field.name for field in fields(base)}
    before = [one.source for one in conv_pixels_weights.plan(LAYER, base).launches]
    for parameter, value in CHANGES.items():
        plan = conv_pixels_weights.plan(LAYER, replace(base, **{parameter: value}))
        assert [one.source for one in plan.launches] != before, parameter


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"vec": 16, "vecs": 3}, ("vec=16", "vecs=3", "40")),
        ({"item_k": 25}, ("item_k=25", "24")),
        ({"item_k": 6, "vecs": 2}, ("item_k=6", "36", "32")),
        ({"item_k": 5, "vec": 16, "loop_k": 300}, ("loop_k=300", "288000", "262144")),
        ({"split": 29}, ("split=29", "28 rows")),
    ],
)
def test_refusals_name_the_numbers(changes: dict[str, int], named: tuple[str, ...]) -> None:
    reason = replace(conv_pixels_weights.DEFAULT, **changes).why_not(LAYER, CPU)
    assert reason is not None
    for name in named:
        assert name in reason


def test_only_pixels_of_several_channels_are_served() -> None:
    assert conv_pixels_weights.serves(LAYER)
    for other in (
        replace(LAYER, layout="nchw"),
        replace(LAYER, direction="fwd"),
        replace(LAYER, in_channels=24, groups=24),
    ):
        assert not conv_pixels_weights.serves(other)
    assert conv_pixels_weights.guesses(LAYER, replace(CPU, kind="gpu")) == []
    half = replace(LAYER, dtype="bf16")
    assert conv_pixels_weights.guesses(half, CPU)
    for instruction in (TILES, INSTRUCTION):
        able = replace(CPU, instructions=frozenset({instruction}))
        dense = replace(half, stride_h=1, stride_w=1)
        assert conv_pixels_weights.guesses(dense, able) == []
        # of a strided layer, and of few output channels, pairs pack more than they save
        few = replace(dense, out_channels=7)
        for sparse in (half, few):
            assert bool(conv_pixels_weights.guesses(sparse, able)) == (instruction == INSTRUCTION)
        assert (
            conv_pixels_weights.guesses(replace(half, in_channels=CPU.native_float_width - 1), able)
            == []
        )
        assert conv_pixels_weights.guesses(LAYER, able)
    assert len(space_of(conv_pixels_weights.NAME, LAYER, CPU)) >= 50
    assert len(seeds_of(conv_pixels_weights.NAME, LAYER, CPU)) >= 3


def test_more_cores_have_more_work_items() -> None:
    """Blocks of output channels are shared out first, then rows: planes cost their sum."""
    one, few, many = (
        conv_pixels_weights.guesses(LAYER, replace(CPU, compute_units=units))[0]
        for units in (1, 2, 64)
    )
    assert one.split == few.split == 1
    assert one.loop_k * one.item_k >= LAYER.out_channels
    assert many.loop_k == 1 and many.split > 1


@pytest.mark.parametrize("problem", EVERY_SHAPE, ids=label)
def test_every_shape(device: Device, problem: ConvProblem) -> None:
    """The default, and the first guess with weights of other strides, also in channels_last."""
    check(device, problem, conv_pixels_weights.DEFAULT)
    limits = replace(device.limits, kind="cpu", compute_units=4)
    found = conv_pixels_weights.guesses(problem, limits)
    guess = next(one for one in found if one.why_not(problem, device.limits) is None)
    for config in (guess, replace(guess, split=2)):
        assert not difference(device, problem, conv_pixels_weights.plan(problem, config))


@pytest.mark.parametrize("problem", EVERY_SHAPE[-3:], ids=label)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_other_configs(device: Device, problem: ConvProblem, dtype: str) -> None:
    few = {**CHANGES, "vecs": 1, "split": 2}
    for changes in (few, {**few, "split": 1, "tile": 64}, {"item_k": 5, "loop_k": 4, "tile": 7}):
        config = replace(conv_pixels_weights.DEFAULT, **changes)
        check(device, replace(problem, dtype=dtype), config)
    free = replace(problem, dtype=dtype, free=frozenset({"batch"}))
    check(device, free, replace(conv_pixels_weights.DEFAULT, **few))
