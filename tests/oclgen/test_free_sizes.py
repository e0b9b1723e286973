"""Kernels whose sizes are arguments: one text for all sizes, which computes what numpy does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from oclgen.families import FAMILIES, families_for, valid_configs
from oclgen.keys import parse_key
from oclgen.limits import Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.plan import Plan
from oclgen.problem import (
    DIRECTIONS,
    FREE_SIZES,
    LAYOUTS,
    ConvProblem,
    Direction,
    GemmProblem,
    Problem,
    ProblemError,
    divided_by,
    with_sizes,
)
from oclgen.variant import Variant
from tests import samples
from tests.oclgen.cp_async_in_c import in_plain_c
from tests.oclgen.mma_emulated import emulate
from tests.oclgen.plan_texts import DEVICES

CPU, GPU = DEVICES
TYPICAL = 64
SIZES = (1, 5, 6, 7, 23, 64, 70)
"""One, around `gemm_register`'s first tile, odd ones, and more than the typical size."""
RUN = SIZES if samples.THOROUGH else SIZES[::2]
"""Sizes that kernels run at: each has an edge inside a tile, or none."""

GEMMS = (
    GemmProblem(TYPICAL, 40, 33, trans_b=True, bias="n", activation="relu"),
    GemmProblem(TYPICAL, 24, 35, trans_a=True),
    GemmProblem(TYPICAL, 17, 19, batch=3, residual=True),
    GemmProblem(TYPICAL, 20, 35, "int8", trans_b=True),
)
CONVS = (
    ConvProblem(TYPICAL, 5, 9, 10, 7, 3, 3, pad_h=1, pad_w=1, bias=True, activation="relu"),
    ConvProblem(TYPICAL, 6, 9, 9, 8, 3, 3, 2, 2, 1, 1, groups=2, residual=True),
    ConvProblem(TYPICAL, 8, 6, 5, 12, 1, 1, bias=True),
    ConvProblem(TYPICAL, 8, 7, 6, 8, 3, 3, pad_h=1, pad_w=1, groups=8, bias=True),
)
PROBLEMS: tuple[Problem, ...] = (
    *(replace(one, free=frozenset((size,))) for one in GEMMS for size in FREE_SIZES["gemm"]),
    replace(GEMMS[2], free=frozenset(("batch", "m", "n"))),
    *(
        replace(one, layout=layout, free=frozenset(("batch",)))
        for one in CONVS
        for layout in LAYOUTS
    ),
    *(
        replace(
            one, direction=direction, bias=False, activation="none", residual=False, layout=layout,
            free=frozenset(("batch",)),
        )
        for one in CONVS
        for direction in ("bwd_data", "bwd_weights")
        for layout in LAYOUTS
    ),
)  # fmt: skip


def at(problem: Problem, size: int) -> Problem:
    """The problem with its free sizes at this value."""
    return with_sizes(problem, dict.fromkeys(problem.free, size))


def variants(problem: Problem, limits: Limits, each: int = 3) -> Iterator[Variant]:
    """Variants that serve it on such a device: the first ones of each family."""
    for family in families_for(problem):
        for config in islice(valid_configs(family, problem, limits), each):
            yield Variant(family.NAME, config)


def of_one_text(variant: Variant, problem: Problem) -> Plan:
    """The plan of these sizes, with the texts of the typical ones."""
    plan, typical = variant.plan(problem), variant.plan(at(problem, TYPICAL))
    pairs = zip(plan.launches, typical.launches, strict=True)
    return replace(plan, launches=tuple(replace(one, text=other.text) for one, other in pairs))


@pytest.mark.parametrize("limits", DEVICES, ids=lambda one: one.kind)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.key())
def test_one_text_serves_all_sizes(problem: Problem, limits: Limits) -> None:
    found = list(variants(at(problem, TYPICAL), limits))
    assert found or isinstance(problem, ConvProblem)
    for variant in found:
        plans = [variant.plan(at(problem, size)) for size in SIZES]
        texts = {tuple(launch.source for launch in plan.launches) for plan in plans}
        assert len(texts) == 1, variant.to_text()
        arguments = {tuple(launch.args for launch in plan.launches) for plan in plans}
        sizes = {tuple(launch.global_size for launch in plan.launches) for plan in plans}
        assert len(arguments) + len(sizes) > 2, variant.to_text()


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.key())
def test_a_text_with_free_sizes_is_right_at_all_of_them(device: Device, problem: Problem) -> None:
    for variant in variants(at(problem, TYPICAL), device.limits, each=1):
        for size in RUN:
            given = at(problem, size)
            measurement = Bench(device, given).measure(of_one_text(variant, given), 0.0)
            assert measurement.ok, f"{given.key()} {variant.to_text()}: {measurement.reason}"


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "problem", [one for one in PROBLEMS if one.op == "conv"], ids=lambda one: one.key()
)
def test_what_a_gpu_is_given_is_right_at_all_batches(device: Device, problem: Problem) -> None:
    """Each family's first guess for a GPU, in OpenCL C: slices of few images may be empty."""
    # PoCL 3.1 computes `conv_async` wrong, at fixed sizes as well; matrix units have no text in C
    in_c = frozenset[str]() if "Portable" in device.info.runtime else {"cp_async"}
    own = device.limits
    local, group = min(GPU.local_bytes, own.local_bytes), min(1024, own.max_work_group)
    limits = replace(GPU, local_bytes=local, max_work_group=group)
    met = 0
    for variant in variants(at(problem, TYPICAL), limits, each=1):
        if FAMILIES[variant.family].TRAITS.instructions - in_c:
            continue
        met += 1
        for size in RUN:
            given = at(problem, size)
            plan = in_plain_c(of_one_text(variant, given))
            measurement = Bench(device, given).measure(plan, 0.0)
            assert measurement.ok, f"{given.key()} {variant.to_text()}: {measurement.reason}"
    assert met


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_matrix_units_around_a_free_batch(
    device: Device, monkeypatch: pytest.MonkeyPatch, direction: Direction, layout: Any
) -> None:
    """Slices of few images are empty, and rows of tiles are swept whatever their number."""
    emulate(monkeypatch)
    stride = 1 if (direction, layout) == ("bwd_data", "nchw") else 2  # phases are served in pixels
    problem = ConvProblem(
        TYPICAL, 12, 7, 6, 10, 3, 3, stride, 1, 1, 1, dtype="bf16", direction=direction,
        layout=layout, free=frozenset(("batch",)),
    )  # fmt: skip
    slices = 8 if direction == "bwd_weights" else 2
    config = replace(FAMILIES["conv_mma"].DEFAULT, split_k=slices, group_m=2)
    variant = Variant("conv_mma", config)
    assert variant.why_not(problem, GPU) is None
    for size in RUN:
        given = at(problem, size)
        measurement = Bench(device, given).measure(of_one_text(variant, given), 0.0)
        assert measurement.ok, f"{given.key()}: {measurement.reason}"


@pytest.mark.parametrize("split_k", [3, 8])
@pytest.mark.parametrize("family", ["gemm_register", "gemm_dot", "gemm_staged"])
def test_slices_of_a_free_k_may_be_empty(device: Device, family: str, split_k: int) -> None:
    problem = GemmProblem(9, 10, TYPICAL, trans_b=True, free=frozenset(("k",)))
    config = replace(FAMILIES[family].DEFAULT, split_k=split_k)
    variant = Variant(family, config)
    assert variant.why_not(problem, device.limits) is None
    for size in SIZES:
        given = at(problem, size)
        measurement = Bench(device, given).measure(of_one_text(variant, given), 0.0)
        assert measurement.ok, f"{given.key()}: {measurement.reason}"


def test_copies_of_free_sizes_stop_at_edges(device: Device) -> None:
    problem = GemmProblem(TYPICAL, 40, 24, free=frozenset(("m", "k")))
    variant = Variant("gemm_async", FAMILIES["gemm_async"].DEFAULT)
    for size in SIZES:
        given = at(problem, size)
        plan = in_plain_c(of_one_text(variant, given))
        measurement = Bench(device, given).measure(plan, 0.0)
        assert measurement.ok, f"{given.key()}: {measurement.reason}"


def test_fixed_sizes_keep_their_text() -> None:
    """Edges that no size has are not guarded, unless the size is free."""
    config: Any = FAMILIES["gemm_register"].DEFAULT
    whole = GemmProblem(64, 64, 64)
    free = replace(whole, free=frozenset(("m",)))
    texts = [
        FAMILIES["gemm_register"].plan(one, config).launches[0].source for one in (whole, free)
    ]
    assert "min(m0" not in texts[0] and "min(m0" in texts[1]
    assert divided_by(whole, "m", 16) and not divided_by(free, "m", 16) and divided_by(free, "m", 1)


def test_a_family_that_writes_sizes_into_its_texts_says_so() -> None:
    problem = GemmProblem(64, 64, 64, "bf16", free=frozenset(("m", "k")))
    reason = Variant("gemm_pairs", FAMILIES["gemm_pairs"].DEFAULT).why_not(problem, CPU)
    assert reason == "its kernels are written for one k and m, which are free"
    mma: Any = FAMILIES["gemm_mma"].DEFAULT
    reason = replace(mma, split_k=2).why_not(problem, GPU)
    assert reason == "split_k=2 slices of a free k may be empty; use 1"
    config: Any = FAMILIES["conv_register"].DEFAULT
    conv = replace(CONVS[0], free=frozenset(("batch",)))
    reason = replace(config, images=2).why_not(conv, CPU)
    assert reason == "images=2 share weights only in a batch that does not vary"


def test_free_sizes_are_part_of_the_key() -> None:
    for problem in PROBLEMS:
        assert problem.key().endswith(f":any_{'_'.join(sorted(problem.free))}")
        assert parse_key(problem.key()) == problem
    with pytest.raises(ProblemError, match="height cannot be free in a conv; known are batch"):
        replace(CONVS[0], free=frozenset(("height",)))
