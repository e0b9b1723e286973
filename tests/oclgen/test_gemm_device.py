"""The GEMM families compute what numpy does, on every device, at every edge."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_register
from oclgen.measuring.measure import TOLERANCE, Bench, compare
from oclgen.measuring.reference import reference
from oclgen.opencl.device import Device
from oclgen.plan import Plan
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from tests.oclgen.gemm_cases import (
    ANY_VARIANT,
    BATCHES,
    DEFAULTS,
    EPILOGUES,
    LAYOUTS,
    SHIFTED,
    SIZES,
    VARIANTS,
    label,
    problems,
)

families = pytest.mark.parametrize("variant", DEFAULTS, ids=label)


def assert_right(device: Device, problem: GemmProblem, variant: Variant) -> None:
    """Compare with float64; a limit of nothing leaves out the timing.

    Where the family asks for operands along k, or for rows of B along n, the problem has them.
    """
    if not variant.serves(problem):
        problem = replace(problem, trans_a=False, trans_b=not problem.trans_b)
    measurement = Bench(device, problem).measure(variant.plan(problem), 0.0)
    assert measurement.ok, f"{problem.key()} {variant.to_text()}: {measurement.reason}"


@families
@pytest.mark.parametrize("problem", LAYOUTS, ids=label)
def test_layouts_and_dtypes(device: Device, problem: GemmProblem, variant: Variant) -> None:
    assert_right(device, problem, variant)


@families
@pytest.mark.parametrize("problem", BATCHES, ids=label)
def test_batches(device: Device, problem: GemmProblem, variant: Variant) -> None:
    assert_right(device, problem, variant)


@pytest.mark.parametrize("problem", EPILOGUES, ids=label)
def test_epilogues(device: Device, problem: GemmProblem) -> None:
    assert_right(device, problem, DEFAULTS[0])


@pytest.mark.parametrize("problem", EPILOGUES[1::3], ids=label)
def test_epilogue_of_other_kernels(device: Device, problem: GemmProblem) -> None:
    # staged, dot, register with a split reduction
    for variant in (*DEFAULTS[1:], VARIANTS[3]):
        assert_right(device, problem, variant)


@pytest.mark.parametrize("config", SHIFTED, ids=["whole", "split"])
@pytest.mark.parametrize("bias", ["m", "n"])
@pytest.mark.parametrize("trans_b", [False, True])
def test_the_last_block_of_columns_ends_at_n(
    device: Device, trans_b: bool, bias: Literal["m", "n"], config: gemm_register.Config
) -> None:
    variant = Variant("gemm_register", config)
    for n in (16, 17, 31, 37):  # it owns all of its columns, one, all but one, part of two vectors
        problem = GemmProblem(7, n, 13, trans_b=trans_b, bias=bias, activation="relu", batch=2)
        assert_right(device, replace(problem, residual=trans_b), variant)


def test_shifted_blocks_add_to_results_where_they_lie(device: Device) -> None:
    problem = GemmProblem(5, 27, 9, residual=True)
    generator = np.random.default_rng(3)
    a, b, c = (generator.standard_normal(size, np.float32) for size in ((5, 9), (9, 27), (5, 27)))
    plan = Variant("gemm_register", SHIFTED[0]).plan(problem)
    results = device.upload(c)
    buffers = {"a": device.upload(a), "b": device.upload(b), "c": results, "residual": results}
    device.prepare(plan, buffers).run()
    np.testing.assert_allclose(device.download(results, c), a @ b + c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_sizes(device: Device, variant: Variant) -> None:
    served = [
        problem
        for problem in (GemmProblem(*size) for size in SIZES)
        if variant.config.why_not(problem, device.limits) is None
    ]
    assert len(served) >= 3
    for problem in served:
        assert_right(device, problem, variant)


@pytest.mark.parametrize("variant", [*DEFAULTS, *VARIANTS[3:10:4]], ids=label)
def test_offsets_and_strides_of_views(device: Device, variant: Variant) -> None:
    dot = variant.family == "gemm_dot"
    problem = GemmProblem(17, 24, 19, batch=2, trans_a=not dot, trans_b=dot)
    rng = np.random.default_rng(0)
    large = {
        role: rng.standard_normal((shape[0], shape[1] + 2, shape[2] + 5), dtype=np.float32)
        for role, shape in problem.buffers.items()
    }
    views = {
        role: array[:, 1 : 1 + problem.buffers[role][1], 3 : 3 + problem.buffers[role][2]]
        for role, array in large.items()
    }
    strides = {f"ld_{role}": array.shape[2] for role, array in large.items()}
    strides |= {f"batch_{role}": array[0].size for role, array in large.items()}
    offsets = {role: array.shape[2] + 3 for role, array in large.items()}
    plan: Plan = variant.plan(problem)
    buffers = {role: device.upload(array) for role, array in large.items()}
    device.prepare(plan, buffers, offsets, strides).run()

    want = large["c"].astype(np.float64)
    want[:, 1 : 1 + problem.m, 3 : 3 + problem.n] = reference(problem, views)
    # what lies around the view has to stay as it was
    _, reason = compare(device.download(buffers["c"], large["c"]), want, TOLERANCE["fp32"])
    assert not reason


@pytest.mark.parametrize(
    "problem", [GemmProblem(1, 9, 70, trans_a=True, trans_b=True), GemmProblem(9, 1, 70)], ids=label
)
def test_a_single_column_lies_along_k(device: Device, problem: GemmProblem) -> None:
    assert FAMILIES["gemm_dot"].serves(problem)
    assert_right(device, problem, DEFAULTS[2])


@settings(
    max_examples=6, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(problem=problems(), variant=ANY_VARIANT)
def test_any_valid_variant(device: Device, problem: GemmProblem, variant: Variant) -> None:
    assume(variant.config.why_not(problem, device.limits) is None)
    assert_right(device, problem, variant)
