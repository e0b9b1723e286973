"""Gradients of few weights on every OpenCL device, with configs that are meant for GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oclgen.families import families_for
from oclgen.families.conv import conv_narrow_weights as family
from oclgen.families.parts.planes import sum_planes
from oclgen.limits import Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.plan import Plan
from oclgen.problem import DTYPES, ConvProblem
from search_spaces.space import seeds_of, space_of
from tests.oclgen.conv_cases import SHAPES, label
from tests.oclgen.cp_async_in_c import in_plain_c

PROBLEMS = (
    *(replace(shape, direction="bwd_weights") for shape in SHAPES if shape.groups == 1),
    # dilation by rows and columns that strides do not divide, and a kernel wider than the image
    ConvProblem(2, 3, 9, 11, 5, 3, 2, 2, 3, 2, 1, 3, 2, direction="bwd_weights"),
    ConvProblem(3, 2, 4, 3, 9, 7, 7, 1, 2, 3, 3, direction="bwd_weights"),
    ConvProblem(2, 9, 8, 16, 17, 1, 1, direction="bwd_weights", dtype="bf16"),
)


GPU = Limits(
    "gpu", 47 * 1024, 1024, (1024, 1024, 64), max_alloc_bytes=1 << 34, compute_units=132,
    instructions=frozenset({"cp_async"}),
)  # fmt: skip
LAYERS = (
    ConvProblem(64, 3, 224, 224, 32, 3, 3, 2, 2, 1, 1, direction="bwd_weights"),
    ConvProblem(64, 3, 224, 224, 64, 7, 7, 2, 2, 3, 3, direction="bwd_weights"),
    ConvProblem(64, 32, 112, 112, 16, 1, 1, direction="bwd_weights"),
    ConvProblem(64, 144, 56, 56, 24, 1, 1, direction="bwd_weights"),
)


def able(device: Device) -> Limits:
    """What the device allows, and `cp.async`, which has plain C for an understudy."""
    return replace(device.limits, instructions=frozenset({"cp_async"}))


def check(device: Device, problem: ConvProblem, config: family.Config) -> None:
    assert (reason := config.why_not(problem, able(device))) is None, reason
    plan = family.plan(problem, config)
    if "cp_async" not in device.limits.instructions:
        plan = in_plain_c(plan)
    # a best time of 0 makes it stop after the one verified run
    result = Bench(device, problem).measure(plan, limit_ms=0.0)
    assert result.ok, f"{problem.key()} {config}: {result.invalidity}: {result.reason}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("problem", PROBLEMS, ids=label)
@pytest.mark.parametrize(
    "change",
    [
        {"item_m": 3, "item_c": 2, "tap_rows": 2, "local_m": 1, "local_c": 2, "local_k": 16},
        # several patches per work-item, in planes of which the last is shorter
        {"local_k": 4, "split": 2, "patch_h": 2, "tap_rows": 1, "item_m": 3},
        {"local_k": 1, "split": 5, "item_c": 3, "tap_rows": 3, "item_m": 1, "patch_h": 4},
        # copies run ahead: more stages than rounds, and fewer
        {"local_k": 8, "stages": 3, "tap_rows": 2, "item_m": 4, "split": 1},
        {"local_k": 2, "stages": 2, "local_m": 3, "patch_h": 2, "tap_rows": 1, "split": 3},
    ],
    ids=str,
)
def test_variants(device: Device, problem: ConvProblem, change: dict[str, Any]) -> None:
    if DTYPES[problem.dtype] != 4:
        change = {**change, "stages": 1}
    check(device, problem, replace(family.DEFAULT, **change))


@pytest.mark.parametrize("problem", PROBLEMS, ids=label)
def test_random_configs(device: Device, problem: ConvProblem) -> None:
    limits = replace(able(device), kind="gpu", local_bytes=47 * 1024, max_work_group=1024)
    space = space_of(family.NAME, problem, limits)

    @settings(max_examples=2, deadline=None, derandomize=True, database=None)
    @given(st.integers(0, len(space) - 1))
    def holds(row: int) -> None:
        check(device, problem, space.config(row))

    holds()


@pytest.mark.parametrize("planes", [3, 16, 37])
def test_slices_of_planes(device: Device, planes: int) -> None:
    """Their sum is that of all planes, whether slices have several, one or none."""
    problem = replace(PROBLEMS[0], in_channels=3)
    config = replace(family.DEFAULT, local_k=1, patch_h=1, split=planes)
    plan = family.plan(problem, config)
    count = family.Shape(problem, config).planes
    whole = Plan((plan.launches[0], sum_planes(problem, count).launch()), plan.workspaces)
    for each in (plan, whole):
        assert Bench(device, problem).measure(each, limit_ms=0.0).ok
    assert plan.launches[1].source != whole.launches[1].source


def test_planes_are_full_but_for_the_last() -> None:
    problem = LAYERS[0]
    for split in (1, 66, 500, 10**9):
        shape = family.Shape(problem, replace(family.DEFAULT, split=split))
        each = shape.rounds * family.DEFAULT.local_k
        assert shape.planes <= split
        assert (shape.planes - 1) * each < shape.patches <= shape.planes * each


@pytest.mark.parametrize("problem", LAYERS, ids=label)
def test_spaces_hold_the_seeds_and_stay_small(problem: ConvProblem) -> None:
    space = space_of(family.NAME, problem, GPU)
    seeds = seeds_of(family.NAME, problem, GPU)[:-1]
    assert len(seeds) >= 2
    assert all(space.row_of(seed) is not None for seed in seeds)
    assert 500 < len(space) < 40_000
    assert len(space_of(family.NAME, problem, replace(GPU, kind="cpu"))) == 1


@pytest.mark.parametrize(
    ("dtype", "change", "words"),
    [
        ("fp32", {"patch_h": 8, "stages": 4, "local_k": 64}, ("84992", "48128")),
        ("bf16", {"stages": 2}, ("stages=2", "bf16")),
    ],
)
def test_what_gpus_refuse(dtype: str, change: dict[str, Any], words: tuple[str, ...]) -> None:
    reason = replace(family.DEFAULT, **change).why_not(replace(LAYERS[0], dtype=dtype), GPU)
    assert reason
    assert all(word in reason for word in words), reason


def test_what_it_serves() -> None:
    narrow = LAYERS[1]
    assert family in families_for(narrow)
    for change in (
        {"in_channels": 64}, {"direction": "fwd"}, {"layout": "nhwc"}, {"kernel_w": 9},
        {"in_channels": 4, "groups": 2},
    ):  # fmt: skip
        assert family not in families_for(replace(narrow, **change)), change
