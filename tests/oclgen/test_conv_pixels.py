"""Convolutions of images in channels_last: what they say, launch and compute, in all directions.

`conv_gemm` runs everywhere, `conv_async` by `cp.async` where the device has it, else in plain C,
`conv_register`, `conv_register_weights` and `winograd_blocked` on CPUs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oclgen.families import FAMILIES, families_for
from oclgen.families.conv import (
    conv_async,
    conv_gemm,
    conv_pairs_weights,
    conv_register_weights,
)
from oclgen.families.parts.strided_weights import STRIDES
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.plan import Plan
from oclgen.problem import DIRECTIONS, ConvProblem, Direction
from search_spaces.space import seeds_of, space_of
from tests.oclgen.channels_last import difference
from tests.oclgen.conv_cases import VARIED, label
from tests.oclgen.test_conv_async import AMPERE, CHANGES, runnable

CPU = Limits("cpu", 256 * KIB, 8192, (8192,) * 3, 2**30, 2**33, 2, 16)
LAYER = ConvProblem(8, 64, 56, 56, 128, 3, 3, 2, 2, 1, 1, layout="nhwc")
SHAPES = (
    ConvProblem(3, 8, 11, 8, 12, 3, 3, 2, 2, 1, 1),
    # few channels, which tiles of several taps fill
    ConvProblem(2, 3, 13, 11, 6, 7, 7, 2, 2, 3, 3),
    # one tap, which reads less than there is, and phases of the gradient without any
    ConvProblem(2, 12, 7, 6, 20, 1, 1, 2, 2),
    ConvProblem(2, 8, 6, 5, 16, 1, 1, groups=2),
    ConvProblem(2, 6, 9, 9, 4, 3, 3, 1, 1, 2, 2, 2, 2, groups=2),
    ConvProblem(1, 8, 6, 5, 4, 3, 2, 3, 1, 1, 2, 1, 2),
    ConvProblem(1, 17, 5, 4, 33, 3, 3, pad_h=1, pad_w=1),
)
CASES = tuple(
    replace(
        shape,
        layout="nhwc",
        direction=way,
        bias=way == "fwd",
        activation="relu" if way == "fwd" else "none",
        residual=way == "fwd" and shape.groups == 1,
    )
    for shape in SHAPES
    for way in DIRECTIONS
)
GEMM: tuple[conv_gemm.Config, ...] = (
    conv_gemm.DEFAULT,
    replace(
        conv_gemm.DEFAULT, tile_m=32, tile_n=32, tile_k=16, local_m=4, local_n=4, vec_m=2,
        vec_n=2, pad=4, buffers=2, prefetch=False, unroll_k=4, split_k=2, m_fastest=False,
    ),
    replace(conv_gemm.DEFAULT, tile_m=16, tile_n=128, local_m=2, local_n=32, taps_outer=False),
)  # fmt: skip
ASYNC: tuple[conv_async.Config, ...] = (
    conv_async.DEFAULT,
    replace(conv_async.DEFAULT, tile_m=16, tile_n=96, local_m=4, stages=3, pad=0, order="n"),
    replace(conv_async.DEFAULT, tile_m=32, tile_n=48, local_n=12, warp_m=8, split_k=2, group_m=1),
    replace(conv_async.DEFAULT, tile_m=32, local_m=4, local_n=16, warp_m=2, taps_outer=False),
)


def some(configs: tuple[Any, ...]) -> list[Any]:
    """Return (problem, config) for every case: the default, and one other each."""
    pairs = []
    for number, problem in enumerate(CASES):
        for config in (configs[0], configs[1 + (number + number // 3) % (len(configs) - 1)]):
            # gradients of weights have but one order of the reduction
            order = config.taps_outer or problem.direction == "bwd_weights"
            pairs.append((problem, replace(config, taps_outer=order)))
    return pairs


def assert_right(device: Device, problem: ConvProblem, plan: Plan) -> None:
    """Compare where vectors are aligned, and where none is and w lies in channels_last.

    A gradient of weights lies so by itself: only planes of sums are added to other strides.
    """
    measurement = Bench(device, problem).measure(plan, limit_ms=0.0)
    assert measurement.ok, f"{problem.key()}: {measurement.reason}"
    is_stored = problem.turns_weights and not plan.workspaces
    assert is_stored or plan.replaceable >= {*STRIDES}
    assert not difference(device, problem, plan)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("problem", "config"), some(GEMM), ids=label)
def test_in_local_memory(device: Device, problem: ConvProblem, config: conv_gemm.Config) -> None:
    if reason := config.why_not(problem, AMPERE):
        pytest.skip(reason)
    assert_right(device, problem, conv_gemm.plan(problem, config))


@pytest.mark.parametrize("taps_outer", [False, True])
@pytest.mark.parametrize("direction", ["fwd", "bwd_data"])
def test_weights_of_planes_lie_as_their_strides_say(
    device: Device, direction: Direction, taps_outer: bool
) -> None:
    problem = ConvProblem(
        2, 12, 9, 8, 20, 3, 2, 2, 1, 1, 1, groups=2, direction=direction, layout="nchw"
    )
    config = replace(conv_gemm.DEFAULT, taps_outer=taps_outer)
    assert config.why_not(problem, device.limits) is None
    assert not difference(device, problem, conv_gemm.plan(problem, config))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("problem", "config"), some(ASYNC), ids=label)
def test_by_cp_async(device: Device, problem: ConvProblem, config: conv_async.Config) -> None:
    assert_right(device, problem, runnable(device, problem, config, AMPERE))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (name, problem)
        for name in ("conv_register", "winograd_blocked")
        for problem in (*CASES, replace(CASES[-3], dtype="bf16", out_channels=21))
        if FAMILIES[name].serves(problem)
    ],
    ids=label,
)
def test_in_registers(device: Device, name: str, problem: ConvProblem) -> None:
    """The first guess, whose vectors the last channels of most problems do not fill."""
    family = FAMILIES[name]
    found = family.guesses(problem, device.limits)
    config = next(one for one in found if one.why_not(problem, device.limits) is None)
    assert_right(device, problem, family.plan(problem, config))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize(
    "problem",
    [
        *(each for each in CASES if each.direction == "bwd_weights"),
        ConvProblem(3, 25, 6, 7, 8, 3, 3, pad_h=1, pad_w=1, direction="bwd_weights", layout="nhwc"),
    ],
    ids=label,
)
def test_gradients_of_weights_in_registers(
    device: Device, problem: ConvProblem, planes: int
) -> None:
    found = conv_register_weights.guesses(problem, device.limits)
    config = next(one for one in found if one.why_not(problem, device.limits) is None)
    plan = conv_register_weights.plan(problem, replace(config, split=planes))
    assert_right(device, problem, plan)


@pytest.mark.parametrize("planes", [1, 2])
def test_gradients_of_weights_by_pairs(device: Device, planes: int) -> None:
    problem = replace(CASES[2], dtype="bf16")
    config = replace(conv_pairs_weights.DEFAULT, split=planes)
    if reason := config.why_not(problem, device.limits):
        pytest.skip(reason)
    assert_right(device, problem, conv_pairs_weights.plan(problem, config))


def test_gradients_of_weights_need_no_copy_of_what_lies_in_channels_last() -> None:
    problem = replace(LAYER, direction="bwd_weights")
    for split, kernels in (
        (1, ["conv_register_weights"]),
        (2, ["conv_register_weights", "sum_planes"]),
    ):
        config = replace(conv_register_weights.DEFAULT, split=split)
        launches = conv_register_weights.plan(problem, config).launches
        assert [one.kernel for one in launches] == kernels
    few = conv_register_weights.plan(
        replace(problem, groups=64, in_channels=128), conv_register_weights.DEFAULT
    )
    assert few.launches[0].kernel == "pack_lanes"  # two channels of a group fill no vector


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_half_precision(device: Device, direction: Direction) -> None:
    problem = replace(
        CASES[0], direction=direction, bias=False, residual=False, activation="none", dtype="bf16"
    )
    assert_right(device, problem, conv_gemm.plan(problem, conv_gemm.DEFAULT))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_only_gpus_read_it_and_find_configs(direction: Direction) -> None:
    problem = replace(LAYER, direction=direction)
    assert "CPU" in (conv_gemm.DEFAULT.why_not(problem, CPU) or "")
    for name in ("conv_gemm", "conv_async"):
        assert FAMILIES[name].DEFAULT.why_not(problem, AMPERE) is None
        assert len(seeds_of(name, problem, AMPERE)) > 4
        assert len(space_of(name, problem, AMPERE)) > 50


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_parameter_changes_the_text(direction: Direction) -> None:
    problem = replace(LAYER, direction=direction)
    for module, changes in ((conv_gemm, VARIED["conv_gemm"]), (conv_async, CHANGES)):
        before = module.plan(problem, module.DEFAULT)
        for name, value in changes.items():
            changed = replace(module.DEFAULT, **{name: value})
            assert changed != module.DEFAULT
            if direction != "bwd_weights" or name != "taps_outer":  # there it is refused
                assert module.plan(problem, changed) != before, name


def test_others_serve_products_and_filters_of_one_channel() -> None:
    for other in (
        replace(LAYER, kernel_h=1, kernel_w=1, stride_h=1, stride_w=1, pad_h=0, pad_w=0),
        replace(LAYER, groups=64),
    ):
        names = {family.NAME for family in families_for(other)}
        assert not names & {"conv_gemm", "conv_async"}
    assert [f.NAME for f in families_for(LAYER)] == ["conv_register", "conv_gemm", "conv_async"]


def test_the_gradient_of_weights_copies_four_channels_at_once() -> None:
    problem = replace(LAYER, direction="bwd_weights")
    (product,) = conv_async.plan(problem, conv_async.DEFAULT).launches
    assert "copy_word(" not in product.source.split("} Operands;")[1].split("__kernel")[0]
    sliced = replace(conv_async.DEFAULT, split_k=2)
    assert conv_async.plan(problem, sliced).launches[1].kernel == "sum_planes"
    few = conv_async.plan(replace(problem, in_channels=3), conv_async.DEFAULT).launches[0]
    copies = few.source.split("} Operands;")[1]
    assert "copy_four(" in copies
    assert "copy_word(" in copies


def test_very_many_taps_are_refused() -> None:
    problem = ConvProblem(1, 2, 40, 40, 2, 17, 5, layout="nhwc")
    assert "17x5" in str(conv_gemm.DEFAULT.why_not(problem, AMPERE))
    weights = ConvProblem(1, 2, 40, 40, 2, 16, 16, direction="bwd_weights", layout="nhwc")
    sliced = replace(conv_gemm.DEFAULT, split_k=2)
    assert sliced.why_not(weights, replace(AMPERE, local_bytes=16 * KIB)) is None
    assert conv_gemm.plan(weights, sliced).launches[1].local_bytes <= 16 * KIB
    assert "256" in str(sliced.why_not(weights, Limits()))


def test_work_groups_of_a_pixels_groups_are_neighbours() -> None:
    """They share its cache lines: in planes groups lie apart, and along the other dimension."""
    grouped = replace(LAYER, groups=8)
    for module in (conv_gemm, conv_async):
        across, down = module.plan(grouped, module.DEFAULT).launches[-1].global_size
        planes = module.plan(replace(grouped, layout="nchw"), module.DEFAULT).launches[-1]
        assert (across, down) == (8 * planes.global_size[0], 1)
        assert planes.global_size[1] == 8
