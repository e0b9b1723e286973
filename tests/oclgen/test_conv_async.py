"""What `conv_async` says and computes: by `cp.async` where the device has it, else in plain C."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from oclgen.families.conv import conv_async
from oclgen.families.conv.conv_gemm_operands import copiers
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.plan import Plan
from oclgen.problem import DIRECTIONS, ConvProblem
from search_spaces.space import seeds_of, space_of
from tests.oclgen.conv_cases import EPILOGUES, SHAPES, label
from tests.oclgen.cp_async_in_c import in_plain_c

AMPERE = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 108, 1,
    instructions=frozenset({"cp_async"}),
)  # fmt: skip
LAYER = ConvProblem(8, 64, 56, 56, 128, 3, 3, 2, 2, 1, 1)
POINTWISE = ConvProblem(2, 16, 6, 10, 64, 1, 1)
BASE = conv_async.DEFAULT
CHANGES: dict[str, Any] = {
    "tile_m": 32, "tile_n": 96, "tile_k": 16, "local_m": 16, "local_n": 16, "warp_m": 8,
    "pad": 0, "stages": 3, "taps_outer": False, "split_k": 2, "group_m": 2, "order": "n",
}  # fmt: skip
VARIANTS = (
    BASE,
    # fewer work-items than a row of B has words, and rows that they do not share evenly
    replace(BASE, tile_m=16, tile_n=96, local_m=4, local_n=8, stages=3, pad=0, order="n"),
    replace(BASE, tile_m=32, tile_n=48, local_m=8, local_n=12, warp_m=8, split_k=2, group_m=1),
    # a row of a warp's chunk is stored in two parts
    replace(BASE, tile_m=32, local_m=4, local_n=16, warp_m=2),
)
CASES = (
    *(replace(SHAPES[i], direction=way) for i in (0, 2) for way in DIRECTIONS),
    *(replace(POINTWISE, direction=way) for way in DIRECTIONS),
    # phases that read in place and store apart, and a last tile that is not full
    ConvProblem(2, 12, 8, 8, 20, 1, 1, 2, 2, direction="bwd_data"),
    EPILOGUES[0],
    replace(EPILOGUES[0], width=8),
)


def runnable(
    device: Device, problem: ConvProblem, config: conv_async.Config, limits: Limits | None = None
) -> Plan:
    """Return the plan, in plain C where the device lacks the instruction, or skip."""
    shown = limits or replace(device.limits, instructions=frozenset({"cp_async"}))
    if reason := config.why_not(problem, shown):
        pytest.skip(reason)
    plan = conv_async.plan(problem, config)
    if "cp_async" in device.limits.instructions:
        return plan
    if "Portable" in device.info.runtime:
        pytest.skip(
            "PoCL 3.1 computes it wrong; other runtimes and oclgrind's watch for races agree"
        )
    return in_plain_c(plan)


def test_every_parameter_changes_the_text() -> None:
    assert set(CHANGES) == {field.name for field in fields(BASE)}
    before = [launch.source for launch in conv_async.plan(LAYER, BASE).launches]
    for name, value in CHANGES.items():
        changed = replace(BASE, **{name: value})
        assert changed.why_not(LAYER, AMPERE) is None, changed.why_not(LAYER, AMPERE)
        assert [launch.source for launch in conv_async.plan(LAYER, changed).launches] != before, (
            name
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tile_m": 40}, ("tile_m=40", "local_m=8")),
        ({"stages": 1}, ("stages=1",)),
        ({"pad": 2}, ("pad=2", "4")),
        ({"tile_k": 64, "stages": 4}, ("139264", "48128")),
        ({"local_m": 4, "local_n": 8, "tile_n": 256}, ("512 acc", "at most 128")),
        ({"tile_n": 128, "tile_k": 2}, ("16 sums", "64 work-items", "3200 B")),
        ({"split_k": 100}, ("split_k=100", "72")),
    ],
)
def test_refusals_name_the_numbers(change: dict[str, Any], words: tuple[str, ...]) -> None:
    reason = replace(BASE, **change).why_not(LAYER, AMPERE)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_positions_need_a_work_item_each() -> None:
    problem = replace(LAYER, direction="bwd_weights")
    reason = replace(BASE, tile_k=128, local_n=4, warp_m=8).why_not(problem, AMPERE)
    assert reason is not None
    assert "tile_k=128" in reason


def test_only_devices_that_copy_so_are_served() -> None:
    assert BASE.why_not(LAYER, AMPERE) is None
    assert "none" in (BASE.why_not(LAYER, Limits()) or "")
    assert not conv_async.serves(replace(LAYER, dtype="fp16"))
    assert len(space_of("conv_async", LAYER, Limits())) == 0
    for way in DIRECTIONS:
        problem = replace(LAYER, direction=way)
        seeds = seeds_of("conv_async", problem, AMPERE)
        assert len(seeds) > 4
        assert space_of("conv_async", problem, AMPERE).row_of(seeds[0]) is not None


@pytest.mark.parametrize(
    ("work_items", "across", "down", "expected"),
    [(128, 32, 8, 128), (192, 32, 8, 128), (128, 96, 8, 96), (64, 96, 8, 48), (64, 16, 2, 32)],
)
def test_who_copies(work_items: int, across: int, down: int, expected: int) -> None:
    assert copiers(work_items, across, down) == expected


@pytest.mark.sampled(8)
@pytest.mark.parametrize("config", VARIANTS, ids=range(len(VARIANTS)))
@pytest.mark.parametrize("problem", CASES, ids=label)
def test_convolutions(device: Device, problem: ConvProblem, config: conv_async.Config) -> None:
    measurement = Bench(device, problem).measure(runnable(device, problem, config), 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"


@pytest.mark.parametrize("direction", ["fwd", "bwd_data"])
def test_memory_that_is_not_aligned(device: Device, direction: Any) -> None:
    """Vectors fall back to words: x may be a view that starts anywhere."""
    problem = replace(POINTWISE, direction=direction, in_channels=64)
    plan = runnable(device, problem, BASE)
    random = np.random.default_rng(0)
    sizes = {role: int(np.prod(shape)) for role, shape in problem.buffers.items()}
    stored = {role: random.standard_normal(size + 1, np.float32) for role, size in sizes.items()}
    results = []
    for ahead in (0, 1):
        begins = {role: np.roll(array, ahead) for role, array in stored.items()}
        buffers = {role: device.upload(array) for role, array in begins.items()}
        device.prepare(plan, buffers, dict.fromkeys(buffers, ahead)).run()
        out = problem.output
        results.append(device.download(buffers[out], begins[out])[ahead : ahead + sizes[out]])
    assert np.array_equal(results[0], results[1])
