"""What `conv_mma` computes on matrix units, and what it says and does around them on any device."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from oclgen.families import FAMILIES
from oclgen.families.conv import conv_mma
from oclgen.families.conv import conv_mma_operands as parts
from oclgen.families.gemm import gemm_mma
from oclgen.families.parts.strided_weights import STRIDES
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.parameters import values_of
from oclgen.problem import DIRECTIONS, LAYOUTS, ConvProblem, Direction, Memory
from search_spaces.space import seeds_of, space_of
from tests.oclgen.channels_last import difference
from tests.oclgen.conv_cases import VOLUMES, label, of_volume
from tests.oclgen.mma_emulated import emulate

HOPPER = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1,
    instructions=frozenset({"cp_async", "mma", "wgmma"}),
)  # fmt: skip
MMA = conv_mma.DEFAULT
WGMMA = replace(MMA, unit="wgmma", warps_m=4, warps_n=1, tile_k=16, stages=3)
CONFIGS = (
    replace(MMA, tile_k=16, stages=3, split_k=2),
    replace(MMA, tile_m=128, tile_n=64, warps_m=4, warps_n=1, group_m=1),
    replace(WGMMA, tile_m=64, tile_n=128, warps_n=2),
    replace(WGMMA, tile_m=128, tile_n=128, stages=2, split_k=2),
    replace(WGMMA, tile_m=64, tile_n=32, tile_k=32, stages=4, pending=1),
    replace(MMA, tile_m=128, tile_n=32, warps_m=4, warps_n=1),
)
SHAPES = (
    ConvProblem(2, 16, 7, 6, 24, 3, 3, 1, 1, 1, 1),
    ConvProblem(1, 24, 9, 8, 16, 3, 2, 2, 2, 1, 0, 1, 2),
    ConvProblem(3, 64, 5, 4, 72, 1, 1),
    ConvProblem(3, 4, 11, 8, 6, 3, 3, 2, 2, 1, 1),
    ConvProblem(1, 2, 7, 9, 3, 5, 2, 3, 1, 2, 0),
    ConvProblem(1, 3, 7, 6, 2, 1, 1, 2, 2),
    ConvProblem(1, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1),
    ConvProblem(1, 17, 5, 4, 33, 3, 3, 1, 1, 2, 2, 2, 2),
)
"""In the first three channels fill chunks of 16 bytes, which are read in place."""
GROUPED = (
    ConvProblem(2, 48, 7, 6, 96, 3, 3, 1, 1, 1, 1, groups=3),
    ConvProblem(1, 144, 6, 7, 144, 3, 3, 2, 2, 1, 1, groups=36),
    ConvProblem(2, 12, 9, 8, 18, 3, 2, 1, 2, 1, 0, 1, 2, groups=6),
    ConvProblem(1, 6, 7, 6, 12, 5, 5, 1, 1, 2, 2, groups=6),
    ConvProblem(1, 160, 5, 5, 80, 1, 1, groups=2),
)
"""Groups by themselves, some to a product, all in one product, of one channel each, wide ones."""


def case(
    number: int, direction: Direction, layout: Memory, shapes: tuple[ConvProblem, ...] = SHAPES
) -> ConvProblem:
    """Return a convolution; the dtype goes round."""
    forward = direction == "fwd"
    return replace(
        shapes[number], dtype=gemm_mma.DTYPES_SERVED[number % 3], direction=direction,
        layout=layout, bias=forward, activation="relu" if forward else "none",
    )  # fmt: skip


CASES = tuple(
    problem
    for number in range(len(SHAPES))
    for direction in DIRECTIONS
    for layout in LAYOUTS
    if conv_mma.serves(problem := case(number, direction, layout))
)


GROUPED_CASES = tuple(
    problem
    for number in range(len(GROUPED))
    for direction in DIRECTIONS
    for layout in LAYOUTS
    if conv_mma.serves(problem := case(number, direction, layout, GROUPED))
)


def case_of_volume(number: int, direction: Direction) -> ConvProblem:
    """Return a convolution of three dimensions; the dtype goes round."""
    forward = direction == "fwd"
    return replace(
        of_volume(number, direction), dtype=gemm_mma.DTYPES_SERVED[number % 3], bias=forward,
        activation="relu" if forward else "none",
    )  # fmt: skip


VOLUME_CASES = tuple(
    case_of_volume(number, each) for number in range(len(VOLUMES)) for each in DIRECTIONS
)


def test_phases_in_planes_are_left_to_pixels() -> None:
    """Their stores would write single items, far apart."""
    served = [case(1, direction, layout) for direction in DIRECTIONS for layout in LAYOUTS]
    refused = [each for each in served if not conv_mma.serves(each)]
    assert refused == [case(1, "bwd_data", "nchw")]


def config_for(problem: ConvProblem, first: int) -> conv_mma.Config:
    """Return the first of the configs from there on that may serve the problem."""
    configs = (*CONFIGS[first:], *CONFIGS[:first], MMA)
    return next(config for config in configs if config.why_not(problem, HOPPER) is None)


def assert_right(device: Device, problem: ConvProblem, config: conv_mma.Config) -> None:
    """Compare what a config computes, where vectors are aligned."""
    result = Bench(device, problem).measure(conv_mma.plan(problem, config), 0.0)
    assert result.ok, f"{problem.key()} {config}: {result.reason}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", range(len(CASES) // 4))
def test_around_the_units(device: Device, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fourth case, of which the next device has others."""
    emulate(monkeypatch)
    problem = CASES[(4 * number + 2 * device.index + (number + device.index) % 2) % len(CASES)]
    config = config_for(problem, number % len(CONFIGS))
    assert_right(device, problem, config)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("problem", GROUPED_CASES, ids=label)
def test_groups_around_the_units(
    device: Device, problem: ConvProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch)
    config = config_for(problem, GROUPED_CASES.index(problem) % len(CONFIGS))
    assert_right(device, problem, config)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("problem", VOLUME_CASES, ids=label)
def test_volumes_around_the_units(
    device: Device, problem: ConvProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch)
    config = config_for(problem, VOLUME_CASES.index(problem) % len(CONFIGS))
    assert_right(device, problem, config)


@pytest.mark.parametrize(
    ("channels", "groups", "dtype", "expected"),
    [
        ((128, 128), 4, "bf16", 2), ((128, 128), 32, "bf16", 16), ((256, 512), 2, "bf16", 1),
        ((96, 48), 3, "tf32", 1), ((60, 90), 6, "bf16", 6), ((72, 72), 3, "fp16", 1),
        ((10, 20), 10, "fp16", 10), ((128, 128), 1, "bf16", 1),
    ],
)  # fmt: skip
def test_groups_share_a_tile_up_to_its_width_and_begin_a_chunk(
    channels: tuple[int, int], groups: int, dtype: str, expected: int
) -> None:
    problem = ConvProblem(1, channels[0], 8, 8, channels[1], 3, 3, groups=groups, dtype=dtype)
    assert parts.together(problem) == expected
    one = parts.merged(problem)
    assert one.groups == 1
    assert one.in_channels * parts.products(problem) == channels[0]


@pytest.mark.parametrize("dtype", gemm_mma.DTYPES_SERVED)
def test_gradients_of_weights_in_planes_are_sums_of_products(
    device: Device, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each image, whose rows of pixels need no copy; of odd sizes, too."""
    emulate(monkeypatch)
    family = FAMILIES["conv_as_gemm_mma"]
    problem = ConvProblem(3, 24, 9, 11, 40, 1, 1, dtype=dtype, direction="bwd_weights")
    assert family.serves(problem)
    config = family.Config(**{**values_of(family.DEFAULT), "split_k": 2})
    assert "planes" in family.DEFAULT.why_not(problem, HOPPER)
    assert config.why_not(problem, HOPPER) is None
    assert all(guess.split_k > 1 for guess in family.guesses(problem, HOPPER))
    result = Bench(device, problem).measure(family.plan(problem, config), 0.0)
    assert result.ok, result.reason
    assert not family.serves(replace(problem, dtype="fp32"))
    assert not family.serves(replace(problem, in_channels=640, out_channels=400))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_images_need_not_be_aligned_and_weights_not_dense(
    device: Device, direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything starts three elements into its buffer, and w lies in channels_last."""
    emulate(monkeypatch)
    problem = case(0, direction, "nhwc")
    plan = conv_mma.plan(problem, CONFIGS[0])
    assert plan.replaceable == {*STRIDES}
    assert not difference(device, problem, plan)
    grouped = case(1, direction, "nhwc", GROUPED)
    assert not difference(device, grouped, conv_mma.plan(grouped, config_for(grouped, 0)))


STORED = tuple(
    problem
    for problem in (*CASES, *GROUPED_CASES)
    if parts.stores_weights(problem, 1) and problem.output == "w"
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("problem", STORED, ids=label)
def test_one_slice_stores_the_gradient_of_weights(
    device: Device, problem: ConvProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No plane of sums is written, whether 16 bytes leave at once or single items do."""
    emulate(monkeypatch)
    config = replace(config_for(problem, STORED.index(problem) % len(CONFIGS)), split_k=1)
    plan = conv_mma.plan(problem, config)
    assert "planes" not in dict(plan.workspaces)
    assert "planes" in dict(conv_mma.plan(problem, replace(config, split_k=2)).workspaces)
    assert_right(device, problem, config)
    if problem.turns_weights:
        assert not difference(device, problem, plan)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("problem", (*CASES, *GROUPED_CASES, *VOLUME_CASES), ids=label)
def test_on_matrix_units(device: Device, problem: ConvProblem) -> None:
    if not {"mma", "wgmma"} <= device.limits.instructions:
        pytest.skip(f"{device.name} has no matrix units")
    bench = Bench(device, problem)
    for first in (0, 2, 3):
        config = config_for(problem, first)
        result = bench.measure(conv_mma.plan(problem, config), 0.0)
        assert result.ok, f"{problem.key()} {config}: {result.reason}"


CHANGES: dict[str, Any] = {
    "unit": "wgmma", "tile_m": 128, "tile_n": 128, "tile_k": 16, "warps_m": 1, "warps_n": 1,
    "stages": 3, "split_k": 2, "group_m": 2,
}  # fmt: skip
BESIDE: dict[str, dict[str, Any]] = {
    "unit": {"warps_m": 4, "warps_n": 1},
    "pending": {"unit": "wgmma", "warps_m": 4, "warps_n": 1, "stages": 3},
}
"""What a parameter needs beside it to be valid."""


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_parameter_changes_the_text(direction: Direction) -> None:
    problem = ConvProblem(
        4, 128, 14, 14, 192, 3, 3, pad_h=1, pad_w=1, dtype="bf16", direction=direction
    )
    changes = CHANGES | {"pending": 1}
    assert set(changes) == {field.name for field in fields(MMA)}
    for name, value in changes.items():
        first = replace(MMA, **BESIDE.get(name, {}))
        second = replace(first, **{name: value})
        for config in (first, second):
            assert config.why_not(problem, HOPPER) is None, config.why_not(problem, HOPPER)
        one, other = (conv_mma.plan(problem, config).launches for config in (first, second))
        assert [launch.source for launch in one] != [launch.source for launch in other], name


@pytest.mark.parametrize(
    ("config", "problem", "words"),
    [
        (MMA, case(0, "fwd", "nchw"), ("mma", "none")),
        (replace(MMA, tile_m=24), case(0, "fwd", "nchw"), ("12 x 32",)),
        (replace(MMA, stages=9), case(0, "fwd", "nhwc"), ("73728", "48128")),
        (replace(MMA, split_k=99), case(0, "bwd_weights", "nhwc"), ("split_k=99", "k=84")),
        (WGMMA, case(2, "bwd_weights", "nhwc"), ("tf32", "unit=mma")),
    ],
)  # fmt: skip
def test_refusals_name_the_numbers(
    config: conv_mma.Config, problem: ConvProblem, words: tuple[str, ...]
) -> None:
    limits = Limits() if words == ("mma", "none") else HOPPER
    reason = config.why_not(problem, limits)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_what_is_served() -> None:
    assert conv_mma.serves(case(0, "fwd", "nchw"))
    assert conv_mma.serves(case(3, "fwd", "nhwc", GROUPED))
    depthwise = {"groups": 16, "out_channels": 16}
    for change in ({"dtype": "fp32"}, depthwise, {"kernel_w": 16, "pad_w": 8}):
        assert not conv_mma.serves(replace(case(0, "fwd", "nchw"), **change))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_space_holds_both_units_and_the_seeds(layout: Memory, direction: Direction) -> None:
    problem = ConvProblem(
        64, 128, 28, 28, 128, 3, 3, pad_h=1, pad_w=1, dtype="fp16", direction=direction,
        layout=layout,
    )  # fmt: skip
    space, seeds = space_of("conv_mma", problem, HOPPER), seeds_of("conv_mma", problem, HOPPER)
    assert {space.config(row).unit for row in range(0, len(space), 7)} == {"mma", "wgmma"}
    assert len(seeds) >= 4
    assert all(space.row_of(seed) is not None for seed in seeds[:-1])
    assert len(space_of("conv_mma", problem, Limits())) == 0


def test_images_are_copied_only_where_they_must() -> None:
    kernels = {
        layout: [launch.kernel for launch in conv_mma.plan(case(2, "fwd", layout), MMA).launches]
        for layout in LAYOUTS
    }
    assert kernels["nhwc"] == ["pack_taps", "conv_mma"]
    assert kernels["nchw"] == ["pixels_x", "pack_taps", "conv_mma"]
    narrow = conv_mma.plan(case(3, "fwd", "nhwc"), MMA).launches
    assert [launch.kernel for launch in narrow] == ["conv_mma_gather", "pack_taps", "conv_mma"]
