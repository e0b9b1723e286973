"""Convolutions in the tiles of AMX: what the family says anywhere, packs and computes on CPUs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from oclgen.families.conv import conv_amx, conv_pairs
from oclgen.families.conv.conv_amx import merged
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS
from oclgen.families.gemm.gemm_pairs import INSTRUCTION
from oclgen.limits import KIB, Limits
from oclgen.opencl.device import Device
from oclgen.opencl.probe import TILES
from oclgen.problem import LAYOUTS, ConvProblem, Volume
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.conv_cases import SHAPES, VOLUMES, check_sums, label, of_volume

XEON = Limits(
    "cpu", 32 * KIB, 4096, (4096, 4096, 4096), 2**32, 2**34, 16, 16,
    instructions=frozenset({TILES}),
)  # fmt: skip
LAYER = ConvProblem(8, 64, 28, 28, 128, 3, 3, 2, 2, 1, 1, dtype="bf16")
CHANGES: dict[str, Any] = {"strips": 2, "vecs": 2, "loop_m": 3, "channels_fastest": False}
EVERY_WAY = tuple(
    replace(shape, direction=direction, layout=layout, dtype="bf16")
    for shape in (
        *SHAPES,
        # rows of two tiles, whole steps of channels and a narrower one, an odd number of them
        ConvProblem(2, 35, 5, 37, 70, 3, 3, pad_h=1, pad_w=1),
        # a row of taps whose channels fill one tile, beside strides
        ConvProblem(1, 3, 12, 33, 10, 7, 7, 2, 2, 3, 3),
        # groups of pixels that are read as they lie
        ConvProblem(2, 8, 9, 18, 24, 3, 3, groups=2),
        ConvProblem(2, 66, 4, 8, 34, 1, 1),
    )
    for direction in ("fwd", "bwd_data")
    for layout in LAYOUTS
    if min(shape.in_channels, shape.out_channels) > shape.groups
)


def check(device: Device, problem: ConvProblem, config: conv_amx.Config) -> None:
    """Compare with float64 what the family computes; it must be able to."""
    assert config.why_not(problem, device.limits) is None
    check_sums(device, problem, Variant(conv_amx.NAME, config))


@pytest.mark.parametrize("problem", EVERY_WAY[::5], ids=label)
def test_fp16(tiled: Device, problem: ConvProblem) -> None:
    if PRODUCTS["fp16"] not in tiled.limits.instructions:
        pytest.skip(f"{tiled.name} has no {PRODUCTS['fp16']}")
    check(tiled, replace(problem, dtype="fp16"), conv_amx.DEFAULT)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_parameter_changes_the_text(layout: Any) -> None:
    problem, base = replace(LAYER, layout=layout), conv_amx.DEFAULT
    assert set(CHANGES) == {field.name for field in fields(base)}
    before = [one.source for one in conv_amx.plan(problem, base).launches]
    for parameter, value in CHANGES.items():
        plan = conv_amx.plan(problem, replace(base, **{parameter: value}))
        assert [one.source for one in plan.launches] != before, parameter


def test_refusals_name_the_numbers() -> None:
    assert TILES in (conv_amx.DEFAULT.why_not(LAYER, Limits()) or "")
    reason = replace(conv_amx.DEFAULT, strips=3, vecs=2).why_not(LAYER, XEON)
    assert reason is not None and "strips=3" in reason and "11 tiles" in reason and "8" in reason


def test_only_processors_that_showed_the_instruction_are_served() -> None:
    assert not conv_amx.serves(replace(LAYER, dtype="fp32"))
    assert not conv_amx.serves(replace(LAYER, direction="bwd_weights"))
    assert conv_amx.guesses(LAYER, Limits()) == []
    assert len(space_of("conv_amx", LAYER, Limits())) == 0
    assert len(space_of("conv_amx", LAYER, XEON)) >= 8
    assert len(seeds_of("conv_amx", LAYER, XEON)) >= 3


def test_depthwise_layers_are_not_served() -> None:
    assert conv_amx.serves(replace(LAYER, groups=32))
    assert not conv_amx.serves(replace(LAYER, groups=64))
    assert conv_amx.serves(replace(LAYER, in_channels=128, out_channels=64, groups=64))


def test_pairs_leave_groups_of_few_channels_to_tiles() -> None:
    able = replace(XEON, instructions=XEON.instructions | {INSTRUCTION})
    few, many = replace(LAYER, groups=32), replace(LAYER, groups=2)
    assert conv_pairs.guesses(many, able) and not conv_pairs.guesses(few, able)
    pairs_alone = replace(able, instructions=frozenset({INSTRUCTION}))
    assert conv_pairs.guesses(few, pairs_alone)


def test_groups_of_few_channels_share_tiles() -> None:
    few = replace(LAYER, in_channels=96, out_channels=96, layout="nhwc")
    assert {merged(replace(few, groups=groups)).groups for groups in (48, 32)} == {6, 8}
    assert merged(replace(few, groups=2)).groups == 2
    inside = replace(few, groups=48, pad_h=0, pad_w=0, width=29)
    names = [one.kernel for one in conv_amx.plan(inside, conv_amx.DEFAULT).launches]
    assert names == ["pack_groups", "conv_amx"]


@pytest.mark.parametrize("direction", ("fwd", "bwd_data"))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_shared_tiles(tiled: Device, layout: Any, direction: Any) -> None:
    for shape in (
        ConvProblem(2, 24, 6, 7, 36, 3, 3, 1, 1, 1, 1, groups=12),
        ConvProblem(2, 12, 6, 7, 24, 3, 2, 2, 1, 1, 0, groups=4),
        ConvProblem(1, 40, 5, 9, 24, 1, 1, groups=8),
        ConvProblem(1, 24, 5, 9, 8, 3, 3, pad_h=1, pad_w=1, groups=8),
    ):
        problem = replace(shape, dtype="bf16", layout=layout, direction=direction)
        assert merged(problem).groups < problem.groups
        check(tiled, problem, conv_amx.DEFAULT)
        check(tiled, problem, replace(conv_amx.DEFAULT, strips=2, vecs=2))


def test_pixels_without_padding_are_read_as_they_lie() -> None:
    inside = replace(LAYER, layout="nhwc", pad_h=0, pad_w=0, width=29)
    names = [one.kernel for one in conv_amx.plan(inside, conv_amx.DEFAULT).launches]
    assert "conv_amx_images" not in names
    for other in (
        replace(inside, pad_w=1),
        replace(inside, layout="nchw"),
        replace(inside, width=43),
    ):
        names = [one.kernel for one in conv_amx.plan(other, conv_amx.DEFAULT).launches]
        assert "conv_amx_images" in names


@pytest.mark.parametrize("problem", EVERY_WAY, ids=label)
def test_every_shape(tiled: Device, problem: ConvProblem) -> None:
    check(tiled, problem, conv_amx.DEFAULT)


@pytest.mark.parametrize("problem", EVERY_WAY[::5], ids=label)
def test_other_configs(tiled: Device, problem: ConvProblem) -> None:
    for changes in (CHANGES, {"vecs": 3}, {"strips": 3, "loop_m": 2}):
        check(tiled, problem, replace(conv_amx.DEFAULT, **changes))


@pytest.mark.parametrize("number", range(len(VOLUMES)))
@pytest.mark.parametrize("direction", ["fwd", "bwd_data"])
def test_volumes(tiled: Device, number: int, direction: Any) -> None:
    problem = replace(of_volume(number, direction), dtype="bf16")
    check(tiled, problem, conv_amx.DEFAULT)
    check(tiled, problem, replace(conv_amx.DEFAULT, strips=3, loop_m=2))


def test_volumes_without_padding_are_read_as_they_lie() -> None:
    flat = ConvProblem(6, 24, 8, 8, 40, 1, 1, dtype="bf16", layout="nhwc")
    for pad, packs in ((0, False), (1, True)):
        volume = Volume(4, 2, 1, pad)
        problem = replace(flat, batch=2 * volume.windows, volume=volume)
        names = [one.kernel for one in conv_amx.plan(problem, conv_amx.DEFAULT).launches]
        assert ("conv_amx_images" in names) == packs


@pytest.mark.parametrize("channels", [1, 3, 9, 15])
@pytest.mark.parametrize("direction", ["fwd", "bwd_data"])
def test_pixels_of_few_channels_are_stored_over_each_other(
    tiled: Device, channels: int, direction: Any
) -> None:
    """Whole vectors reach behind a pixel, but never behind a row's last one."""
    into, out = (32, channels) if direction == "fwd" else (channels, 32)
    shape = ConvProblem(2, into, 5, 21, out, 3, 3, 1, 1, 1, 1, dtype="bf16", layout="nhwc")
    check(tiled, replace(shape, direction=direction), conv_amx.DEFAULT)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_epilogues(tiled: Device, layout: Any) -> None:
    problem = replace(
        SHAPES[7], dtype="bf16", layout=layout, bias=True, activation="gelu", residual=True
    )
    check(tiled, problem, conv_amx.DEFAULT)
