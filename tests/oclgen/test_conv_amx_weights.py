"""Gradients of weights in the tiles of AMX: what the family says, packs and computes on CPUs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from oclgen.families.conv import conv_amx_weights
from oclgen.families.conv.conv_amx_weights import INPUTS, OUTPUTS, merged
from oclgen.families.conv.correlation import windows
from oclgen.families.conv.flat_positions import positions_of
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS
from oclgen.limits import Limits
from oclgen.opencl.device import Device
from oclgen.opencl.probe import TILES
from oclgen.plan import Plan
from oclgen.problem import LAYOUTS, ConvProblem
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.conv_cases import SHAPES, check_sums, label
from tests.oclgen.test_conv_amx import XEON

LAYER = ConvProblem(
    8, 64, 28, 28, 128, 3, 3, 2, 2, 1, 1, dtype="bf16", direction="bwd_weights"
)  # fmt: skip
CHANGES: dict[str, Any] = {
    "item_m": 32, "item_n": 32, "loop_m": 2, "inputs": 2, "steps": 2, "rows_together": True,
    "spread": True, "split": 2,
}  # fmt: skip
"""Another value of every parameter."""
EVERY_SHAPE = tuple(
    shape
    for shape in (
        *SHAPES,
        # channels of tiles and more, and a row of taps that leaves a register of tiles over
        ConvProblem(2, 34, 5, 37, 70, 3, 3, pad_h=1, pad_w=1),
        # more taps than a square has rows
        ConvProblem(1, 18, 9, 8, 17, 5, 5, 1, 1, 2, 3),
        # channels under the taps of a row, beside strides
        ConvProblem(2, 3, 30, 31, 33, 7, 7, 2, 2, 3, 3),
        # groups of whole tiles, and pixels that no tap reads
        ConvProblem(2, 64, 6, 9, 32, 2, 1, 3, 2, groups=2),
        # groups of few channels, which share tiles
        ConvProblem(2, 24, 6, 7, 36, 3, 3, pad_h=1, pad_w=1, groups=12),
        # more padding than taps reach, in one row
        ConvProblem(3, 40, 1, 50, 24, 1, 5, 1, 2, 0, 6),
        ConvProblem(1, 5, 4, 6, 20, 1, 1, 1, 1, 1, 2),
    )
    if min(shape.in_channels, shape.out_channels) > shape.groups
)
EVERY_WAY = tuple(
    replace(shape, direction="bwd_weights", layout=layout, dtype="bf16")
    for shape in EVERY_SHAPE
    for layout in LAYOUTS
)
CONFIGS = (
    replace(conv_amx_weights.DEFAULT, **CHANGES | {"split": 1}),
    replace(conv_amx_weights.DEFAULT, item_n=48, inputs=2, rows_together=True, steps=1),
    replace(conv_amx_weights.DEFAULT, item_m=48, rows_together=True, split=2),
    replace(conv_amx_weights.DEFAULT, spread=True, split=2),
)


def check(device: Device, problem: ConvProblem, config: conv_amx_weights.Config) -> None:
    """Compare with float64 what the family computes; it must be able to."""
    assert config.why_not(problem, device.limits) is None
    check_sums(device, problem, Variant(conv_amx_weights.NAME, config))


@pytest.mark.parametrize("problem", EVERY_WAY[::5], ids=label)
def test_fp16(tiled: Device, problem: ConvProblem) -> None:
    if PRODUCTS["fp16"] not in tiled.limits.instructions:
        pytest.skip(f"{tiled.name} has no {PRODUCTS['fp16']}")
    check(tiled, replace(problem, dtype="fp16"), conv_amx_weights.DEFAULT)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_parameter_changes_the_text(layout: Any) -> None:
    problem, base = replace(LAYER, layout=layout), conv_amx_weights.DEFAULT
    assert set(CHANGES) == {field.name for field in fields(base)}
    before = [one.source for one in conv_amx_weights.plan(problem, base).launches]
    for parameter, value in CHANGES.items():
        plan = conv_amx_weights.plan(problem, replace(base, **{parameter: value}))
        assert [one.source for one in plan.launches] != before, parameter


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"item_n": 24}, ("item_n=24", "16")),
        ({"item_m": 48, "item_n": 32}, ("item_m=48", "11 tiles", "8")),
        ({"loop_m": 16, "inputs": 8}, ("loop_m=16", "inputs=8", "384", "192")),
        ({"split": 99}, ("split=99", "56 steps")),
    ],
)
def test_refusals_name_the_numbers(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    reason = replace(conv_amx_weights.DEFAULT, **changes).why_not(LAYER, XEON)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_only_processors_that_showed_the_instruction_are_served() -> None:
    assert TILES in (conv_amx_weights.DEFAULT.why_not(LAYER, Limits()) or "")
    assert not conv_amx_weights.serves(replace(LAYER, dtype="fp32"))
    assert not conv_amx_weights.serves(replace(LAYER, direction="fwd"))
    assert not conv_amx_weights.serves(replace(LAYER, groups=64))
    assert conv_amx_weights.guesses(LAYER, Limits()) == []
    assert len(space_of("conv_amx_weights", LAYER, Limits())) == 0
    assert len(space_of("conv_amx_weights", LAYER, XEON)) >= 8
    assert len(seeds_of("conv_amx_weights", LAYER, XEON)) >= 3


def test_groups_of_few_channels_share_tiles() -> None:
    few = replace(LAYER, in_channels=96, out_channels=96)
    assert merged(replace(few, groups=48)).groups == 6
    assert merged(replace(few, groups=3)).groups == 3


def test_few_channels_become_columns_under_taps() -> None:
    stem = replace(LAYER, in_channels=3, kernel_h=7, kernel_w=7, pad_h=3, pad_w=3)
    assert all(guess.spread for guess in conv_amx_weights.guesses(stem, XEON))
    assert not any(guess.spread for guess in conv_amx_weights.guesses(LAYER, XEON))


def test_many_cores_share_positions() -> None:
    few = replace(LAYER, in_channels=32, out_channels=32, height=56, width=56)
    assert conv_amx_weights.guesses(few, XEON)[0].split > 1
    alone = conv_amx_weights.guesses(few, replace(XEON, compute_units=1))[0]
    assert alone.split < conv_amx_weights.guesses(few, XEON)[0].split


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("problem", EVERY_SHAPE, ids=label)
def test_a_tap_reads_at_one_distance_from_every_result(problem: ConvProblem, spread: bool) -> None:
    """Every result meets the element that it should, or zero; planes are laid out as packed."""
    part = windows(problem)
    line, rows, cols = positions_of(part, spread), part.rows, part.cols
    assert 2 * line.half >= part.batch * part.results

    def element(tap: tuple[int, int], image: int, h: int, w: int) -> tuple[int, int, int] | None:
        plane, distance = line.taps[tap[0] * len(line.cols.taps) + (0 if spread else tap[1])]
        at = (image * line.rows.positions + h) * line.cols.positions + w + distance
        assert at % line.half + line.half * (at >= line.half) < line.half + line.words
        row, column = divmod(at, line.cols.positions)
        origin_h = line.rows.origins[plane // len(line.cols.origins)]
        origin_w = line.cols.origins[plane % len(line.cols.origins)]
        read_h = row % line.rows.positions * rows.step + origin_h
        read_w = column * cols.step + origin_w + (tap[1] * cols.tap_step if spread else 0)
        inside = 0 <= read_h < rows.read and 0 <= read_w < cols.read
        stored = inside and row // line.rows.positions < part.batch
        return (row // line.rows.positions, read_h, read_w) if stored else None

    for tap in np.ndindex(rows.taps, cols.taps):
        for image, h, w in np.ndindex(part.batch, rows.results, cols.results):
            read_h = h * rows.step + tap[0] * rows.tap_step + rows.origin
            read_w = w * cols.step + tap[1] * cols.tap_step + cols.origin
            inside = 0 <= read_h < rows.read and 0 <= read_w < cols.read
            want = (image, read_h, read_w) if inside else None
            assert element((tap[0], tap[1]), image, h, w) == want


@pytest.mark.parametrize("layout", LAYOUTS)
def test_words_hold_a_position_and_its_pair(device: Device, layout: Any) -> None:
    """All words of channels are written, and gaps between rows are zero."""
    problem = ConvProblem(
        3, 18, 5, 21, 17, 3, 3, 1, 1, 1, 1, dtype="bf16", direction="bwd_weights", layout=layout
    )
    config = conv_amx_weights.DEFAULT
    line = positions_of(windows(problem), spread=False)
    spaces = dict(config.needs(problem).workspaces)
    packs = conv_amx_weights.plan(problem, config).launches[:2]
    for launch, role, packed in zip(packs, "yx", (OUTPUTS, INPUTS), strict=True):
        shape = problem.buffers[role]
        stored = np.arange(1, np.prod(shape) + 1, dtype=np.uint16).reshape(shape)
        out = np.full(spaces[packed] // 4, 0xFFFFFFFF, np.uint32)
        buffers = {role: device.upload(stored), packed: device.upload(out)}
        device.prepare(Plan((launch,)), buffers).run()
        got = device.download(buffers[packed], out)

        planes = stored if layout == "nchw" else stored.transpose(0, 3, 1, 2)
        pad = 1 if role == "x" else 0
        height, width = line.rows.positions, line.cols.positions
        after = ((0, 0), (0, 0), (pad, height - 5 - pad), (pad, width - 21 - pad))
        flat = np.pad(planes, after).transpose(1, 0, 2, 3).reshape(planes.shape[1], -1)
        words = line.words if role == "x" else line.half
        full = np.zeros((32, line.half + words), np.uint32)
        full[: len(flat), : flat.shape[1]] = flat[:, : full.shape[1]]
        want = full[:, :words] | full[:, line.half :] << 16
        tiles = want.reshape(2, 16, words // 16, 16).transpose(0, 2, 1, 3)
        found = got.reshape(tiles.shape if role == "y" else tiles.swapaxes(2, 3).shape)
        found = found if role == "y" else found.swapaxes(2, 3)
        # what fills up the second tile is of no use
        assert np.array_equal(found[0], tiles[0])
        assert np.array_equal(found[1, :, : len(flat) - 16], tiles[1, :, : len(flat) - 16])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("problem", EVERY_WAY, ids=label)
def test_every_shape(tiled: Device, problem: ConvProblem) -> None:
    check(tiled, problem, conv_amx_weights.DEFAULT)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("problem", EVERY_WAY, ids=label)
def test_other_configs(
    tiled: Device, problem: ConvProblem, config: conv_amx_weights.Config
) -> None:
    if config.split > positions_of(windows(problem), config.spread).half // 16:
        config = replace(config, split=1)
    if config.why_not(problem, tiled.limits):
        config = replace(config, rows_together=False)
    check(tiled, problem, config)


def test_weights_in_channels_last_are_written_where_their_strides_say(tiled: Device) -> None:
    problem = ConvProblem(
        1, 21, 5, 6, 19, 3, 2, dtype="bf16", direction="bwd_weights", layout="nhwc"
    )
    ones = {role: np.full(problem.buffers[role], 0x3F80, np.uint16) for role in "xy"}
    out = np.zeros((19, 3, 2, 21), np.uint16)
    buffers = {role: tiled.upload(array) for role, array in ones.items()}
    buffers["w"] = tiled.upload(out)
    strides = dict(zip((f"w_stride_{i}" for i in range(4)), (126, 1, 42, 21), strict=True))
    plan = conv_amx_weights.plan(problem, conv_amx_weights.DEFAULT)
    tiled.prepare(plan, buffers, {}, strides).run()
    # a weight is the sum of 3 x 5 products of ones
    assert (tiled.download(buffers["w"], out) == 0x4170).all()
