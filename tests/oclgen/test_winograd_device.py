"""The Winograd families compute what numpy does, on every device, at every edge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_async
from oclgen.families.parts.strided_weights import STRIDES
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import TOLERANCE, Bench, compare
from oclgen.measuring.reference import random_inputs, reference
from oclgen.opencl import runtimes
from oclgen.opencl.device import Device
from oclgen.problem import DIRECTIONS, LAYOUTS, ConvProblem, Direction, Memory
from oclgen.variant import Variant
from tests.oclgen.channels_last import difference
from tests.oclgen.cp_async_in_c import in_plain_c
from tests.oclgen.winograd_cases import (
    BASES,
    BLOCKED,
    CONFIGS,
    CUT,
    DIRECTED,
    EPILOGUES,
    EVEN,
    GRADIENTS,
    OTHER_FILTERS,
    PIXELS,
    SHAPES,
    STAGED,
    STAGED_PRODUCT,
    STORED,
    VARIANTS,
    WEIGHTS,
    family_of,
    label,
    problems,
    run,
)

CPU = Limits("cpu", 16 * KIB, 256, (256,) * 3, 2**27, 2**29, 2, 16)
"""Any device the tests run on has as much; a simulator that calls itself a GPU is used as a CPU."""


GPU = replace(CPU, kind="gpu")
"""The same, for what is kept from CPUs because others serve them faster."""


def is_of_weights(problem: ConvProblem) -> bool:
    return problem.direction == "bwd_weights"


def assert_right(device: Device, problem: ConvProblem, config: Any) -> None:
    limits = CPU if problem.layout == "nchw" else GPU
    assert config.why_not(problem, limits) is None, config.why_not(problem, limits)
    error, reason = run(device, problem, config)
    assert not reason, f"{problem.key()} {config}: {reason}"
    assert error <= TOLERANCE[problem.dtype]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("config", BASES.values(), ids=BASES)
@pytest.mark.parametrize("problem", DIRECTED, ids=label)
def test_sizes_and_directions(device: Device, problem: ConvProblem, config: Any) -> None:
    assert_right(device, problem, config)


@pytest.mark.parametrize(("problem", "out_tile"), [*GRADIENTS, *OTHER_FILTERS], ids=label)
def test_gradients_of_filters_and_filters_of_other_sizes(
    device: Device, problem: ConvProblem, out_tile: int
) -> None:
    bases: tuple[Any, ...] = (WEIGHTS,) if is_of_weights(problem) else (STAGED, BLOCKED)
    for base in bases:
        assert_right(device, problem, replace(base, out_tile=out_tile))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("problem", "out_tile"), [one for one in OTHER_FILTERS if not is_of_weights(one[0])], ids=label
)
def test_blocks_of_other_filters(
    device: Device, problem: ConvProblem, out_tile: int, layout: Memory
) -> None:
    """Vectors that hold a row of tiles, filters inside and outside, rows that do not fill tiles."""
    asked = replace(problem, layout=layout, bias=problem.direction == "fwd")
    config = replace(BLOCKED, out_tile=out_tile, filters_inside=True, tile_rows=3, item_t=4)
    assert not run(device, asked, config)[1]
    assert not run(device, asked, replace(config, filters_inside=False, item_k=16, vec_k=16))[1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("problem", "tiling"), CUT, ids=label)
def test_filters_that_are_cut_into_blocks(
    device: Device,
    problem: ConvProblem,
    tiling: tuple[int, int],
    direction: Direction,
    layout: Memory,
) -> None:
    """Blocks that hang over, in all directions; w by its strides, and channels of few vectors."""
    asked = replace(problem, direction=direction, layout=layout, bias=direction == "fwd")
    tiles: dict[str, Any] = {"out_tile": tiling[0], "taps": tiling[1]}
    if direction == "bwd_weights":
        assert_right(device, asked, replace(WEIGHTS, **tiles))
        return
    assert_right(device, asked, replace(STAGED, **tiles))
    for inside in (False, True):
        config = replace(BLOCKED, **tiles, item_k=4, filters_inside=inside)
        assert not run(device, asked, config)[1]


@pytest.mark.parametrize(("problem", "out_tile"), PIXELS, ids=label)
def test_images_in_channels_last(device: Device, problem: ConvProblem, out_tile: int) -> None:
    base: Any = WEIGHTS if problem.direction == "bwd_weights" else STAGED
    assert_right(device, problem, replace(base, out_tile=out_tile))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_variants_of_channels_last(device: Device, direction: Direction) -> None:
    """Vectors and several rows of tiles in a group; w in channels_last, nothing aligned."""
    problem = replace(EVEN, direction=direction, bias=direction == "fwd", layout="nhwc")
    weights = replace(WEIGHTS, slice_t=32, local_t=40)
    for vec_t, local_t in ((1, 24), (4, 7)):
        staged = replace(STAGED, vec_t=vec_t, local_t=local_t, gemm=STAGED_PRODUCT)
        config: Any = weights if direction == "bwd_weights" else staged
        assert config.why_not(problem, GPU) is None
        plan = FAMILIES[family_of(config)].plan(problem, config)
        assert plan.replaceable >= {*STRIDES}
        assert not difference(device, problem, plan)


@pytest.mark.parametrize(("config", "problem"), [*EPILOGUES, *STORED], ids=label)
def test_epilogues_and_dtypes(device: Device, problem: ConvProblem, config: Any) -> None:
    assert_right(device, problem, config)


@pytest.mark.parametrize("config", VARIANTS, ids=label)
def test_variants(device: Device, config: Any) -> None:
    assert_right(device, replace(SHAPES[2], bias=True, activation="relu"), config)
    assert_right(device, replace(EVEN, direction="bwd_data"), config)


@pytest.mark.parametrize("config", BASES.values(), ids=BASES)
def test_tensors_may_start_inside_their_storage(device: Device, config: Any) -> None:
    problem = replace(SHAPES[1], bias=True)
    inputs = random_inputs(problem, seed=1)
    poison = np.full(problem.buffers["y"], np.nan, np.float32)
    offsets = {role: 1 + n for n, role in enumerate(problem.buffers)}
    stored = {
        role: np.concatenate([np.full(offsets[role], np.nan, np.float32), array.ravel()])
        for role, array in {**inputs, "y": poison}.items()
    }
    buffers = {role: device.upload(array) for role, array in stored.items()}
    plan = FAMILIES[family_of(config)].plan(problem, config)
    device.prepare(plan, buffers, offsets).run()
    got = device.download(buffers["y"], stored["y"])
    assert np.isnan(got[: offsets["y"]]).all()
    result = got[offsets["y"] :].reshape(poison.shape)
    assert not compare(result, reference(problem, inputs), TOLERANCE["fp32"])[1]


@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(problem=problems(), config=st.one_of(*CONFIGS.values()))
def test_any_valid_config(device: Device, problem: ConvProblem, config: Any) -> None:
    assume(config.why_not(problem, CPU) is None)
    assert_right(device, problem, config)


def test_sums_of_many_blocks_keep_their_digits(device: Device) -> None:
    """Products of 576 channels of blocks are summed in two parts, where errors allow 512."""
    problem = ConvProblem(1, 64, 8, 8, 8, 9, 9, pad_h=4, pad_w=4)
    halves = STAGED_PRODUCT.replace("split_k=1", "split_k=2")
    for config in (
        replace(BLOCKED, out_tile=6, taps=3),
        replace(STAGED, out_tile=6, taps=3, gemm=halves),
    ):
        assert_right(device, problem, config)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_products_by_copies_ahead(device: Device, direction: Direction, layout: Memory) -> None:
    """By `cp.async` where the device has it, else in plain C; U, V and M in place of operands."""
    problem = replace(CUT[0][0], direction=direction, layout=layout)
    base: Any = WEIGHTS if direction == "bwd_weights" else STAGED
    product = replace(gemm_async.DEFAULT, tile_m=16, tile_n=32, local_m=4)
    config = replace(base, out_tile=6, taps=3, gemm=Variant("gemm_async", product).to_text())
    able = replace(GPU, instructions=frozenset({"cp_async"}))
    assert config.why_not(problem, able) is None, config.why_not(problem, able)
    plan = FAMILIES[family_of(config)].plan(problem, config)
    if "cp_async" not in device.limits.instructions:
        plan = in_plain_c(plan)
    measured = Bench(device, problem).measure(plan, limit_ms=0.0)
    assert not measured.reason, measured.reason


@pytest.mark.parametrize(("out_tile", "bound"), [(2, 8e-7), (4, 3e-6), (6, 9e-6)])
def test_accuracy_at_256_channels(
    device: Device, out_tile: int, bound: float, record_property: Any
) -> None:
    """The published order of errors: about 5e-7, 2e-6 and 6e-6."""
    fault = runtimes.fault(device.handle.platform.version, device.name)
    if fault is not None and "loop" in fault:
        pytest.skip(f"a work-item takes more than 65,536 rounds here; {fault}")
    problem = ConvProblem(1, 256, 12, 12, 16, 3, 3, pad_h=1, pad_w=1)
    error, _ = run(device, problem, replace(BLOCKED, out_tile=out_tile))
    record_property(f"relative L2 of F({out_tile}x{out_tile}, 3x3)", error)
    print(f"F({out_tile}x{out_tile}, 3x3): relative L2 {error:.2e}")
    assert error < bound < TOLERANCE["fp32"]
